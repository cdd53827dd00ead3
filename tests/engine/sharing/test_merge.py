"""What a new query uses of what runs, what it takes away when it leaves, and what a synopsis holds."""

from __future__ import annotations

import pytest
from millstream.engine.data.errors import SharingLost, Unsupported
from millstream.engine.data.graph import ClassId, ClassNode
from millstream.engine.data.types import BIGINT, BOOLEAN
from millstream.engine.expressions.ir import Call, ColumnRef, Expression, Literal
from millstream.engine.plan.plan import plan_select
from millstream.engine.runtime.bill import bills, divided
from millstream.engine.sharing.containment import implies, normal_expression
from millstream.engine.synopses.shared_aggregate import SharedAggregate

from tests.support.engine_run import SECOND, SqlEngine

STREAM = "CREATE STREAM s (ts TIMESTAMP, k BIGINT, v BIGINT, x DOUBLE) TIMESTAMP BY ts"
WINDOWED = "SELECT k, {} AS answer FROM s [RANGE {} SECONDS SLIDE {} SECONDS] {} GROUP BY k"


def engine_with(*queries: str) -> SqlEngine:
    engine = SqlEngine(STREAM, sharing=True)
    for number, text in enumerate(queries):
        engine.select(text, f"q{number}")
    return engine


def kinds(engine: SqlEngine) -> list[str]:
    """Return the kinds of the running operators, sinks left out."""
    names = (type(o.recipe).__name__.removesuffix("Recipe").lower() for o in engine.network.operators.values())
    return sorted(n for n in names if n != "sink")


def test_equal_filters_run_once_whatever_the_order_of_conditions_operands_and_names() -> None:
    engine = engine_with(
        "SELECT v AS a FROM s WHERE v > 3 AND k = 1",
        "SELECT v AS b FROM s WHERE 1 = k AND 3 < v",
        "SELECT t.v FROM s AS t WHERE (k = 1) AND (v > 3)",
    )
    assert kinds(engine) == ["project", "select"]


def test_a_stricter_filter_stands_on_the_looser_one() -> None:
    engine = engine_with("SELECT * FROM s WHERE v > 3", "SELECT * FROM s WHERE v > 6", "SELECT * FROM s WHERE k = 2 AND v > 3")
    assert kinds(engine) == ["select", "select", "select"]
    others = [o for o in engine.network.operators.values() if type(o.recipe).__name__ == "SelectRecipe"]
    first = others.pop(0)
    assert [o.inputs[0].log for o in others] == [first.outputs[0]] * 2
    engine.put("s", [(i * SECOND, i % 3, i, 0.5) for i in range(10)])
    engine.work()
    assert [r[2] for r in engine.rows("q1")] == [7, 8, 9]
    assert [r[2] for r in engine.rows("q2")] == [5, 8]


def test_a_narrower_projection_reads_the_wider_one() -> None:
    engine = engine_with("SELECT x * 2e0 AS d, x + 1e0 AS e, v FROM s", "SELECT x + 1e0 AS e FROM s")
    wider, narrower = (o for o in engine.network.operators.values() if type(o.recipe).__name__ == "ProjectRecipe")
    assert narrower.inputs[0].log is wider.outputs[0]


def test_expressions_that_can_fail_are_not_computed_for_others() -> None:
    engine = engine_with("SELECT k FROM s WHERE 10 / v > 1", "SELECT k FROM s WHERE 10 / v > 1 AND k = 1")
    engine.put("s", [(0, 2, 0, 0.5)])
    engine.work()
    assert engine.account("q0")["s"].failed == engine.account("q1")["s"].failed == 1


def test_windows_of_all_lengths_slides_and_aggregates_share_one_synopsis() -> None:
    engine = engine_with(
        WINDOWED.format("COUNT(*)", 10, 5, ""),
        WINDOWED.format("AVG(x)", 6, 2, ""),
        WINDOWED.format("MAX(v)", 30, 3, ""),
        WINDOWED.format("MAX(v)", 30, 3, "WHERE v > 3"),
    )
    assert kinds(engine) == ["aggregate", "aggregate", "select"]


