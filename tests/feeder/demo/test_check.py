"""The comparison must be able to fail: each kind of difference is told."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from millstream.feeder.demo.check import Oracle, compare, settle
from millstream.feeder.demo.queries import QUERIES


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    found = Oracle()
    yield found
    found.close()


def test_bags_are_equal_in_any_order_and_spelling() -> None:
    instant = dt.datetime(2013, 2, 1, tzinfo=dt.UTC)
    given = [("b", None, Decimal("12")), ("a", instant, 0.1 + 0.2)]
    true = [("a", 1_359_676_800_000_000, 0.3), ("b", None, 12)]
    assert compare(given, true).equal


@pytest.mark.parametrize(
    ("given", "true", "said"),
    [
        ([("a", 1)], [("a", 1), ("a", 1)], "1 rows instead of 2"),
        ([("a", 1)], [("a", 2)], r"\(a, 1\) instead of \(a, 2\)"),
        ([("a", None)], [("a", 0.5)], r"\(a, NULL\) instead of \(a, 0.5\)"),
        ([("a", 0.5 + 1e-6)], [("a", 0.5)], "instead of"),
        ([("a", math.nan)], [("a", 0.5)], "instead of"),
        ([("a",)], [("a", 1)], "instead of"),
        ([], [("a", 1)], "0 rows instead of 1"),
    ],
)
def test_a_difference_is_told(given: list[Any], true: list[Any], said: str) -> None:
    import re

    verdict = compare(given, true)
    assert not verdict.equal
    assert re.search(said, verdict.differences[0])


def test_rows_that_differ_in_a_last_bit_only_find_each_other() -> None:
    rows = [("k", i / 7, i) for i in range(100)]
    assert compare([(key, value * (1 + 2e-16), number) for key, value, number in rows], reversed(rows)).equal


def test_a_change_log_sums_up_to_what_is_left() -> None:
    log = [("+", "a", 1), ("-", "a", 1), ("+", "a", 2), ("+", "b", 5)]
    assert sorted(settle(log)) == [("a", 2), ("b", 5)]
    assert settle([("-", "a", 1)]) == [("-", "a", 1)]


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.name)
def test_the_true_answer_of_each_question_has_rows(oracle: Oracle, query: Any) -> None:
    rows = oracle.answer(query)
    assert rows
    assert compare(rows, rows).equal
    assert not compare(rows[1:], rows).equal


def test_the_session_truth_agrees_with_a_walk_over_the_rows(oracle: Oracle) -> None:
    gap_us = 12 * 3_600 * 1_000_000
    spells: dict[Any, list[list[int]]] = {}
    for tailnum, us in oracle._connection.execute("SELECT tailnum, us FROM departures ORDER BY us, seq").fetchall():
        mine = spells.setdefault(tailnum, [])
        if not mine or us - mine[-1][1] >= gap_us:
            mine.append([us, us, 0])
        mine[-1][1] = us
        mine[-1][2] += 1
    walked = [(tailnum, first, last + gap_us, count) for tailnum, found in spells.items() for first, last, count in found]
    (planes,) = [query for query in QUERIES if query.name == "planes"]
    assert compare(oracle.answer(planes), walked).equal
