"""WITH (split = n): what it makes of a plan, and which plans it is not for."""

from __future__ import annotations

import pytest
from millstream.engine.data.errors import EngineError, Unsupported
from millstream.engine.language import recipes
from millstream.engine.language.parse import parse_statement
from millstream.engine.language.statements import ClassDefinition, CreateStream, CreateTable
from millstream.engine.plan.catalog import Catalog
from millstream.engine.plan.explain import explain
from millstream.engine.plan.physical import PhysicalNode, SourceNode
from millstream.engine.plan.plan import PlannedQuery, derived_stream, plan_select
from millstream.engine.plan.plan_writer import to_plan_object

STREAMS = (
    "CREATE STREAM s (ts TIMESTAMP, k BIGINT, name TEXT, v DOUBLE) TIMESTAMP BY ts",
    "CREATE STREAM quiet (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts IDLE 5 SECONDS FLUSH",
    "CREATE TABLE t (k BIGINT PRIMARY KEY, w BIGINT)",
)
BOTH = "(SELECT k, ts FROM s UNION ALL SELECT k, ts FROM s)"
WINDOW = "[RANGE 10 SECONDS SLIDE 10 SECONDS]"
REFUSED = {
    f"SELECT k, COUNT(*) AS n FROM s {WINDOW} GROUP BY k EMIT CHANGES": "it asks for other answers than final ones",
    f"SELECT COUNT(*) AS n FROM s {WINDOW}": "its GROUP BY has no keys",
    "SELECT k, COUNT(*) AS n FROM s [RANGE 10 SECONDS] GROUP BY k": "its windows are neither hopping, tumbling, cumulating nor sessions",
    "SELECT k, COUNT(*) AS n FROM s GROUP BY k EMIT CHANGES": "its windows are neither",
    "SELECT k, v FROM s": "no operator of it has keys",
    "SELECT k, SUM(v) OVER (ORDER BY ts ROWS 5 PRECEDING) AS n FROM s": "its OVER has no PARTITION BY",
    "SELECT k, LEAD(v, 2) OVER (PARTITION BY k ORDER BY ts) AS n FROM s": "rows leave its OVER in an order of their own",
    "SELECT a.v FROM s AS a LEFT JOIN s AS b ON a.k = b.k WITHIN 1 SECOND": "rows of an outer join that have no partner",
    "SELECT a.v FROM s AS a JOIN s AS b ON a.v < b.v WITHIN 1 SECOND": "its join has no keys",
    f"SELECT k, COUNT(*) AS n FROM {BOTH} {WINDOW} AS u GROUP BY k": "the GROUP BY reads other rows",
    f"SELECT k, COUNT(*) AS n FROM derived {WINDOW} GROUP BY k": "derived is a derived stream",
    f"SELECT k, COUNT(*) AS n FROM quiet {WINDOW} GROUP BY k": "quiet closes windows when it is idle",
    "SELECT s.k, w FROM s JOIN t ON s.k = t.k": "a join with a table is not split",
    "SELECT k, LAG(v) OVER (PARTITION BY k ORDER BY ts) AS p FROM s": "LAG is not split",
    "SELECT a.v FROM s AS a ASOF JOIN s AS b ON a.k = b.k": "an ASOF join is not split",
}


def catalog() -> Catalog:
    catalog = Catalog()
    for text in STREAMS:
        statement = parse_statement(text)
        assert isinstance(statement, CreateStream | CreateTable)
        catalog.add(statement.definition)
    catalog.add(ClassDefinition("bronze", may_shed=True))
    catalog.add(derived_stream("derived", plan_select("SELECT ts, k FROM s", catalog)))
    return catalog


def planned(query: str) -> PlannedQuery:
    return plan_select(query, catalog())


def nodes(planned: PlannedQuery) -> list[PhysicalNode]:
    found: dict[int, PhysicalNode] = {}
    waiting = [planned.physical.root]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, SourceNode) and id(node) not in found:
            found[id(node)] = node
            waiting += [ref.node for ref in node.inputs]
    return list(found.values())


