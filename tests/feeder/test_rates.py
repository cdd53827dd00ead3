from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from millstream.feeder.errors import RateError
from millstream.feeder.rates import NS_PER_S, UNIT, Profile, Step, constant, parse_duration_ns, parse_profile, parse_rate


@pytest.mark.parametrize(
    ("text", "rate"),
    [("500", 500), ("500/s", 500), ("2.5k/s", 2500), (" 90 / min ", 1.5), ("1M/s", 1e6), ("3/ms", 3000), ("7200/h", 2), ("1e3/s", 1000)],
)
def test_a_rate_is_read_in_rows_per_second(text: str, rate: float) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "fast", "-5/s", "10/fortnight", "10//s", "1,000/s"])
def test_what_is_no_rate_is_refused_by_name(text: str) -> None:
    with pytest.raises(RateError, match="cannot read the rate"):
        parse_rate(text)


@pytest.mark.parametrize(("text", "ns"), [("150s", 150 * NS_PER_S), ("250 ms", 250_000_000), ("1.5m", 90 * NS_PER_S), ("7ns", 7)])
def test_a_duration_is_read_in_nanoseconds(text: str, ns: int) -> None:
    assert parse_duration_ns(text) == ns


@pytest.mark.parametrize("text", ["10", "s", "0s", "-1s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(RateError, match="duration"):
        parse_duration_ns(text)


def test_a_constant_rate_spaces_whole_rows_evenly() -> None:
    units = np.arange(1, 5, dtype=np.int64) * UNIT
    assert constant(4).instants_ns(units).tolist() == [250_000_000, 500_000_000, 750_000_000, NS_PER_S]


def test_a_profile_changes_its_rate_at_the_steps_and_repeats() -> None:
    profile = parse_profile("2/s:1s,4/s:1s")
    rows = np.arange(1, 13, dtype=np.int64) * UNIT
    halves = [0.5, 1.0, 1.25, 1.5, 1.75, 2.0]
    assert (profile.instants_ns(rows) / NS_PER_S).tolist() == [*halves, *(2 + at for at in halves)]


def test_a_step_of_rate_zero_is_a_pause() -> None:
    profile = parse_profile("1/s:2s,0/s:10s,1/s:1s")
    rows = np.arange(1, 5, dtype=np.int64) * UNIT
    assert (profile.instants_ns(rows) / NS_PER_S).tolist() == [1, 2, 13, 14]


def test_a_profile_may_begin_with_a_pause() -> None:
    profile = parse_profile("0/s:5s,1/s:2s")
    points = np.array([UNIT // 2, UNIT, 2 * UNIT, 3 * UNIT], dtype=np.int64)
    assert (profile.instants_ns(points) / NS_PER_S).tolist() == [5.5, 6, 7, 13]


def test_what_lies_further_ahead_than_can_be_told_comes_last() -> None:
    profile = Profile((Step(0, 32_729), Step(0.3, 4)))
    assert profile.instants_ns(np.array([281_775_945_891_143])).tolist() == [2**62]
    assert constant(1e-12).instants_ns(np.array([1, 2**52])).tolist()[-1] == 2**62


@given(
    st.lists(st.tuples(st.sampled_from([0, 0.3, 1, 40, 80, 12_345]), st.integers(1, 10**11)), min_size=1, max_size=5),
    st.lists(st.integers(0, 2**52), min_size=1, max_size=50),
)
def test_more_rows_never_arrive_earlier(steps: list[tuple[float, int]], units: list[int]) -> None:
    if not any(round(rate * ns / NS_PER_S * UNIT) for rate, ns in steps):
        with pytest.raises(RateError):
            Profile(tuple(Step(rate, ns) for rate, ns in steps))
        return
    instants = Profile(tuple(Step(rate, ns) for rate, ns in steps)).instants_ns(np.sort(np.array(units, dtype=np.int64)))
    assert (np.diff(instants) >= 0).all()


def test_the_rate_asked_for_now_follows_the_profile() -> None:
    profile = parse_profile("40/s:150s,80/s:50s")
    asked = [profile.rate_at(seconds * NS_PER_S) for seconds in (0, 149, 150, 199, 200, 350)]
    assert asked == [40, 40, 80, 80, 40, 80]
    assert constant(7).rate_at(10**15) == 7


def test_a_profile_spells_itself_so_that_it_can_be_read_again() -> None:
    again = parse_profile(str(parse_profile("40/s:150s,0/s:1ms")))
    assert again.steps == parse_profile("40/s:150s,0/s:1ms").steps


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("40/s", "has no duration"), ("0/s:10s", "at least one step"), ("1M/s:10000d", "four billion"), ("40/s:150s,", "no duration")],
)
def test_a_profile_that_cannot_be_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(RateError, match=complaint):
        parse_profile(text)


def test_a_constant_rate_of_nothing_is_refused() -> None:
    with pytest.raises(RateError, match="above 0"):
        constant(0)
