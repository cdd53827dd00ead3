"""What goes wrong in a simulation or an experiment beside what can go wrong in the scheduler."""

from __future__ import annotations

from millstream.scheduler.errors import SchedulerError


class SimulationError(SchedulerError):
    """A workload or trace that cannot be simulated."""

    code = "simulation"