def kinds(query: str) -> dict[type[recipes.Recipe], int]:
    found: dict[type[recipes.Recipe], int] = {}
    for node in nodes(planned(query)):
        found[type(node.recipe)] = found.get(type(node.recipe), 0) + 1
    return found


def test_a_group_by_has_so_many_parts_of_which_each_drops_other_keys_before_it_filters_and_projects() -> None:
    query = f"SELECT name, k % 3 AS r, MEDIAN(v) AS m FROM s {WINDOW} WHERE v > 1 GROUP BY name, k % 3 WITH (split = 3)"
    found = kinds(query)
    assert (found[recipes.FanOutRecipe], found[recipes.PartRecipe], found[recipes.AggregateRecipe]) == (1, 3, 3)
    assert (found[recipes.SelectRecipe], found[recipes.KeyMergeRecipe]) == (3, 1)
    (fan,) = [node for node in nodes(planned(query)) if isinstance(node.recipe, recipes.FanOutRecipe)]
    assert isinstance(fan.inputs[0].node, SourceNode)
    assert planned(query).physical.schema.names == ("name", "r", "m")
    assert "\nSplit\n  the GROUP BY is split 3 ways by name, key\n" in explain(planned(query))


def test_a_key_whose_computation_may_fail_is_computed_once_above_which_rows_are_dropped() -> None:
    query = f"SELECT 10 / k AS r, COUNT(*) AS n FROM s {WINDOW} GROUP BY 10 / k WITH (split = 2)"
    (fan,) = [node for node in nodes(planned(query)) if isinstance(node.recipe, recipes.FanOutRecipe)]
    below = fan.inputs[0].node
    assert isinstance(below, PhysicalNode)
    assert isinstance(below.recipe, recipes.ProjectRecipe)


def test_of_windows_over_windows_those_nearest_to_the_stream_are_split() -> None:
    inner = f"(SELECT k, window_end AS e, COUNT(*) AS n FROM s {WINDOW} GROUP BY k)"
    found = kinds(f"SELECT n, COUNT(*) AS m FROM {inner} [RANGE 60 SECONDS SLIDE 60 SECONDS] AS c GROUP BY n WITH (split = 2)")
    assert found[recipes.AggregateRecipe] == 3


def test_a_plan_object_says_in_how_many_parts() -> None:
    query = planned(f"SELECT k, COUNT(*) AS n FROM s {WINDOW} GROUP BY k WITH (split = 3)")
    written = to_plan_object(query.bound)
    assert written["split"] == 3
    assert plan_select(written, catalog()).physical == query.physical


def test_the_state_of_all_parts_is_told_once() -> None:
    text = explain(planned(f"SELECT k, COUNT(*) AS n FROM s {WINDOW} GROUP BY k WITH (split = 9)"))
    assert text.count("aggregate: the groups of the last 10 SECONDS") == 1


def test_one_part_is_the_whole_query() -> None:
    query = f"SELECT k, COUNT(*) AS n FROM s {WINDOW} GROUP BY k"
    assert planned(f"{query} WITH (split = 1)").physical == planned(query).physical


@pytest.mark.parametrize("query", REFUSED)
def test_what_cannot_be_split_says_why(query: str) -> None:
    with pytest.raises(Unsupported, match=f"option split: this query cannot be split by key, as {REFUSED[query]}"):
        planned(f"{query} WITH (split = 2)")


def test_a_query_that_may_be_shed_or_has_a_history_is_not_split() -> None:
    query = f"SELECT k, COUNT(*) AS n FROM s {WINDOW} GROUP BY k"
    with pytest.raises(Unsupported, match="option split is not for queries of a class that may be shed, as bronze is"):
        planned(f"{query} WITH (split = 2, class = 'bronze')")
    with pytest.raises(Unsupported, match="option split is not for queries that begin with a history"):
        planned(f"{query} WITH (split = 2, history = 'held')")


@pytest.mark.parametrize("value", ["0", "65", "2.0", "TRUE", "'2'"])
def test_a_number_of_parts_that_cannot_be_is_refused(value: str) -> None:
    with pytest.raises(EngineError, match="option split must be a whole number from 1 to 64"):
        planned(f"SELECT k, COUNT(*) AS n FROM s {WINDOW} GROUP BY k WITH (split = {value})")
