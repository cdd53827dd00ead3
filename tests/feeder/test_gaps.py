from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from millstream.feeder.rates import UNIT, stream_key, sum_of_gaps, uniforms, unit_gaps

GAPS = 100_000


def test_a_gap_is_a_function_of_seed_stream_and_number_alone() -> None:
    whole = unit_gaps(7, 2, 0, 1_000)
    for start, stop in [(0, 1), (1, 10), (999, 1_000), (123, 789), (500, 500)]:
        assert unit_gaps(7, 2, start, stop).tolist() == whole[start:stop].tolist()


def test_the_first_gaps_are_these_and_stay_these() -> None:
    # Computed once with Python's own integers and math.log; a change here changes every recorded experiment.
    assert unit_gaps(0, 0, 0, 4).tolist() == [by_hand(0, 0, i) for i in range(4)]
    assert unit_gaps(2013, 5, 10, 12).tolist() == [by_hand(2013, 5, i) for i in (10, 11)]


def by_hand(seed: int, stream: int, number: int) -> int:
    """The definition in plain Python: SplitMix64's finalizer on a counter."""
    import math

    mask = 2**64 - 1

    def mix(value: int) -> int:
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & mask
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & mask
        return value ^ (value >> 31)

    golden = 0x9E3779B97F4A7C15
    key = mix(mix(seed) ^ mix((stream + 1) * golden & mask))
    bits = mix((key + (number + 1) * golden) & mask) >> 11
    return round(-math.log((bits + 0.5) * 2.0**-53) * UNIT)


@given(st.integers(0, 2**63), st.integers(0, 1_000), st.integers(0, 2**40))
def test_gaps_are_positive_and_below_forty_means(seed: int, stream: int, start: int) -> None:
    gaps = unit_gaps(seed, stream, start, start + 50)
    assert (gaps >= 0).all()
    assert (gaps < 40 * UNIT).all()


def test_the_sum_over_any_cut_is_the_same() -> None:
    whole = sum_of_gaps(3, 1, 0, 200_000)
    assert whole == int(unit_gaps(3, 1, 0, 200_000).sum())
    assert whole == sum_of_gaps(3, 1, 0, 77_777) + sum_of_gaps(3, 1, 77_777, 200_000)


def test_gaps_are_exponential_by_kolmogorov_and_smirnov() -> None:
    gaps = np.sort(unit_gaps(1, 0, 0, GAPS)) / UNIT
    expected = 1 - np.exp(-gaps)
    ranks = np.arange(1, GAPS + 1) / GAPS
    distance = max(np.abs(expected - ranks).max(), np.abs(expected - (ranks - 1 / GAPS)).max())
    assert distance * np.sqrt(GAPS) < 1.63  # the 1% point of the Kolmogorov distribution
    # The same statistic tells a uniform law of the same mean apart, so the test can fail.
    wrong = np.abs(gaps / 2 - ranks)[gaps < 2].max()
    assert wrong * np.sqrt(GAPS) > 10


@pytest.mark.parametrize("seed", [0, 1, 42, 2**63])
def test_counts_per_interval_have_an_index_of_dispersion_near_one(seed: int) -> None:
    arrivals = np.cumsum(unit_gaps(seed, 0, 0, GAPS)) / UNIT
    intervals = int(arrivals[-1] // 10)
    counts = np.bincount((arrivals // 10).astype(np.int64))[:intervals]
    dispersion = counts.var(ddof=1) / counts.mean()
    assert abs(dispersion - 1) < 4 * np.sqrt(2 / intervals)  # four standard deviations of the estimate


def test_neighbouring_gaps_streams_and_seeds_are_uncorrelated() -> None:
    first = uniforms(1, 0, 0, GAPS)
    for other in (uniforms(1, 0, 1, GAPS + 1), uniforms(1, 1, 0, GAPS), uniforms(2, 0, 0, GAPS)):
        assert abs(np.corrcoef(first, other)[0, 1]) < 4 / np.sqrt(GAPS)


def test_uniforms_fill_their_range_evenly_by_chi_square() -> None:
    counts = np.bincount((uniforms(9, 3, 0, GAPS) * 100).astype(np.int64), minlength=100)
    assert len(counts) == 100
    assert ((counts - GAPS / 100) ** 2 / (GAPS / 100)).sum() < 149.4  # 99.9% point of chi-square with 99 degrees of freedom


def test_streams_and_seeds_have_keys_of_their_own() -> None:
    keys = {stream_key(seed, stream) for seed in range(100) for stream in range(100)}
    assert len(keys) == 10_000
