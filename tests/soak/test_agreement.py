"""The simulator against the live engine with the daemon's threads and clock, at the tolerances that are claimed."""

from __future__ import annotations

import pytest
from millstream.server.experiments.agreement import TOLERANCE, cases, disordered, errors, medians


@pytest.mark.soak
@pytest.mark.timeout(1_800)
def test_the_simulator_foresees_live_averages_within_a_quarter_and_orders_policies_alike() -> None:
    found = [case.run() for case in cases("medium")]
    off = errors(found)
    assert max(off.values()) <= TOLERANCE, off
    assert disordered(medians(found)) == []
