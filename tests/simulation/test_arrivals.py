"""Arrival processes have the rates, shapes and burstiness they promise, and come from the seed alone."""

from __future__ import annotations

import numpy as np
import pytest
from millstream.scheduler.errors import SimulationError
from millstream.scheduler.simulation import arrivals


def hurst(times: arrivals.Times) -> float:
    """Return the Hurst parameter by the variance of counts over windows of growing length (variance-time plot).

    Var(mean count over m windows) goes as m^(2H − 2).
    """
    span = int(times[-1] - times[0]) + 1
    base = max(64, min(4096, len(times) // 8))
    counts = np.bincount(((times - times[0]) * base // span).astype(np.int64), minlength=base).astype(np.float64)
    sizes: list[int] = []
    variances: list[float] = []
    size = 1
    while base // size >= 16:
        means = counts[: base // size * size].reshape(-1, size).mean(axis=1)
        sizes.append(size)
        variances.append(float(means.var()))
        size *= 2
    slope = np.polyfit(np.log(sizes), np.log(np.maximum(variances, 1e-12)), 1)[0]
    return float(1.0 + slope / 2.0)


@pytest.mark.parametrize("make", [arrivals.poisson, arrivals.on_off, arrivals.regular])
def test_the_mean_rate_is_the_one_asked_for(make: object) -> None:
    times = make(250.0, 20_000, 3)  # type: ignore[operator]
    assert len(times) == 20_000
    assert (np.diff(times) >= 0).all()
    assert len(times) / (times[-1] / 1e9) == pytest.approx(250.0, rel=0.03)


def test_the_same_seed_gives_the_same_times_and_another_seed_others() -> None:
    assert (arrivals.on_off(100.0, 5_000, 7) == arrivals.on_off(100.0, 5_000, 7)).all()
    assert (arrivals.on_off(100.0, 5_000, 7) != arrivals.on_off(100.0, 5_000, 8)).any()


def test_on_off_traffic_is_self_similar_near_the_hurst_parameter_of_the_papers() -> None:
    # Shape 1.4 stands for H = (3 - 1.4) / 2 = 0.8.
    measured = [hurst(arrivals.on_off(100.0, 100_000, seed)) for seed in range(6)]
    assert np.mean(measured) == pytest.approx(0.8, abs=0.07)


def test_poisson_traffic_is_not_self_similar() -> None:
    measured = [hurst(arrivals.poisson(100.0, 100_000, seed)) for seed in range(6)]
    assert np.mean(measured) == pytest.approx(0.5, abs=0.07)


@pytest.mark.parametrize("name", list(arrivals.TRACES))
def test_carried_traces_are_burstier_than_poisson(name: str) -> None:
    assert hurst(arrivals.trace(name, 50_000, rate=100.0)) > 0.62


def test_the_carried_traces_are_what_their_notes_say() -> None:
    assert len(arrivals.gaps_ns("dec-pkt-1")) == len(arrivals.gaps_ns("bc-paug89")) == 200_000
    assert len(arrivals.gaps_ns("mavpad")) == 54_267
    # 318 frames a second in the whole Bellcore trace and 230 packets in the DEC hour; these are their beginnings.
    assert 1e9 / arrivals.gaps_ns("dec-pkt-1").mean() == pytest.approx(209, abs=1)
    assert arrivals.gaps_ns("mavpad").sum() / 1e9 == pytest.approx(86_397)


def test_a_trace_can_be_scaled_to_a_rate_or_by_a_factor() -> None:
    plain = arrivals.trace("dec-pkt-1", 1_000)
    assert arrivals.trace("dec-pkt-1", 1_000, scale=0.64)[-1] == pytest.approx(plain[-1] * 0.64, rel=1e-6)
    assert arrivals.trace("dec-pkt-1", 1_000, rate=50.0)[-1] == pytest.approx(1_000 / 50.0 * 1e9, rel=1e-6)


def test_gathering_moves_tuples_to_the_first_of_their_burst_and_loses_none() -> None:
    times = arrivals.poisson(10.0, 25, 1)
    gathered = arrivals.gather(times, 10)
    assert len(gathered) == 25
    assert gathered.tolist() == [times[0]] * 10 + [times[10]] * 10 + [times[20]] * 5


def test_steps_hold_their_rates_for_their_times() -> None:
    times = arrivals.steps([(40.0, 150.0), (80.0, 50.0), (40.0, 100.0)], 1) / 1e9
    counts = [((times >= start) & (times < end)).sum() / (end - start) for start, end in ((0, 150), (150, 200), (200, 300))]
    assert counts == pytest.approx([40.0, 80.0, 40.0], rel=0.1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: arrivals.poisson(0.0, 10, 1), "a rate of 0.0 tuples a second is not positive"),
        (lambda: arrivals.trace("lbl", 10), "unknown trace 'lbl'"),
        (lambda: arrivals.trace("mavpad", 60_000), "has 54267 gaps, not 60000"),
        (lambda: arrivals.on_off(10.0, 10, 1, shape=2.5), "shape of 2.5"),
        (lambda: arrivals.gather(arrivals.regular(1.0, 3), 0), "bursts of 0"),
    ],
)
def test_what_cannot_be_made_is_refused(call: object, message: str) -> None:
    with pytest.raises(SimulationError, match=message):
        call()  # type: ignore[operator]
