"""The bound in time that a join condition implies, against evaluating the condition on every pair of times."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from millstream.engine.data.errors import InvalidDefinition
from millstream.engine.language.recipes import JoinRecipe
from millstream.engine.plan.physical import PhysicalNode, SourceNode

from tests.support.plans import make_catalog, plan

COMPARE: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
}
S = 1_000_000
CATALOG = make_catalog()


def join_of(text: str) -> JoinRecipe:
    pending: list[PhysicalNode | SourceNode] = [plan(text, catalog=CATALOG).physical.root]
    while pending:
        node = pending.pop()
        if isinstance(node, PhysicalNode):
            if isinstance(node.recipe, JoinRecipe):
                return node.recipe
            pending += [ref.node for ref in node.inputs]
    raise AssertionError("no join")


def in_bound(join: JoinRecipe, left: int, right: int) -> bool:
    difference = right - left
    return (join.lower_us is None or join.lower_us <= difference) and (join.upper_us is None or difference <= join.upper_us)


@given(
    st.sampled_from(sorted(COMPARE)),
    st.integers(-3, 3),
    st.integers(-3, 3),
    st.booleans(),
    st.integers(-8, 8),
    st.sampled_from([-1, 0, 1]),
)
def test_an_inequality_is_the_bound_that_it_says(sign: str, a: int, b: int, flip: bool, difference_s: int, step_us: int) -> None:
    left, right = f"s.ts + INTERVAL '{a}' SECOND", f"r.ts - INTERVAL '{b}' SECOND"
    condition = f"{right} {sign} {left}" if flip else f"{left} {sign} {right}"
    join = join_of(f"SELECT s.k FROM s JOIN r ON s.k = r.k AND {condition}")
    at = difference_s * S + step_us
    sides = (a * S, at - b * S)
    expected = COMPARE[sign](*reversed(sides)) if flip else COMPARE[sign](*sides)
    assert in_bound(join, 0, at) == expected
    assert join.residual is None


@pytest.mark.parametrize(
    ("condition", "lower", "upper"),
    [
        ("r.ts BETWEEN s.ts - INTERVAL '5' SECOND AND s.ts + 2 SECONDS", -5 * S, 2 * S),
        ("s.ts BETWEEN r.ts - INTERVAL '5' SECOND AND r.ts", 0, 5 * S),
        ("r.ts - s.ts <= INTERVAL '5' SECOND AND r.ts >= s.ts", 0, 5 * S),
        ("r.ts - s.ts BETWEEN INTERVAL '1' SECOND AND INTERVAL '1' SECOND * 3", S, 3 * S),
        ("r.ts > s.ts", 1, None),
        ("r.ts <= s.ts", None, 0),
    ],
)
def test_the_spellings_of_a_bound(condition: str, lower: int | None, upper: int | None) -> None:
    join = join_of(f"SELECT s.k FROM s JOIN r ON s.k = r.k AND {condition}")
    assert (join.lower_us, join.upper_us, join.residual) == (lower, upper, None)


def test_within_and_inequalities_meet() -> None:
    join = join_of("SELECT s.k FROM s JOIN r ON s.k = r.k AND r.ts >= s.ts WITHIN 5 SECONDS")
    assert (join.lower_us, join.upper_us) == (0, 5 * S)


def test_sliding_windows_bound_by_the_older_row_and_leave_the_edge_out() -> None:
    join = join_of("SELECT s.k FROM s [RANGE 10 SECONDS] JOIN r [RANGE 5 SECONDS] ON s.k = r.k")
    assert (join.lower_us, join.upper_us) == (-5 * S + 1, 10 * S - 1)
    now = join_of("SELECT s.k FROM s [NOW] JOIN r [RANGE 5 SECONDS] ON s.k = r.k")
    assert (now.lower_us, now.upper_us) == (-5 * S + 1, 0)
    half = join_of("SELECT s.k FROM s [UNBOUNDED] JOIN r [RANGE 5 SECONDS] ON s.k = r.k")
    assert (half.lower_us, half.upper_us) == (-5 * S + 1, None)


def test_integer_time_columns_count_in_their_unit() -> None:
    join = join_of("SELECT a.k FROM m a JOIN m b ON a.k = b.k AND b.t > a.t AND b.t - a.t <= 250")
    assert (join.lower_us, join.upper_us, join.residual) == (1_000, 250_000, None)


def test_a_bound_on_an_earlier_join_is_widened_and_checked_on_the_columns() -> None:
    join = join_of(
        "SELECT a.k FROM s a JOIN s b ON a.k = b.k WITHIN 5 SECONDS "
        "JOIN r c ON c.k = a.k AND c.ts BETWEEN a.ts AND a.ts + INTERVAL '2' SECOND"
    )
    # The joined row's time is the later of a.ts and b.ts, so a.ts lies at most 5 s before it.
    assert (join.lower_us, join.upper_us) == (-5 * S, 2 * S)
    assert join.residual is not None


def test_the_time_of_the_padded_side_is_checked_as_it_may_be_null() -> None:
    join = join_of("SELECT a.k FROM s a LEFT JOIN s b ON a.k = b.k AND a.ts = b.ts JOIN r c ON c.k = a.k AND c.ts = b.ts")
    assert join.residual is not None or len(join.left_keys) == 2


@given(st.integers(0, 6), st.integers(0, 6), st.integers(0, 6), st.integers(0, 6), st.integers(0, 3))
def test_a_widened_bound_never_loses_a_pair(a: int, b: int, c: int, width: int, within: int) -> None:
    join = join_of(
        f"SELECT a.k FROM s a JOIN s b ON a.k = b.k WITHIN {within} SECONDS "
        f"JOIN r c ON c.k = a.k AND c.ts >= b.ts AND c.ts <= a.ts + INTERVAL '{width}' SECOND"
    )
    if abs(a - b) <= within and b <= c <= a + width:
        assert in_bound(join, max(a, b) * S, c * S)


def test_a_condition_without_a_bound_is_refused() -> None:
    for condition in ("s.k = r.k", "s.k = r.k OR r.ts > s.ts", "s.k = r.k AND r.ts <> s.ts", "s.k = r.k AND r.ts > '2024-01-01'"):
        with pytest.raises(InvalidDefinition, match="needs a bound in time"):
            join_of(f"SELECT s.k FROM s JOIN r ON {condition}")


def test_the_bounds_of_hopping_windows_lie_within_their_size_of_the_row() -> None:
    join = join_of(
        "SELECT x.k FROM (SELECT k, window_end AS e FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS]) x JOIN r ON x.k = r.k AND r.ts = x.e"
    )
    # e lies 1 µs to 10 s after the row, and the equality itself stays a key.
    assert (join.lower_us, join.upper_us, len(join.left_keys)) == (1, 10 * S, 2)


def test_a_join_has_no_bound_where_both_streams_say_so() -> None:
    join = join_of("SELECT s.k FROM s [UNBOUNDED] JOIN r [UNBOUNDED] ON s.k = r.k")
    assert (join.lower_us, join.upper_us) == (None, None)
    for windows in ("[UNBOUNDED] {} ", "{} [UNBOUNDED]", "[UNBOUNDED STATE 10 ROWS] {} [UNBOUNDED]"):
        with pytest.raises(InvalidDefinition, match="needs a bound in time"):
            join_of(f"SELECT s.k FROM s {windows.format('JOIN r')} ON s.k = r.k")
