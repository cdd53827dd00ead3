"""No text of a statement reaches a fault of millstream itself: each is planned and built, or refused in words.

The statements are those of the tests and documents, bent at random. MUTATIONS asks for more of them.
"""

from __future__ import annotations

import json
import os
import random
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from millstream.client.errors import MillstreamError
from millstream.engine.data.errors import EngineError
from millstream.engine.data.schema import StreamDefinition, TableDefinition
from millstream.engine.language import statements as say
from millstream.engine.language.parse import parse_script
from millstream.engine.operators.build import build_operator
from millstream.engine.plan.catalog import Catalog
from millstream.engine.plan.explain import explain, explain_semantics
from millstream.engine.plan.insert import bind_rows
from millstream.engine.plan.physical import InputRef, PhysicalNode
from millstream.engine.plan.plan import PlannedQuery, PlanOptions, derived_stream, plan_select
from millstream.engine.plan.plan_writer import to_plan_object
from millstream.server.run.embedded import Replay, run_replay

from tests.support.catalogs import catalog_of
from tests.support.live_server import Harness, run
from tests.support.mutations import mutated, statements

FAULT = re.compile(r"query \S+ failed|fault of millstream")
WORDS = (  # of statements that only a server has, or that are rare among the others: half of what it is asked has one of them
    *("ARCHIVE", "HISTORY", "history = 'archive'", "REFRESH", "UNNEST", "STRUCT", "JSON", "MAP", "FETCH"),
    *("SHOW WORKERS", "SHOW TABLES", "SHOW ARCHIVES", "SHOW QUERIES", "EXPLAIN QOS", "START RECORDING", "DROP STREAM", "CREATE CLASS"),
)
MUTATIONS = int(os.environ.get("MUTATIONS", "3000"))
STREAMS = (
    "CREATE STREAM s (ts BIGINT, k TEXT, v DOUBLE, x INT, y INT, n BIGINT, name TEXT, d DECIMAL(10, 2), i INT, t TEXT, b BOOLEAN) "
    "TIMESTAMP BY ts UNIT s",
    "CREATE STREAM r (ts TIMESTAMP, k INT, w DOUBLE) TIMESTAMP BY ts",
    "CREATE STREAM m (t BIGINT, k BIGINT) TIMESTAMP BY t UNIT ms",
    "CREATE STREAM a (ts BIGINT, k BIGINT, x INT, v INT) TIMESTAMP BY ts UNIT s",
    "CREATE STREAM b (ts BIGINT, k BIGINT, x INT, v INT) TIMESTAMP BY ts UNIT s",
    "CREATE STREAM packets (ts TIMESTAMP, proto TEXT, length INT) TIMESTAMP BY ts DELAY 2 SECONDS",
    "CREATE STREAM orders (ts BIGINT, id BIGINT, item TEXT) TIMESTAMP BY ts UNIT s",
    "CREATE STREAM paid (ts BIGINT, id BIGINT, amount DECIMAL(8, 2)) TIMESTAMP BY ts UNIT s",
    "CREATE TABLE tab (k BIGINT, label TEXT, PRIMARY KEY (k))",
    "CREATE TABLE prices (item TEXT, price INT, PRIMARY KEY (item))",
    "CREATE STREAM counts AS SELECT k, COUNT(*) AS c FROM s GROUP BY k",
    "CREATE STREAM sums AS SELECT window_end AS closed, k, SUM(v) AS total FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k",
)


def built(node: PhysicalNode, made: dict[int, Any]) -> None:
    """Build the operators of a plan."""
    for ref in node.inputs:
        if isinstance(ref, InputRef) and isinstance(ref.node, PhysicalNode) and id(ref.node) not in made:
            built(ref.node, made)
    made[id(node)] = build_operator(
        node.recipe, [ref.node.recipe.schema if isinstance(ref.node, PhysicalNode) else ref.node.schema for ref in node.inputs]
    )


def understood(planned: PlannedQuery, catalog: Catalog) -> None:
    """Do all that is done with a plan before rows come."""
    if isinstance(planned.physical.root, PhysicalNode):
        built(planned.physical.root, {})
    explain(planned)
    explain_semantics(planned)
    plan_select(json.loads(json.dumps(to_plan_object(planned.bound))), catalog)


