"""d-steps: DILoS while the load of class 1 varies (Pham 2013)."""

from __future__ import annotations

from millstream.scheduler.simulation.scenarios.pham_simulated import scenario

SCENARIO = scenario("steps")
