"""From one plan of a query to another at any point: no row lost, none twice, accounts unbroken (K10, K15)."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from millstream.engine.data.errors import Unsupported
from millstream.engine.data.graph import ClassId, ClassNode
from millstream.engine.data.work import Step
from millstream.engine.language.recipes import SelectRecipe
from millstream.engine.plan.alternatives import (
    Measured,
    OperatorRecord,
    alternatives,
    change_runs,
    expected_cost,
    key_of,
    ordered,
    physical_of,
    rebuilt,
    run_below,
)
from millstream.engine.plan.logical import LogicalQuery, Node, walk_plan
from millstream.engine.plan.plan import plan_select
from millstream.engine.runtime.network import DEFAULT_CLASS_NODE

from tests.support.engine_run import SECOND, SqlEngine

STREAM = "CREATE STREAM s (ts TIMESTAMP, k BIGINT, v BIGINT, name TEXT) TIMESTAMP BY ts DELAY 2 SECONDS"
OTHER = STREAM.replace("STREAM s", "STREAM r")
TABLE = "CREATE TABLE t (k BIGINT, w BIGINT, PRIMARY KEY (k))"
SECOND_TABLE = "CREATE TABLE u (v BIGINT, x BIGINT, PRIMARY KEY (v))"
FILTER = "(SELECT * FROM (SELECT * FROM s WHERE v > 2) AS a WHERE name LIKE '%x%') AS b"
QUERIES = (
    f"SELECT ts, v, name FROM {FILTER} WHERE k <> 3",
    "SELECT k, window_end, COUNT(*) AS n, SUM(v) AS total FROM (SELECT ts, k, v FROM s WHERE v > 2 AND name LIKE '%x%') "
    "[RANGE 6 SECONDS SLIDE 3 SECONDS] AS b GROUP BY k",
    "SELECT k, window_end, COUNT(*) AS n FROM s [RANGE 6 SECONDS SLIDE 3 SECONDS] WHERE v > 2 AND name LIKE '%x%' GROUP BY k",
    "SELECT k, COUNT(*) AS n FROM s [RANGE 4 SECONDS] WHERE v > 2 AND name LIKE '%x%' AND k <> 3 GROUP BY k",
    "SELECT k, COUNT(*) AS n, MAX(v) AS most FROM s [SESSION 3 SECONDS] WHERE name LIKE '%x%' AND v > 2 GROUP BY k",
    "SELECT s.v, r.v AS other FROM s JOIN r ON s.k = r.k WITHIN 2 SECONDS WHERE s.v > 2 AND s.name LIKE '%x%' AND r.v > 4",
    "SELECT k, COUNT(*) AS n FROM s WHERE v > 2 AND name LIKE '%x%' GROUP BY k EMIT FINAL",
    "SELECT DISTINCT k FROM s [RANGE 4 SECONDS SLIDE 4 SECONDS] WHERE v > 2 AND name LIKE '%x%'",
    "SELECT s.k, s.v, t.w FROM s JOIN t ON s.k = t.k WHERE s.v > 2 AND s.name LIKE '%x%' AND t.w > 1",
    "SELECT s.k, t.w, u.x, s.v FROM s JOIN t ON s.k = t.k JOIN u ON s.v = u.v WHERE s.name LIKE '%x%' AND t.w > 1 AND u.x <> 2",
    "SELECT t.w, COUNT(*) AS n FROM s [RANGE 4 SECONDS] JOIN t ON s.k = t.k JOIN u ON t.w = u.v WHERE s.v > 2 GROUP BY t.w",
    "SELECT k, 10 / v AS d FROM s WHERE name LIKE '%x%' AND k <> 3",
    "SELECT k, d FROM (SELECT k, name, 10 / v AS d FROM s) AS a WHERE name LIKE '%x%' AND k <> 3 AND d > 1",
    "SELECT v, LAG(v) OVER (PARTITION BY k) AS before FROM s WHERE v > 2 AND name LIKE '%x%'",
)

TWINS = {"strict": "SELECT k, v FROM s WHERE v > 2 AND name LIKE '%x%'", "loose": "SELECT k FROM s WHERE v > 2"}


class Swapping(SqlEngine):
    """An engine in which queries change their plans."""

    def __init__(self, *, sharing: bool, **how: Any) -> None:
        super().__init__(STREAM, OTHER, TABLE, SECOND_TABLE, sharing=sharing, **how)
        self.logical: dict[str, LogicalQuery] = {}

    def begin(self, text: str) -> None:
        planned = plan_select(text, self.catalog)
        self.logical["q"] = planned.logical
        self.select(text, "q")

    def begin_swap(self, root: Node, class_node: ClassNode = DEFAULT_CLASS_NODE) -> Any:
        """Attach another plan, sealed; returns its delta."""
        physical, replaces = physical_of(self.logical["q"], root), self.deltas["q"].query.id
        delta = self.network.add_query("q", physical, self.results["q"].append, class_node=class_node, replaces=replaces)
        self.network.attach(delta.query.id)
        return delta

    def end_swap(self, delta: Any) -> None:
        """Drain the old plan, hand over, take it out."""
        handover = self.network.handover(delta.query.id)
        self.work()
        assert handover.is_drained()
        handover.carry()
        handover.open()
        self.network.remove_query(self.deltas["q"].query.id)
        self.deltas["q"] = delta


def permuted(root: Node, draw: random.Random) -> Node:
    """Every run of selections and joins with tables in another order."""
    return change_runs(root, lambda run: rebuilt(run, ordered(run, lambda _: draw.random())))


def taken_apart(root: Node) -> Node:
    """The plan with conditions joined by AND one by one, where there are such."""
    return next((one.root for one in alternatives(root, Measured()) if one.saving is None), root)


def history(draw: random.Random, steps: int) -> list[tuple[str, Any]]:
    """Rows, some late, and work of some operators in between."""
    found, now = list[tuple[str, Any]](), 0
    for _ in range(steps):
        kind = draw.random()
        if kind < 0.55:
            rows = []
            for _ in range(draw.randint(1, 8)):
                now += draw.choice((0, 0, 1, 1, 2, 7)) * SECOND // 2
                late = draw.choice((0, 0, 0, 1, 3, 8)) * SECOND
                name = draw.choice(("x", "ax", "b", "", None))
                rows.append((now - late, draw.randint(1, 4), draw.choice((None, *range(9))), name))
            found.append((draw.choice(("s", "s", "r")), rows))
        elif kind < 0.65:
            found.append((draw.choice("tu"), [(draw.randint(1, 4), draw.randint(0, 5), "+")]))
        else:
            found.append(("work", draw.random()))
    return found


def played(text: str, seed: int, *, swaps: bool, sharing: bool, train: int | None) -> tuple[Any, Any, Any]:
    """Return the rows, the accounts and the late rows of a history, with or without changes of the plan at random points."""
    draw, other = random.Random(seed), random.Random(seed + 1)
    engine = Swapping(sharing=sharing, train=train)
    engine.put("t", [(k, k, "+") for k in (1, 2, 3)])
    engine.put("u", [(v, v % 4, "+") for v in range(1, 9)])
    for name, twin in TWINS.items():  # where sharing is on the query uses what serves them, and they what serves it
        engine.select(twin, name)
    engine.begin(text)
    root = taken_apart(engine.logical["q"].root)
    pending = None
    for what, told in history(draw, 16):
        if what == "work":
            operators = [o for delta in (*engine.deltas.values(), *([pending] if pending else [])) for o in delta.query.operators]
            other.shuffle(operators)
            for operator in operators[: int(told * len(operators))]:
                if operator in engine.network.operators:
                    engine.run_order(Step(operator, train))
        else:
            engine.put(what, told)
        if swaps and pending is None and other.random() < 0.4:
            root = permuted(root, other)
            pending = engine.begin_swap(root)
        elif pending is not None and other.random() < 0.5:
            engine.end_swap(pending)
            pending = None
    if pending is not None:
        engine.end_swap(pending)
    engine.end()
    engine.work()
    late = sorted((q, s, t.seq.array().tolist()) for q, s, t in engine.hooks.late_rows)
    assert all(a.balances for a in engine.account("q").values())
    answers = [engine.rows(name) for name in ("q", *TWINS)]
    failed = sorted(seq for query, _, errors in engine.hooks.errors if query == "q" for seq in errors.rows.seq.array().tolist())
    return answers, [engine.account(name) for name in ("q", *TWINS)], [*(seq for _, _, seqs in late for seq in seqs), *failed]


@pytest.mark.parametrize("text", QUERIES)
@settings(max_examples=6, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(st.integers(0, 10_000), st.booleans(), st.sampled_from((None, 3)))
def test_answers_and_accounts_are_the_same_with_changes_of_plan_at_random_points(
    text: str, seed: int, sharing: bool, train: int | None
) -> None:
    stayed = played(text, seed, swaps=False, sharing=sharing, train=train)
    swapped = played(text, seed, swaps=True, sharing=sharing, train=train)
    assert swapped[0] == stayed[0]
    assert swapped[1] == stayed[1]
    assert sorted(swapped[2]) == sorted(stayed[2])


def test_the_old_plan_answers_the_rows_before_the_arrival_number_and_the_new_one_those_from_it_on() -> None:
    engine = Swapping(sharing=False)
    engine.begin(QUERIES[0])
    engine.put("s", [(1, 1, 5, "x"), (2, 1, 6, "x")])
    delta = engine.begin_swap(taken_apart(engine.logical["q"].root))
    engine.put("s", [(3, 1, 7, "x")])
    for operator in delta.query.operators[1:]:
        receipt = engine.run_order(Step(operator))
        assert not any(c.rows for s in receipt.each_step() for c in s.consumed)  # sealed until the old one is through
    assert engine.rows("q") == []
    engine.work()
    assert [row[1] for row in engine.rows("q")] == [5, 6]
    engine.end_swap(delta)
    engine.work()
    assert [row[1] for row in engine.rows("q")] == [5, 6, 7]


def test_a_change_of_plan_that_is_given_up_leaves_the_old_plan_at_work() -> None:
    engine = Swapping(sharing=True)
    engine.begin(QUERIES[1])
    engine.put("s", [(SECOND, 1, 5, "x")])
    delta = engine.begin_swap(taken_apart(engine.logical["q"].root))
    engine.put("s", [(2 * SECOND, 1, 6, "x")])
    engine.work()
    engine.network.handover(delta.query.id).give_up()
    engine.network.remove_query(delta.query.id)
    engine.put("s", [(3 * SECOND, 1, 7, "x")])
    engine.end()
    engine.work()
    assert engine.rows("q") == [(1, 3 * SECOND, 2, 11), (1, 6 * SECOND, 3, 18), (1, 9 * SECOND, 1, 7)]


def test_what_cannot_be_handed_over_is_refused_by_name() -> None:
    engine = Swapping(sharing=True)
    engine.begin(QUERIES[2])
    engine.select(QUERIES[2], "twin")
    with pytest.raises(Unsupported, match="serve other queries"):
        engine.begin_swap(engine.logical["q"].root)
    assert set(engine.network.queries) == {d.query.id for d in engine.deltas.values()}
    shed = Swapping(sharing=False)
    shed.begin(QUERIES[0])
    node = ClassNode(ClassId(1), "low", may_shed=True)
    shed.deltas["q"] = shed.network.add_query("q", physical_of(shed.logical["q"], shed.logical["q"].root), None, class_node=node)
    shed.network.attach(shed.deltas["q"].query.id)
    with pytest.raises(Unsupported, match="may be shed"):
        shed.begin_swap(shed.logical["q"].root, node)
    alone = Swapping(sharing=False)
    alone.begin(QUERIES[2])
    other = plan_select(QUERIES[3], alone.catalog).logical.root
    with pytest.raises(Unsupported, match="differ in operators that keep state"):
        alone.begin_swap(other)


def test_selections_are_ordered_by_what_they_drop_for_what_they_cost() -> None:
    engine = Swapping(sharing=False)
    engine.begin(QUERIES[0])
    root = taken_apart(engine.logical["q"].root)
    recipes = [n.recipe for n in _physical(physical_of(engine.logical["q"], root).root)]
    dear, good, poor = (r for r in recipes if isinstance(r, SelectRecipe))
    # (s - 1) / c: -0.5/100 = -0.005, -0.2/10 = -0.02, -0.01/10 = -0.001
    did = {
        dear: OperatorRecord(10_000, 5_000, 1_000_000),
        good: OperatorRecord(10_000, 8_000, 100_000),
        poor: OperatorRecord(10_000, 9_900, 100_000),
    }
    measured = Measured(did)
    found = next(one for one in alternatives(root, measured) if one.saving is not None)
    wanted = [good, dear, poor]
    order = [n.recipe for n in _physical(physical_of(engine.logical["q"], found.root).root) if n.recipe in wanted]
    assert order == wanted
    assert found.key == key_of(found.root)
    # 10 + 0.8 · 100 + 0.8 · 0.5 · 10
    assert expected_cost([did[r] for r in wanted]) == pytest.approx(94.0)
    assert alternatives(found.root, measured) == []


def test_a_join_with_a_table_that_drops_most_goes_before_one_that_drops_nothing_and_columns_stay_where_they_were() -> None:
    engine = Swapping(sharing=False)
    engine.begin("SELECT s.k, t.w, u.x FROM s JOIN t ON s.k = t.k JOIN u ON s.v = u.v")
    root = engine.logical["q"].root
    lookups = {"t": OperatorRecord(10_000, 10_000, 5_000_000), "u": OperatorRecord(10_000, 100, 5_000_000)}
    found = alternatives(root, Measured({}, lookups))
    assert [one.key for one in found] == ["join with u, join with t"]
    assert [a.name for a in found[0].root.attributes] == ["k", "w", "x"]
    engine.begin("SELECT s.k, t.w, u.x FROM s JOIN t ON s.k = t.k JOIN u ON t.w = u.v")  # u needs a column of t
    assert alternatives(engine.logical["q"].root, Measured({}, lookups)) == []


def test_too_few_rows_and_conditions_that_can_fail_change_nothing() -> None:
    engine = Swapping(sharing=False)
    engine.begin("SELECT v FROM s WHERE 10 / v > 1 AND name LIKE 'x%'")
    assert alternatives(engine.logical["q"].root, Measured()) == []
    engine.begin("SELECT v FROM s WHERE v > 1 AND k < 3")  # cheap ones are tested together
    assert alternatives(engine.logical["q"].root, Measured()) == []


def _physical(node: Any) -> list[Any]:
    return [one for ref in getattr(node, "inputs", ()) for one in _physical(ref.node)] + ([node] if hasattr(node, "recipe") else [])


def test_all_plans_in_this_file_have_something_to_reorder() -> None:
    engine = Swapping(sharing=False)
    for text in QUERIES:
        root = taken_apart(plan_select(text, engine.catalog).logical.root)
        runs = [len(run_below(n).steps) for n in walk_plan(root)]
        assert max(runs) >= 2, text