def test_queries_of_different_classes_share_nothing() -> None:
    engine = engine_with(WINDOWED.format("COUNT(*)", 10, 5, ""))
    plan = plan_select(WINDOWED.format("COUNT(*)", 10, 5, ""), engine.catalog).physical
    delta = engine.network.add_query("gold", plan, None, class_node=ClassNode(ClassId(7), "gold", 2.0))
    engine.network.attach(delta.query.id)
    assert kinds(engine) == ["aggregate", "aggregate"]


def test_a_step_that_would_multiply_the_panes_keeps_a_query_apart() -> None:
    engine = engine_with(WINDOWED.format("COUNT(*)", 3600, 3600, ""), WINDOWED.format("COUNT(*)", 2, 1, ""))
    assert kinds(engine) == ["aggregate", "aggregate"]


def test_a_query_that_leaves_takes_away_only_what_nobody_else_needs() -> None:
    engine = engine_with("SELECT v FROM s WHERE v > 3", "SELECT k FROM s WHERE v > 3", WINDOWED.format("COUNT(*)", 10, 5, "WHERE v > 3"))
    before = set(engine.network.operators)
    engine.drop("q0")
    engine.drop("q2")
    assert kinds(engine) == ["project", "select"]
    assert set(engine.network.operators) < before
    engine.put("s", [(0, 1, 7, 0.5)])
    engine.work()
    assert engine.rows("q1") == [(1,)]
    engine.drop("q1")
    assert engine.network.operators == {}
    assert engine.network.sources["s"].log.cursors == {}


def test_an_operator_with_state_is_shared_only_until_a_row_has_reached_it() -> None:
    session = "SELECT k, COUNT(*) AS n FROM s [SESSION 2 SECONDS] GROUP BY k"
    engine = engine_with(session, session)
    shared = len(kinds(engine))
    engine.put("s", [(0, 1, 7, 0.5)])
    engine.select(session, "q2")
    assert len(kinds(engine)) > shared


def test_rows_that_come_between_planning_and_attaching_cost_a_query_its_share_not_its_answer() -> None:
    session = "SELECT k, COUNT(*) AS n FROM s [SESSION 2 SECONDS] GROUP BY k"
    engine = engine_with(session)
    plan = plan_select(session, engine.catalog).physical
    delta = engine.network.add_query("late", plan, None)
    engine.put("s", [(0, 1, 7, 0.5)])
    with pytest.raises(SharingLost):
        engine.network.attach(delta.query.id)
    engine.network.remove_query(delta.query.id)
    engine.results["late"] = []
    delta = engine.deltas["late"] = engine.network.add_query("late", plan, engine.results["late"].append, share_state=False)
    engine.network.attach(delta.query.id)
    engine.put("s", [(SECOND, 1, 7, 0.5)])
    engine.end()
    engine.work()
    assert (engine.rows("q0"), engine.rows("late")) == ([(1, 2)], [(1, 1)])


def test_a_held_query_gets_its_answers_when_it_is_let_go_and_others_do_not_wait() -> None:
    engine = engine_with(WINDOWED.format("COUNT(*)", 2, 2, ""), WINDOWED.format("COUNT(*)", 2, 2, ""))
    engine.network.hold(engine.deltas["q0"].query.id, True)
    held = engine.deltas.pop("q0")
    engine.put("s", [(i * SECOND, 0, i, 0.5) for i in range(5)])
    engine.work()
    assert (engine.rows("q0"), engine.rows("q1")) == ([], [(0, 2), (0, 2)])
    engine.network.hold(held.query.id, False)
    engine.deltas["q0"] = held
    engine.put("s", [(6 * SECOND, 0, 1, 0.5)])
    engine.work()
    assert engine.rows("q0") == engine.rows("q1") == [(0, 2), (0, 2), (0, 1)]