def tried(text: str, catalog: Catalog) -> None:
    """Parse and bind what the text says; EngineError where it is refused."""
    for statement, _ in parse_script(text):
        if isinstance(statement, say.SelectStatement | say.CreateQuery | say.InsertSelect | say.CreateDerivedStream):
            planned = plan_select(statement.query, catalog, text=statement.text)
            understood(planned, catalog)
            if isinstance(statement, say.CreateDerivedStream):
                derived_stream(statement.name, planned)
        elif isinstance(statement, say.Fetch) and statement.query is not None:
            plan_select(statement.query, catalog, options=PlanOptions(finite=True))
        elif isinstance(statement, say.Explain) and statement.query is not None:
            explain(plan_select(statement.query, catalog))
        elif isinstance(statement, say.InsertValues):
            found = catalog.relation(statement.name.text)
            if isinstance(found, StreamDefinition | TableDefinition):
                bind_rows(statement, found)


def faults(seed: int, count: int) -> list[str]:
    """Return the texts, of `count` bent ones, that end in anything but a plan or a refusal."""
    choice, catalog, found = random.Random(seed), catalog_of(STREAMS), []
    for _ in range(count):
        text = mutated(choice, choice.choice(statements()))
        try:
            tried(text, catalog)
        except EngineError:
            pass
        except Exception as fault:  # any other is what is looked for
            found.append(f"{text}\n  {type(fault).__name__}: {fault}")
    return found


@pytest.mark.slow
@pytest.mark.timeout(MUTATIONS)
def test_no_text_of_a_statement_is_a_fault_of_millstream(seed: int) -> None:
    assert statements()
    assert faults(seed, MUTATIONS) == []


@pytest.mark.slow
@pytest.mark.timeout(MUTATIONS)
def test_no_text_of_a_statement_is_a_fault_of_millstream_once_rows_come(seed: int, tmp_path: Path) -> None:
    rows = tmp_path / "s.csv"
    rows.write_text(
        "ts,k,v,x,y,n,name,d,i,t,b\n1,a,1.5,1,0,,x,1.50,,a b,true\n2,,NaN,0,3,9223372036854775807,é,-1,7,,\n9,a,-0.0,,,,,,,,false\n"
    )
    choice = random.Random(seed)
    queries = [text for text in statements() if text.startswith("SELECT")]
    found = []
    for _ in range(MUTATIONS // 20):
        text = mutated(choice, choice.choice(queries))
        try:
            outcome = run_replay(Replay(";\n".join([*STREAMS[:1], text]), [("s", rows)]))
        except Exception as fault:
            found.append(f"{text}\n  {type(fault).__name__}: {fault}")
            continue
        if any(FAULT.search(said) for said in [*outcome.messages, outcome.failure or ""]):
            found.append(f"{text}\n  {outcome.messages} {outcome.failure}")
    assert found == []


@pytest.mark.slow
@pytest.mark.timeout(MUTATIONS)
def test_no_text_of_a_statement_is_a_fault_of_a_server(seed: int, tmp_path: Path) -> None:
    """Everything that a server executes, on a disk, with archives, tables from files, history and FETCH."""
    rare = [text for text in statements() if any(word in text for word in WORDS)]
    assert [word for word in WORDS if not any(word in text for text in rare)] == []
    choice, found = random.Random(seed), []

    async def test(harness: Harness) -> None:
        client = await harness.client()
        for number in range(MUTATIONS // 5):
            if number % 100 == 0:  # some of what was asked has dropped them
                for text in STREAMS:
                    with suppress(MillstreamError):
                        await client.execute(text)
            text = mutated(choice, choice.choice(choice.choice((rare, statements()))))
            try:
                await client.execute(text)
            except MillstreamError as refused:
                if refused.code == "internal" or FAULT.search(str(refused)):
                    found.append(f"{text}\n  {refused}")
            if not client.is_open:
                found.append(f"{text}\n  the connection is closed")
                client = await harness.client()
        assert client.is_open

    run(test, within_s=MUTATIONS, data_dir=str(tmp_path / "data"), files_dir=str(tmp_path))
    assert found == []
