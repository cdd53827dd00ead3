"""Plan objects: MavStream's trees, their refusals by path, and their agreement with SELECT."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from millstream.engine.data.errors import EngineError, InvalidDefinition, TypeProblem, UnknownName, Unsupported
from millstream.engine.language.recipes import SplitRecipe, UnionRecipe, UnnestRecipe
from millstream.engine.plan.physical import PhysicalNode
from millstream.engine.plan.plan import PlannedQuery
from millstream.engine.plan.plan_objects import plan_name
from millstream.engine.plan.plan_writer import to_plan_object

from tests.support.plans import plan

S: dict[str, Any] = {"op": "source", "stream": "s"}
R: dict[str, Any] = {"op": "source", "stream": "r"}
TAB: dict[str, Any] = {"op": "source", "stream": "tab"}
COUNTS: dict[str, Any] = {"op": "aggregate", "group_by": ["k"], "aggregates": [["n", "count", "*"]], "input": S}
TOP: dict[str, Any] = {"op": "top", "order_by": "n", "limit": 1}
LISTS: dict[str, Any] = {"op": "project", "columns": [["l", "ARRAY[k]"], "ts"], "input": S}
ROW_NUMBER: dict[str, Any] = {"op": "rank", "function": "row_number", "order_by": "n"}


def over(call: list[Any], below: Any, start: str = "3", by: str = "k") -> dict[str, Any]:
    frame = f"ROWS BETWEEN {start} PRECEDING AND CURRENT ROW"
    return {"version": 1, "root": {"op": "over", "parts": [{"frame": frame, "partition_by": [by], "calls": [call]}], "input": below}}


def of(root: Any, **fields: Any) -> PlannedQuery:
    return plan({"version": 1, "root": root, **fields})


@pytest.mark.parametrize(
    ("root", "text"),
    [
        ({"op": "select", "condition": "v > 3", "input": S}, "SELECT * FROM s WHERE v > 3"),
        ({"op": "project", "columns": ["k", ["vv", "v * 2"]], "input": S}, "SELECT k, v * 2 AS vv FROM s"),
        ({"op": "project", "columns": "*", "input": S}, "SELECT * FROM s"),
        (
            {
                "op": "project",
                "columns": ["k", "n", ["avg", "mean"]],
                "input": {
                    "op": "aggregate",
                    "window": "RANGE 10 SECONDS SLIDE 5 SECONDS",
                    "where": "v > 1",
                    "group_by": ["k"],
                    "aggregates": [["n", "count", "*"], ["mean", "avg", "v"]],
                    "input": S,
                },
            },
            "SELECT k, COUNT(*) AS n, AVG(v) AS avg FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS] WHERE v > 1 GROUP BY k",
        ),
        (
            {
                "op": "project",
                "columns": [["k", "s.k"], "w"],
                "input": {"op": "join", "kind": "left", "on": "s.k = r.k AND s.v > 1", "within": "5 SECONDS", "inputs": [S, R]},
            },
            "SELECT s.k, w FROM s LEFT JOIN r ON s.k = r.k AND s.v > 1 WITHIN 5 SECONDS",
        ),
        (
            {
                "op": "project",
                "columns": [["k", "x.k"]],
                "input": {
                    "op": "join",
                    "on": "x.k = y.k",
                    "windows": ["RANGE 10 SECONDS", "RANGE 5 SECONDS"],
                    "inputs": [{**S, "as": "x"}, {**S, "as": "y"}],
                },
            },
            "SELECT x.k FROM s [RANGE 10 SECONDS] x JOIN s [RANGE 5 SECONDS] y ON x.k = y.k",
        ),
        (
            {"op": "union", "inputs": [{"op": "project", "columns": ["k"], "input": S}, {"op": "project", "columns": ["k"], "input": R}]},
            "SELECT k FROM s UNION ALL SELECT k FROM r",
        ),
        ({"op": "distinct", "input": {"op": "project", "columns": ["k"], "input": S}}, "SELECT DISTINCT k FROM s"),
    ],
    ids=lambda v: v["op"] if isinstance(v, dict) else "",
)
def test_a_plan_and_its_select_run_alike(root: dict[str, Any], text: str) -> None:
    names = {a.name for a in plan(text).physical.schema.fields}
    assert {a.name for a in of(root).physical.schema.fields} == names
    found, wanted = of(root).physical, plan(text).physical
    assert _recipes(found) == _recipes(wanted)


def _recipes(query: Any) -> list[Any]:
    """All recipes of a plan without the names of inner columns, which are the planner's own."""
    found: list[Any] = []
    pending = [query.root]
    while pending:
        node = pending.pop(0)
        if isinstance(node, PhysicalNode):
            fields = {f: getattr(node.recipe, f) for f in type(node.recipe).__dataclass_fields__ if f != "schema"}
            found.append((type(node.recipe), [f.type for f in node.recipe.schema.fields], fields))
            pending += [ref.node for ref in node.inputs]
        else:
            found.append(node)
    return found