def test_the_state_of_a_synopsis_is_panes_by_groups_however_many_rows_and_queries() -> None:
    engine = engine_with(*(WINDOWED.format(a, 20, s, "") for a in ("COUNT(*)", "SUM(v)", "MIN(x)") for s in (2, 4, 10)))
    (logic,) = (o.logic for o in engine.network.operators.values() if isinstance(o.logic, SharedAggregate))
    sizes = []
    for batch in range(8):
        engine.put("s", [((batch * 10_000 + i) * SECOND // 1000, i % 4, i, 0.5) for i in range(10_000)])
        engine.work()
        sizes.append(logic.state_bytes())
        assert logic.state_rows() <= (20 // 2 + 1) * 4
    assert sizes[-1] == sizes[3]


def test_the_synopsis_shrinks_when_the_longest_window_leaves() -> None:
    engine = engine_with(WINDOWED.format("COUNT(*)", 4, 2, ""), WINDOWED.format("SUM(v)", 40, 2, ""))
    (logic,) = (o.logic for o in engine.network.operators.values() if isinstance(o.logic, SharedAggregate))
    engine.put("s", [(i * SECOND, 0, i, 0.5) for i in range(60)])
    engine.work()
    assert logic.state_rows() >= 20
    engine.drop("q1")
    assert logic.state_rows() <= 3
    assert logic.kept_us() == 4 * SECOND


def test_a_late_joiner_answers_from_its_own_rows_and_says_from_when_it_is_complete() -> None:
    engine = engine_with(WINDOWED.format("COUNT(*)", 10, 5, ""))
    engine.put("s", [(i * SECOND, 0, i, 0.5) for i in range(8)])
    engine.select(WINDOWED.format("COUNT(*)", 10, 5, ""), "late")
    engine.put("s", [(i * SECOND, 0, i, 0.5) for i in range(8, 22)])
    engine.work()
    assert [n for _, n in engine.rows("q0")] == [5, 10, 10, 10]
    assert [n for _, n in engine.rows("late")] == [2, 7, 10]
    (_, (part,)) = bills(engine.network)[1]
    assert part.complete_from_us == 10 * SECOND


HELD = " WITH (history = 'held')"


def answers_from_held(query: str, *running: str) -> list[int]:
    """Return what a query with history = 'held' that comes after eight rows answers of 22."""
    engine = engine_with(*running)
    engine.put("s", [(i * SECOND, 0, i, 0.5) for i in range(8)])
    engine.work()
    engine.select(query + HELD, "late")
    engine.put("s", [(i * SECOND, 0, i, 0.5) for i in range(8, 22)])
    engine.work()
    return [row[-1] for row in engine.rows("late")]


def test_a_query_that_asks_for_what_is_held_begins_with_windows_that_began_before_it() -> None:
    count = WINDOWED.format("COUNT(*)", 10, 5, "")
    assert answers_from_held(count) == [10]
    assert answers_from_held(count, WINDOWED.format("SUM(v)", 20, 5, "")) == [10, 10, 10]
    assert answers_from_held(WINDOWED.format("COUNT(*)", 5, 5, ""), WINDOWED.format("SUM(v)", 20, 5, "")) == [5, 5, 5]


def test_an_average_begins_from_a_held_sum_and_a_minimum_does_not() -> None:
    running = WINDOWED.format("SUM(v)", 20, 5, "")
    assert answers_from_held(WINDOWED.format("AVG(v)", 10, 5, ""), running) == [4.5, 9.5, 14.5]
    assert answers_from_held(WINDOWED.format("MIN(v)", 10, 5, ""), running) == [10]
    assert answers_from_held(WINDOWED.format("AVG(v)", 10, 5, ""), running.replace("SUM(v)", "SUM(v) FILTER (WHERE k = 0)")) == [14.5]


def test_the_order_of_keys_is_no_reason_to_do_work_twice() -> None:
    by = "SELECT {}, COUNT(*) AS n FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY {}"
    engine = engine_with(by.format("k, v", "k, v"), by.format("v, k", "v, k"), by.format("k, v", "v, k"))
    engine.put("s", [(i * SECOND, i % 2, i % 3, 0.5) for i in range(9)])
    engine.work()
    assert kinds(engine).count("aggregate") == 1
    one, two, three = (engine.rows(name) for name in ("q0", "q1", "q2"))
    assert one == three == [(k, v, n) for v, k, n in two]
    assert len(one) > 8


def test_emit_empty_shares_and_says_so_when_it_skips_a_gap() -> None:
    every = "SELECT window_end, COUNT(*) AS n FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS]"
    engine = engine_with(every, every + " EMIT EMPTY")
    engine.put("s", [(0, 0, 1, 0.5), (9 * SECOND, 0, 1, 0.5), (40_000 * SECOND, 0, 1, 0.5)])
    engine.work()
    assert kinds(engine).count("aggregate") == 1
    engine.end()
    engine.work()
    assert [(end // SECOND, n) for end, n in engine.rows("q0")] == [(2, 1), (4, 1), (10, 1), (12, 1), (40_002, 1), (40_004, 1)]
    empty = [(end // SECOND, n) for end, n in engine.rows("q1")]
    assert empty[:7] == [(2, 1), (4, 1), (6, 0), (8, 0), (10, 1), (12, 1), (14, 0)]
    assert sum(n == 0 for _, n in empty) == 10_002
    assert empty[-2:] == [(40_002, 1), (40_004, 1)]
    notes = [train.notes for train in engine.results["q1"] if train.notes]
    assert notes[-1]["gap"]["empty_windows"] == (40_000 - 12) // 2 - 10_000


def test_percentiles_and_distinct_counts_of_a_column_are_read_off_one_lot_of_values() -> None:
    median, ninth = (f"PERCENTILE_DISC(v, {p})" for p in (0.5, 0.9))
    engine = engine_with(WINDOWED.format(median, 20, 5, ""))
    engine.put("s", [(i * SECOND, 0, i, 0.5) for i in range(8)])
    engine.work()
    (logic,) = (o.logic for o in engine.network.operators.values() if isinstance(o.logic, SharedAggregate))
    before = logic.state_bytes()
    engine.select(WINDOWED.format(ninth, 20, 5, ""), "ninth")
    engine.select(WINDOWED.format("COUNT(DISTINCT v)", 20, 5, ""), "different")
    assert logic.state_bytes() == before
    assert answers_from_held(WINDOWED.format("COUNT(DISTINCT v)", 10, 5, ""), WINDOWED.format(median, 20, 5, "")) == [10, 10, 10]


def test_held_panes_that_would_cut_the_windows_are_not_read() -> None:
    running = WINDOWED.format("COUNT(*)", 20, 10, "")
    assert answers_from_held(WINDOWED.format("COUNT(*)", 5, 5, ""), running) == [5, 5]
    assert answers_from_held(WINDOWED.format("COUNT(*)", 10, 10, ""), running) == [10, 10]


def test_what_was_dropped_for_the_others_is_not_held() -> None:
    engine = engine_with(WINDOWED.format("COUNT(*)", 5, 5, ""))
    engine.put("s", [(i * SECOND, 0, i, 0.5) for i in range(13)])
    engine.work()
    engine.select(WINDOWED.format("COUNT(*)", 10, 5, "") + HELD, "late")
    engine.put("s", [(i * SECOND, 0, i, 0.5) for i in range(13, 26)])
    engine.work()
    assert [row[-1] for row in engine.rows("late")] == [10, 10]
    (_, (part,)) = bills(engine.network)[1]
    assert part.complete_from_us == 10 * SECOND


@pytest.mark.parametrize(
    "text",
    [
        "SELECT v FROM s",
        "SELECT COUNT(*) AS n FROM s [RANGE 5 SECONDS]",
        "SELECT COUNT(*) AS n FROM s [RANGE 5 SECONDS SLIDE 5 SECONDS] EMIT EMPTY",
        "SELECT COUNT(*) AS n FROM s [RANGE 5 SECONDS SLIDE 5 SECONDS] EMIT EVERY 1 SECOND",
        "SELECT COUNT(*) AS n FROM s [SESSION 5 SECONDS]",
        "SELECT COUNT(*) AS n FROM (SELECT a.v FROM s AS a JOIN s AS b ON a.k = b.k WITHIN 1 SECOND) [RANGE 5 SECONDS SLIDE 5 SECONDS] t",
    ],
)
def test_history_is_refused_where_nothing_can_be_said_of_it(text: str) -> None:
    with pytest.raises(Unsupported, match="history = 'held' is not for this query"):
        engine_with().select(text + HELD)


def test_the_bills_sum_to_what_all_operators_used() -> None:
    engine = engine_with(WINDOWED.format("COUNT(*)", 10, 5, ""), WINDOWED.format("SUM(v)", 10, 2, ""), "SELECT v FROM s WHERE v > 3")
    engine.put("s", [(i * SECOND, 0, i, 0.5) for i in range(40)])
    engine.work()
    used = sum(o.statistics.cost_ns for o in engine.network.operators.values())
    held = sum(o.logic.state_bytes() for o in engine.network.operators.values())
    assert sum(bill.cpu_ns for bill, _ in bills(engine.network)) == used > 0
    assert sum(bill.state_bytes for bill, _ in bills(engine.network)) == held > 0
    engine.drop("q1")
    engine.put("s", [(i * SECOND, 0, i, 0.5) for i in range(40, 60)])
    engine.work()
    used = sum(o.statistics.cost_ns for o in engine.network.operators.values())
    assert sum(bill.cpu_ns for bill, _ in bills(engine.network)) == used


def let_shared_work_cost(engine: SqlEngine, cost_ns: int) -> None:
    """Put what operators cost in the place of what was measured by a clock of calls."""
    for running in engine.network.operators.values():
        running.statistics.cost_ns = cost_ns if running.queries > 1 else 0


def test_who_reads_more_panes_and_answers_more_windows_is_billed_more() -> None:
    engine = engine_with(
        WINDOWED.format("COUNT(*)", 40, 2, ""), WINDOWED.format("COUNT(*)", 4, 2, ""), WINDOWED.format("COUNT(*)", 40, 20, "")
    )
    engine.put("s", [(i * SECOND, 0, i, 0.5) for i in range(100)])
    engine.work()
    let_shared_work_cost(engine, 1_000_000)
    often, short, seldom = (bill for bill, _ in bills(engine.network))
    assert often.cpu_ns > 5 * short.cpu_ns
    assert often.cpu_ns > 5 * seldom.cpu_ns
    assert often.state_bytes > 5 * short.state_bytes
    assert abs(often.state_bytes - seldom.state_bytes) <= seldom.state_bytes // 2


def test_a_query_is_not_billed_the_rows_of_before_it_came() -> None:
    engine = engine_with("SELECT v FROM s WHERE v > 3")
    engine.put("s", [(i * SECOND, 0, i, 0.5) for i in range(100)])
    engine.work()
    engine.select("SELECT v FROM s WHERE v > 3", "late")
    engine.put("s", [(i * SECOND, 0, i, 0.5) for i in range(100, 110)])
    engine.work()
    let_shared_work_cost(engine, 1_000_000)
    first, late = (bill for bill, _ in bills(engine.network))
    assert late.cpu_unshared_ns > 3 * late.cpu_ns
    assert first.cpu_ns > 3 * late.cpu_ns


@pytest.mark.parametrize(("whole", "weights"), [(10, [1, 1, 1]), (7, [0, 0]), (5, [0, 3, 4]), (0, [2]), (9, [])])
def test_parts_of_a_bill_sum_to_the_whole(whole: int, weights: list[int]) -> None:
    parts = divided(whole, weights)
    assert sum(parts) == (whole if weights else 0)
    assert all(part == 0 for part, weight in zip(parts, weights, strict=True) if weight == 0 and any(weights))


def comparison(function: str, value: int, *, turned: bool = False) -> Expression:
    column, constant = ColumnRef(BIGINT, 0, "v"), Literal(BIGINT, value)
    return normal_expression(Call(BOOLEAN, function, (constant, column) if turned else (column, constant)))


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (("<", 5), ("<", 10), True),
        (("<", 10), ("<", 5), False),
        (("<", 5), ("<=", 5), True),
        (("<=", 5), ("<", 5), False),
        ((">", 10), (">", 5), True),
        ((">=", 10), (">", 10), False),
        (("=", 7), (">", 5), True),
        (("=", 7), ("<", 7), False),
        (("<", 5), (">", 1), False),
    ],
)
def test_a_comparison_implies_a_looser_one(first: tuple[str, int], second: tuple[str, int], expected: bool) -> None:
    assert implies(comparison(*first), comparison(*second)) is expected


def test_a_comparison_turned_round_is_the_same() -> None:
    assert comparison(">", 3) == comparison("<", 3, turned=True)
