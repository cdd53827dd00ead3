"""The simulator, fed with what the live engine measured, foresees its response times and the order of policies.

On the clock of this thread's processor time, so that what else the machine does leaves the runs alone; `make soak` has the same with the
daemon's threads, the machine's clock and the tolerances that are claimed.
"""

from __future__ import annotations

import pytest
from millstream.server.experiments.agreement import disordered, errors, medians, run

POLICIES = ("fcfs", "hr")
ATTEMPTS = 3  # a machine that stops for a while in a run can spoil it, a wrong model spoils all


@pytest.mark.slow
@pytest.mark.parametrize("utilisation", [0.5, 0.9])
def test_a_simulation_of_what_was_recorded_foresees_the_live_run(utilisation: float) -> None:
    tried = []
    for attempt in range(ATTEMPTS):
        found = [run(policy, utilisation, 80, seed=1 + attempt, stepped=True) for policy in POLICIES]
        assert all(one["live_results"] == one["simulated_results"] for one in found)
        off, turned = max(errors(found).values()), disordered(medians(found), 0.25)
        tried.append((off, turned))
        if off <= 0.4 and not turned:
            return
    raise AssertionError(f"live and simulated do not agree: {tried}")


def test_pairs_that_the_simulator_sets_apart_and_the_engine_turns_round_are_found() -> None:
    averages = {(0.5, "a"): (10.0, 10.0), (0.5, "b"): (9.0, 12.0), (0.5, "c"): (9.5, 10.5), (0.9, "a"): (1.0, 1.0)}
    assert disordered(averages) == ["a before b at 0.5", "c before b at 0.5"]
    assert disordered(averages, 0.5) == []