def test_both_branches_of_a_split_are_one_operator() -> None:
    high: dict[str, Any] = {"op": "split", "condition": "v > 10", "keep": True, "input": S}
    low = {**high, "keep": False}
    union = of({"op": "union", "inputs": [high, low]}).physical.root
    assert isinstance(union, PhysicalNode)
    assert isinstance(union.recipe, UnionRecipe)
    first, second = union.inputs
    assert first.node is second.node
    assert isinstance(first.node, PhysicalNode)
    assert isinstance(first.node.recipe, SplitRecipe)
    assert (first.output, second.output) == (0, 1)


def test_a_split_at_the_root_gives_its_other_branch_too() -> None:
    physical = of({"op": "split", "condition": "v > 10", "keep": False, "input": S}).physical
    assert isinstance(physical.root, PhysicalNode)
    assert physical.root.inputs[0].output == 1


def test_declared_costs_reach_the_operators() -> None:
    root = of({"op": "select", "condition": "v > 3", "selectivity": 0.8, "cost_us": 12, "input": S}).physical.root
    assert isinstance(root, PhysicalNode)
    assert (root.selectivity, root.cost_us) == (0.8, 12.0)


def test_the_root_carries_the_service_level() -> None:
    options = of(
        S,
        name="q",
        qos={"latency": [[0, 1], [0.05, 0.8], [0.2, 0]], "memory_bytes_max": 1000, "tolerance_percent": 10},
        **{"class": "gold"},
        weight=2,
        deadline="5 SECONDS",
        start="2024-01-01",
        lifetime="1 HOUR",
    ).physical.options
    assert options.class_name == "gold"
    assert options.qos == ((0.0, 1.0), (0.05, 0.8), (0.2, 0.0))
    assert (options.memory_bytes_max, options.tolerance_percent, options.weight) == (1000, 10.0, 2.0)
    assert (options.deadline_ns, options.start_at_us, options.lifetime_us) == (5_000_000_000, 1_704_067_200_000_000, 3_600_000_000)
    assert plan_name({"name": "q"}) == "q"


def test_options_survive_the_way_to_a_plan_object_and_msgpack() -> None:
    planned = plan(
        "SELECT k, COUNT(*) FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS] GROUP BY k "
        "WITH (class = gold, qos = '0ms:1, 50ms:0.8', deadline = '2 s', weight = 3, start = '2024-01-01', lifetime = '1 day')"
    )
    written = msgpack.unpackb(msgpack.packb(to_plan_object(planned.bound, "q")))
    assert written["name"] == "q"
    assert plan(written).physical == planned.physical


def test_emission_and_streams_stand_at_the_root() -> None:
    counts = {"op": "aggregate", "window": "RANGE 5 SECONDS", "group_by": ["k"], "aggregates": [["n", "count", "*"]], "input": S}
    assert of(counts, emit="CHANGES").physical.change_kind == 4
    hopping = {**counts, "window": "RANGE 6 SECONDS SLIDE 2 SECONDS"}
    assert of(hopping, emit="EVERY 2 SECONDS").physical.emit.every_us == 2_000_000
    assert type(of(counts, stream="i").physical.root.recipe).__name__ == "RelationToStreamRecipe"  # type: ignore[union-attr]
    assert of(counts, stream="r", every="2 SECONDS").physical.options.period_ns == 2_000_000_000


def test_emission_may_stand_in_the_root_or_beside_it_and_is_written_in_it() -> None:
    counts = {"op": "aggregate", "window": "RANGE 5 SECONDS", "group_by": ["k"], "aggregates": [["n", "count", "*"]], "input": S}
    running = {"op": "project", "columns": ["n"], "input": {key: value for key, value in counts.items() if key != "window"}}
    for tree, when in (
        (counts, {"emit": "CHANGES"}),
        (counts, {"stream": "i"}),
        (counts, {"stream": "r", "every": "2 SECONDS"}),
        (running, {"emit": "FINAL"}),
        (running, {"emit": "EVERY 2 SECONDS"}),
    ):
        inside, beside = of({**tree, **when}), of(tree, **when)
        assert inside.physical == beside.physical
        written = to_plan_object(inside.bound)
        assert not written.keys() & when.keys()
        assert plan(written).physical == inside.physical
    assert of(S, stream="i").physical == of(S).physical  # the source's own stream is its name


