"""Which experiments there are, and where each is listed and judged."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import entry_points

from millstream.scheduler.errors import SimulationError
from millstream.scheduler.experiments.frame import Scenario

# Every row of the papers, by name; the module is the name with underscores, or that of the file in which several stand.
NAMES: tuple[str, ...] = (
    "p-latency",
    "p-memory",
    "p-throughput",
    "p-burst",
    "c-superbox",
    "c-traversal",
    "c-train",
    "c-overhead",
    "c-qos",
    "c-size",
    "c-bucket",
    "c-push",
    "c-10000",
    "c-sustained",
    "c-burst",
    "c-fanout",
    "c-fresh",
    "s-slowdown",
    "s-response",
    "s-max",
    "s-tradeoff",
    "s-l2",
    "s-class",
    "s-selectivity",
    "s-oracle",
    "s-joins",
    "s-tardiness",
    "s-memory",
    "s-clusters",
    "s-sharing",
    "s-adaptive",
    "s-fresh",
    "s-multicast",
    "g-low",
    "g-high",
    "d-none",
    "d-common",
    "d-class",
    "d-dilos",
    "d-steps",
)


_HOMES = {
    **dict.fromkeys(("d-none", "d-common", "d-class", "d-dilos", "d-steps"), "pham"),
    **dict.fromkeys(("g-low", "g-high"), "golab"),
    **dict.fromkeys(("p-latency", "p-throughput", "p-memory", "p-burst"), "pajjuri"),
    **dict.fromkeys(("s-slowdown", "s-response", "s-max", "s-tradeoff", "s-l2", "s-class", "s-memory"), "sharaf_loads"),
}

GROUP = "millstream.experiments"
"""The entry points of live experiments: other folders have them, which this one does not know."""


def names() -> tuple[str, ...]:
    """Return the names of all experiments, the live ones last."""
    return (*NAMES, *sorted(entry.name for entry in entry_points(group=GROUP)))


def home(name: str) -> str:
    """Return the module in which an experiment is listed and judged; raises `SimulationError` naming the known ones."""
    if name in NAMES:
        return f"millstream.scheduler.experiments.scenarios.{_HOMES.get(name, name.replace('-', '_'))}"
    for entry in entry_points(group=GROUP, name=name):
        return entry.module
    near = get_close_matches(name, names(), n=1, cutoff=0.75)
    raise SimulationError(f"unknown experiment '{name}'", hint=f"did you mean {near[0]}?" if near else "known are " + ", ".join(names()))


def load(name: str) -> Scenario:
    """Return a scenario by name; raises `SimulationError` naming the known ones."""
    module = import_module(home(name))
    if name not in NAMES:
        (entry,) = entry_points(group=GROUP, name=name)
        found: Scenario = getattr(module, entry.attr)
        return found
    scenario: Scenario = module.SCENARIOS[name] if name in _HOMES else module.SCENARIO
    return scenario
