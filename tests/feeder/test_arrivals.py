from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from millstream.feeder.arrivals import ArrivalRule, Int64Array
from millstream.feeder.errors import RateError
from millstream.feeder.rates import NS_PER_S, UNIT, constant, parse_profile, unit_gaps


def all_at_once(rule: ArrivalRule, stream: int, rows: int) -> list[int]:
    return rule.at(stream, 0, rows, 0)[0].tolist()


@given(
    st.sampled_from(["poisson", "fixed"]),
    st.integers(1, 7),
    st.lists(st.integers(0, 30), min_size=1, max_size=6),
    st.sampled_from(["100/s", "40/s:150ms,80/s:50ms"]),
)
def test_arrivals_do_not_depend_on_how_rows_are_cut_into_blocks(kind: str, burst: int, cuts: list[int], profile: str) -> None:
    rates = constant(100) if ":" not in profile else parse_profile(profile)
    rule = ArrivalRule(kind, rates, seed=5, burst=burst)  # type: ignore[arg-type]
    firsts = np.concatenate(([0], np.cumsum(cuts)))[:-1].tolist()
    pieces: list[int] = []
    for first, rows, base in zip(firsts, cuts, rule.bases(3, firsts), strict=True):
        instants, after = rule.at(3, first, rows, base)
        pieces += instants.tolist()
        assert after == rule.bases(3, [first + rows])[0]
    assert pieces == all_at_once(rule, 3, sum(cuts))


def test_poisson_arrivals_are_the_sums_of_the_gaps() -> None:
    rule = ArrivalRule("poisson", constant(1000), seed=11)
    sums = np.cumsum(unit_gaps(11, 4, 0, 50))
    assert all_at_once(rule, 4, 50) == np.rint(sums * (NS_PER_S / (1000 * UNIT))).astype(int).tolist()


def test_poisson_arrivals_keep_the_rate() -> None:
    instants = all_at_once(ArrivalRule("poisson", constant(2000), seed=1), 0, 100_000)
    assert instants[-1] / NS_PER_S == pytest.approx(50, rel=4 / np.sqrt(100_000))


def test_poisson_arrivals_follow_a_profile_within_each_step() -> None:
    instants = np.array(all_at_once(ArrivalRule("poisson", parse_profile("1000/s:10s,3000/s:10s"), seed=2), 0, 40_000))
    counts = np.histogram(instants, bins=[0, 10 * NS_PER_S, 20 * NS_PER_S])[0]
    assert counts[0] == pytest.approx(10_000, abs=4 * 100)
    assert counts[1] == pytest.approx(30_000, abs=4 * 173)


def test_fixed_arrivals_are_evenly_spaced() -> None:
    assert all_at_once(ArrivalRule("fixed", constant(4)), 0, 4) == [NS_PER_S // 4 * i for i in (1, 2, 3, 4)]


def test_a_burst_arrives_at_one_instant_and_keeps_the_rate() -> None:
    instants = all_at_once(ArrivalRule("fixed", constant(10), burst=5), 0, 12)
    assert instants == [NS_PER_S // 2] * 5 + [NS_PER_S] * 5 + [NS_PER_S * 3 // 2] * 2
    poisson = all_at_once(ArrivalRule("poisson", constant(1000), burst=4, seed=3), 0, 40_000)
    assert len(set(poisson)) == 10_000
    assert poisson[-1] / NS_PER_S == pytest.approx(40, rel=4 / np.sqrt(10_000))


def test_a_share_makes_one_stream_slower_than_another() -> None:
    rule = ArrivalRule("fixed", constant(100), shares=(1.0, 0.25))
    assert all_at_once(rule, 1, 3) == [NS_PER_S * i // 25 for i in (1, 2, 3)]
    assert all_at_once(rule, 0, 1) == [NS_PER_S // 100]
    assert rule.rate_at(0, 2) == 125
    assert ArrivalRule("fixed", constant(100)).rate_at(0, 2) == 200
    assert ArrivalRule("max").rate_at(0, 2) == 0


def recorded(rule: ArrivalRule, times: list[int], base_us: int = -(2**63)) -> tuple[Int64Array, int]:
    return rule.recorded(np.array(times, dtype=np.int64), 1_000_000, base_us)


def test_original_arrivals_keep_the_recorded_distances_sped_up() -> None:
    instants, latest = recorded(ArrivalRule("original", speed=2), [1_000_000, 1_000_500, 3_000_000])
    assert instants.tolist() == [0, 250_000, NS_PER_S]
    assert latest == 3_000_000


def test_a_row_recorded_out_of_order_arrives_with_the_one_before_it() -> None:
    rule = ArrivalRule("original")
    instants, latest = recorded(rule, [2_000_000, 1_500_000, 4_000_000])
    assert instants.tolist() == [NS_PER_S, NS_PER_S, 3 * NS_PER_S]
    assert recorded(rule, [3_000_000], latest)[0].tolist() == [3 * NS_PER_S]


def test_without_a_rate_rows_come_in_the_order_of_their_numbers() -> None:
    assert ArrivalRule("max").at(0, 7, 3, 0)[0].tolist() == [7, 8, 9]


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: ArrivalRule("poisson"), "need a rate"),
        (lambda: ArrivalRule("fixed", constant(1), burst=0), "at least one row"),
        (lambda: ArrivalRule("original", speed=0), "above 0"),
        (lambda: ArrivalRule("fixed", constant(1), shares=(1.0, 0.0)), "above 0"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(make: object, complaint: str) -> None:
    with pytest.raises(RateError, match=complaint):
        make()  # type: ignore[operator]