REFUSED: list[tuple[dict[str, Any], type[EngineError], str]] = [
    ({"root": S}, InvalidDefinition, "version is missing"),
    ({"version": 2, "root": S}, InvalidDefinition, "plan version 2 is unknown"),
    ({"version": 1}, InvalidDefinition, "root is missing"),
    ({"version": 1, "root": S, "roots": 1}, InvalidDefinition, "roots is not a field of a plan.*did you mean root"),
    ({"version": 1, "root": []}, InvalidDefinition, "root must be an object"),
    ({"version": 1, "root": {"op": "sauce"}}, InvalidDefinition, "root.op 'sauce' is unknown"),
    ({"version": 1, "root": {"op": "source", "stream": "ss"}}, UnknownName, "root: there is no stream or table ss.*did you mean s"),
    ({"version": 1, "root": {"op": "source", "stream": 5}}, InvalidDefinition, "root.stream must be a text"),
    ({"version": 1, "root": {"op": "select", "input": S}}, InvalidDefinition, "root.condition is missing"),
    ({"version": 1, "root": {"op": "select", "condition": "v > 3"}}, InvalidDefinition, "root.input is missing"),
    ({"version": 1, "root": {"op": "select", "condition": "v >", "input": S}}, EngineError, "root.condition: "),
    ({"version": 1, "root": {"op": "select", "condition": "v", "input": S}}, TypeProblem, "root.condition: condition must be a condition"),
    ({"version": 1, "root": {"op": "select", "condition": "q > 3", "input": S}}, UnknownName, "root.condition: there is no column q"),
    ({"version": 1, "root": {"op": "select", "where": "v > 3", "input": S}}, InvalidDefinition, "root.where is not a field"),
    (
        {"version": 1, "root": {"op": "join", "on": "s.k = r.k", "within": "1 SECOND", "inputs": [S, {**R, "condtion": "x"}]}},
        InvalidDefinition,
        r"root.inputs\[1\].condtion is not a field",
    ),
    (
        {"version": 1, "root": {"op": "union", "inputs": [S, {"op": "select", "condition": "z = 1", "input": S}]}},
        UnknownName,
        r"root.inputs\[1\].condition: there is no column z",
    ),
    ({"version": 1, "root": {"op": "join", "on": "s.k = r.k", "inputs": [S, R]}}, InvalidDefinition, "root: .*needs a bound in time"),
    ({"version": 1, "root": {"op": "join", "on": "TRUE", "within": "1 SECOND", "inputs": [S]}}, InvalidDefinition, "must be two, not 1"),
    ({"version": 1, "root": {"op": "join", "kind": "outer", "inputs": [S, R]}}, InvalidDefinition, "root.kind 'outer' is unknown"),
    (
        {"version": 1, "root": {"op": "project", "columns": [["a"]], "input": S}},
        InvalidDefinition,
        r"root.columns\[0\] must be \[name, expr",
    ),
    ({"version": 1, "root": {"op": "project", "columns": ["k", "k"], "input": S}}, InvalidDefinition, "names k twice"),
    ({"version": 1, "root": {"op": "project", "columns": ["v + 1"], "input": S}}, InvalidDefinition, r"root.columns\[0\] needs a name"),
    (
        {"version": 1, "root": {"op": "aggregate", "aggregates": [["n", "upper", "name"]], "input": S}},
        InvalidDefinition,
        r"root.aggregates\[0\] is not an aggregate",
    ),
    ({"version": 1, "root": {"op": "aggregate", "input": S}}, InvalidDefinition, "needs group_by or aggregates"),
    (
        {"version": 1, "root": {"op": "aggregate", "window": "RANGE 5", "aggregates": [["n", "count", "*"]], "input": S}},
        EngineError,
        "root.window: ",
    ),
    ({"version": 1, "root": {**S, "selectivity": "high"}}, InvalidDefinition, "root.selectivity must be a number"),
    ({"version": 1, "root": {**S, "cost_us": 0}}, InvalidDefinition, "root.cost_us must be a number above 0"),
    ({"version": 1, "root": {"op": "source", "stream": "tab"}}, Unsupported, "a table can stand only"),
    ({"version": 1, "root": {"op": "select", "condition": "k > 3", "input": TAB}}, Unsupported, "root: a table can stand only"),
    ({"version": 1, "root": {"op": "project", "columns": "*", "input": TAB}}, Unsupported, "root: a table can stand only"),
    ({"version": 1, "root": {"op": "union", "inputs": [TAB, TAB]}}, Unsupported, "root: a table can stand only"),
    ({"version": 1, "root": {"op": "lag", "value": "k", "input": COUNTS}}, Unsupported, "root: LAG over a change log"),
    ({"version": 1, "root": {"op": "distinct", "input": COUNTS}}, Unsupported, "root: DISTINCT over a change log"),
    ({"version": 1, "root": {**TOP, "input": COUNTS}}, Unsupported, "root: ORDER BY … LIMIT over a change log"),
    ({"version": 1, "root": {**ROW_NUMBER, "input": COUNTS}}, Unsupported, "root: ROW_NUMBER over a change log"),
    (over(["n", "count", [], None, False, []], COUNTS), Unsupported, "root: OVER over a change log"),
    (over(["n", "sum", ["v"], "k", False, []], S), InvalidDefinition, "a filter that is BIGINT, not BOOLEAN"),
    (over(["n", "median", ["v"], None, False, []], S, "UNBOUNDED"), Unsupported, "PERCENTILE_CONT from UNBOUNDED PRECEDING"),
    (over(["n", "count", [], None, False, []], LISTS, by="l"), TypeProblem, "cannot be a key of OVER"),
    (over(["n", "array_agg", ["v"], None, False, [[1]]], S), InvalidDefinition, r"\[\[descending, NULLs first\], …\]"),
    (over(["n", "array_agg", ["v"], None, False, [[[True, False]]]], S), InvalidDefinition, "one STRUCT of 2 parts"),
    ({"version": 1, "root": S, "qos": {"latency": [[0.1, 1], [0.05, 0]]}}, InvalidDefinition, "latencies of a qos graph must rise"),
    ({"version": 1, "root": S, "qos": {"latencies": []}}, InvalidDefinition, "qos.latencies is not a field"),
    ({"version": 1, "root": S, "emit": "LATER"}, EngineError, "emit: "),
    ({"version": 1, "root": {**S, "emit": "LATER"}}, EngineError, "root.emit: "),
    ({"version": 1, "root": {**S, "emit": "FINAL"}, "emit": "FINAL"}, InvalidDefinition, "emit stands beside root, and root.emit in it"),
    ({"version": 1, "root": {"op": "distinct", "stream": "x", "input": S}}, InvalidDefinition, "root.stream must be i, d or r"),
    ({"version": 1, "root": S, "stream": "x"}, InvalidDefinition, "stream must be i, d or r"),
    ({"version": 1, "root": S, "name": "a/b"}, InvalidDefinition, "contains /"),
]


