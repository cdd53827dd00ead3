"""What is drawn is what the text means: a plan written as text is read as the same plan again; a text asks about its past."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import live_server
from tests.support.consoles import WEB
from tests.support.live_server import Harness

NODE = shutil.which("node")
WINDOW = "[RANGE 10 SECONDS SLIDE 1 SECOND]"
TEXTS = (
    "SELECT * FROM readings",
    "SELECT * FROM readings WHERE value > 3",
    """SELECT sensor AS "a ""b", value * 2 AS v FROM readings WHERE value > 3 AND sensor = 'it''s, (so'""",
    f"SELECT sensor, COUNT(*) AS n, AVG(value) AS mean FROM readings {WINDOW} WHERE value > 12.5 GROUP BY sensor",
    "SELECT COUNT(*) AS n FROM readings [RANGE 10 SECONDS SLIDE 10 SECONDS]",
    f"SELECT sensor, n FROM (SELECT sensor, COUNT(*) AS n FROM readings {WINDOW} GROUP BY sensor) WHERE n > 3",
    f"SELECT sensor, SUM(value) AS total, window_start FROM readings {WINDOW} GROUP BY sensor HAVING SUM(value) > 3",
    f"SELECT AVG(n) AS m FROM (SELECT sensor, COUNT(*) AS n FROM readings {WINDOW} GROUP BY sensor) AS c [RANGE 1 MINUTE SLIDE 1 MINUTE]",
    f"SELECT DISTINCT sensor FROM readings {WINDOW}",
    f"SELECT sensor, value FROM readings {WINDOW} ORDER BY value DESC LIMIT 3",
    f"SELECT sensor, MAX(value) AS top FROM readings {WINDOW} GROUP BY sensor ORDER BY top DESC LIMIT 2",
    "SELECT a.sensor, b.value FROM readings AS a JOIN other AS b ON a.sensor = b.sensor WITHIN 2 SECONDS",
    "SELECT sensor FROM readings UNION ALL SELECT sensor FROM other",
    "SELECT sensor, COUNT(*) AS n FROM readings GROUP BY sensor",
)
UNDRAWABLE = (
    "SELECT a.sensor FROM readings [RANGE 1 SECOND] AS a JOIN other [RANGE 2 SECONDS] AS b ON a.sensor = b.sensor",
    "SELECT sensor, LAG(value) OVER (PARTITION BY sensor) AS before FROM readings",
)
WRITE = """
import { sqlOf, undrawable } from "./src/sql.js";
import { readFileSync } from "node:fs";
const plans = JSON.parse(readFileSync(0));
console.log(JSON.stringify(plans.map((plan) => (undrawable(plan) ? null : sqlOf(plan)))));
"""


@pytest.mark.skipif(NODE is None, reason="there is no Node")
@pytest.mark.process
def test_a_plan_written_as_text_is_read_as_the_same_plan() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        for name in ("readings", "other"):
            await client.execute(f"CREATE STREAM {name} (sensor TEXT, value DOUBLE)")
        plans = [(await client.execute(f"EXPLAIN {text}")).info["plan"] for text in (*TEXTS, *UNDRAWABLE)]
        command = [str(NODE), "--input-type=module", "-e", WRITE]
        done = subprocess.run(command, cwd=WEB, input=json.dumps(plans), capture_output=True, text=True, timeout=60, check=True)
        written = json.loads(done.stdout)
        assert written[len(TEXTS) :] == [None] * len(UNDRAWABLE)
        for plan, text in zip(plans, written[: len(TEXTS)], strict=False):
            assert (await client.execute(f"EXPLAIN {text}")).info["plan"] == plan, text

    live_server.run(test)


ASK_THE_PAST = """
import { ofHistory } from "./src/sql.js";
import { readFileSync } from "node:fs";
const asked = JSON.parse(readFileSync(0));
console.log(JSON.stringify(asked.map((text) => ofHistory(text, ["readings", "other", "a b"]))));
"""
ODD = (
    "SELECT EXTRACT(YEAR FROM ts) AS readings, ', other' AS t FROM -- other\n READINGS, \"a b\" AS x WHERE value IN (1, other)",
    "SELECT * FROM (SELECT sensor FROM readings) AS readings",
)


@pytest.mark.skipif(NODE is None, reason="there is no Node")
@pytest.mark.process
def test_a_text_asks_about_the_past_of_its_streams(tmp_path: Path) -> None:
    command = [str(NODE), "--input-type=module", "-e", ASK_THE_PAST]
    texts = json.dumps([*TEXTS, *UNDRAWABLE, *ODD])
    done = subprocess.run(command, cwd=WEB, input=texts, capture_output=True, text=True, timeout=60, check=True)
    *written, odd, nested = json.loads(done.stdout)
    assert odd == ODD[0].replace("READINGS", "READINGS HISTORY").replace('"a b"', '"a b" HISTORY')
    assert nested == ODD[1].replace("FROM readings", "FROM readings HISTORY")

    async def test(harness: Harness) -> None:
        client = await harness.client()
        for name in ("readings", "other"):
            await client.execute(f"CREATE STREAM {name} (sensor TEXT, value DOUBLE) DURABILITY journal ARCHIVE")
            await client.publish(name, [{"sensor": "a", "value": 13.0}])
        answers = [await client.execute(f"FETCH {text}") for text in written]
        assert all("HISTORY" in text for text in written)
        assert [len(answer) for answer in answers[:2]] == [1, 1]
        assert answers[3].rows[0]["n"] == 1

    live_server.run(test, data_dir=str(tmp_path))
