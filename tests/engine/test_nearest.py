"""Guesses at a mistyped name: only within reach of a slip of the hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from millstream.engine.data import nearest
from millstream.engine.data.nearest import COMPARED_MAX, did_you_mean, slips, suggest
from millstream.engine.expressions.functions import callable_names

words = st.text(alphabet="abcd", max_size=6)


def test_a_mistyped_name_gets_its_nearest_kin() -> None:
    assert did_you_mean("packtes", ["packets", "rates"]) == "did you mean packets?"
    assert did_you_mean("zzz", ["packets"]) is None
    assert did_you_mean("GROUPED", ["ORDER BY", "GROUP BY"]) == "did you mean GROUP BY?"
    assert did_you_mean("order", ["ORDER BY", "over"]) == "did you mean ORDER BY?"


@pytest.mark.parametrize("word", ["crc32", "corr", "window", "gap_fill", "any", "x"])
def test_another_word_is_no_slip(word: str) -> None:
    assert suggest(word, callable_names()) is None


@given(words, words, st.integers(0, 4))
def test_slips_are_counted_like_by_the_definition(one: str, other: str, most: int) -> None:
    expected = by_definition(one, other)
    assert slips(one, other, most) == (expected if expected <= most else None)


def by_definition(one: str, other: str) -> int:
    if not one or not other:
        return len(one) + len(other)
    found = [by_definition(one[1:], other) + 1, by_definition(one, other[1:]) + 1, by_definition(one[1:], other[1:]) + (one[0] != other[0])]
    if one[:2] == other[1::-1] and len(one) > 1 and len(other) > 1:
        found.append(by_definition(one[2:], other[2:]) + 1)
    return min(found)


def test_a_mistyped_name_is_compared_with_few_of_many_and_a_long_one_with_none(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []
    real = nearest.slips

    def counted(word: str, name: str, most: int) -> int | None:
        compared.append(name)
        return real(word, name, most)

    monkeypatch.setattr(nearest, "slips", counted)
    known = [f"sensor_{i}" for i in range(5_000)] + ["prices"]
    assert suggest("prizes", known) == "prices"
    assert len(compared) == COMPARED_MAX
    assert suggest("sensor_4711x", known, compared_max=16) == "sensor_4711"
    assert len(compared) == COMPARED_MAX + 16
    assert suggest("n" * 900_000, known) is None
    assert suggest("x" * 129, ["x" * 128]) is None
    assert len(compared) == COMPARED_MAX + 16