@pytest.mark.parametrize(("value", "error", "message"), REFUSED, ids=[m for _, _, m in REFUSED])
def test_a_wrong_plan_is_refused_by_path(value: dict[str, Any], error: type[EngineError], message: str) -> None:
    with pytest.raises(error, match=f"(?s){message}"):
        plan(value)


def test_a_plan_that_is_too_deep_is_refused() -> None:
    root: dict[str, Any] = S
    for _ in range(100):
        root = {"op": "select", "condition": "v > 3", "input": root}
    with pytest.raises(InvalidDefinition, match="nested more than"):
        of(root)


UNNEST: dict[str, Any] = {"op": "unnest", "items": "ARRAY[1, k]", "input": S}


def test_unnest_says_the_same_as_in_from() -> None:
    root = {**UNNEST, "called": "u", "columns": ["x", "n"], "numbered": True, "outer": True}
    text = "SELECT * FROM s LEFT JOIN UNNEST(ARRAY[1, s.k]) WITH ORDINALITY AS u(x, n) ON TRUE"
    found, wanted = of(root).physical, plan(text).physical
    assert found.schema == wanted.schema
    assert found.root.recipe == wanted.root.recipe
    assert isinstance(found.root.recipe, UnnestRecipe)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"numbered": "no"}, "root.numbered must be true or false, not 'no'"),
        ({"outer": 1}, "root.outer must be true or false, not 1"),
        ({"items": "k"}, "UNNEST takes a list or a map, not BIGINT"),
        ({"columns": ["a", "b"]}, "UNNEST gives 1 columns here, not 2"),
        ({"input": TAB}, "a table can stand only on the right of a join"),
    ],
)
def test_an_unnest_that_is_none_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(EngineError) as caught:
        of({**UNNEST, **fields})
    assert said in str(caught.value)
