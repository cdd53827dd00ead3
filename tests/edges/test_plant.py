"""The example of docs/connect.md as processes: deploy/plant.sh, and what docker would be given for the same."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from millstream.client.statements import split_script
from millstream.engine.language.parse import parse_statement
from millstream.engine.language.statements import CreateConnector

from tests.support import services
from tests.support.tree import ROOT


@pytest.mark.slow
@pytest.mark.process
def test_a_hot_sensor_is_in_the_table_and_a_cold_one_is_not() -> None:
    for library in ("paho.mqtt.client", "psycopg"):
        pytest.importorskip(library, reason=f"{library} is not installed")
    for name, places in (("mosquitto", "usr/sbin"), ("initdb", "usr/lib/postgresql/*/bin"), ("psql", "usr/bin"), ("bash", "usr/bin")):
        services.found(name, places)
    if os.getuid() == 0 and shutil.which("runuser") is None:
        pytest.skip("runuser is not installed")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [ROOT / "deploy" / "plant.sh"], env={**os.environ, "PATH": path, "WINDOW_S": "1"}, capture_output=True, text=True, timeout=150
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    assert re.search(r"^ 7 +\| .* \| 35\.0$", done.stdout, re.MULTILINE), done.stdout
    assert not re.search(r"^ 8 ", done.stdout, re.MULTILINE)
    source = next(line for line in done.stdout.splitlines() if line.startswith("plant,"))
    rows, refused = map(int, source.split(",")[4:6])
    assert (rows > 0, refused > 0) == (True, True), "what is no JSON is refused and stops nothing"


def test_what_docker_is_given_says_the_same_as_the_page_and_has_what_it_needs() -> None:
    given = split_script((ROOT / "deploy" / "plant.sql").read_text())
    page = (ROOT / "docs" / "connect.md").read_text().partition("## An example")[2].partition("```sql\n")[2].partition("```")[0]

    def bare(text: str) -> str:
        return re.sub(r"url = '[^']*'|, password = ENV\('\w+'\)|--[^\n]*|\s+", "", text)

    assert list(map(bare, given)) == list(map(bare, split_script(page)))
    made = [one.definition for one in map(parse_statement, given) if isinstance(one, CreateConnector)]
    assert [one.target for one in made] == ["readings", "hot"]
    compose = (ROOT / "deploy" / "compose.yaml").read_text()
    for host in ("mosquitto", "postgres", "connect"):
        assert re.search(rf"^  {host}:\n    profiles: \[plant\]", compose, re.MULTILINE)
    assert "PG_PASSWORD: ${PG_PASSWORD" in compose
    dockerfile = (ROOT / "deploy" / "connect.Dockerfile").read_text()
    for copied in re.findall(r"^COPY (\S+)", dockerfile, re.MULTILINE):
        assert (ROOT / copied).is_file()
    pinned = (ROOT / "requirements" / "edges.txt").read_text()
    for library in re.findall(r"^([a-z-]+)", (ROOT / "requirements" / "edges.in").read_text(), re.MULTILINE):
        assert f"\n{library}==" in f"\n{pinned}", library
