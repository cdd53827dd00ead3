"""Runs for the traversals of Carney 2005, 3.4.3."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from millstream.scheduler.core import CoreSettings
from millstream.scheduler.experiments.scenarios import carney_runs
from millstream.scheduler.simulation.networks import Box, NetworkBuilder
from millstream.scheduler.simulation.world import World
from millstream.scheduler.trains import TrainShape

RUN_POLICIES: Final = tuple(f"superbox:traversal={walk}" for walk in ("min-cost", "min-latency", "min-memory"))
"""Of the catalogue these runs are of the policies here alone (`code_digest.py`)."""

_OVERHEAD_NS = 1_000_000


def example_tree(walk: str, ratio: float) -> dict[str, Any]:
    """The six boxes of the thesis with one tuple at each, cost `ratio` of the call overhead: average latency in overheads."""
    builder = NetworkBuilder()
    cost = ratio * _OVERHEAD_NS
    streams = {name: builder.source(name) for name in ("s1", "s2", "s3", "s4", "s5", "s6")}

    def box(name: str, *children: Box) -> Box:
        return Box(cost, 1.0, *children, streams[f"s{name[1]}"], call_ns=_OVERHEAD_NS, label=name)

    b5 = box("b5")
    root = box("b1", box("b2", box("b4"), box("b3", b5)), box("b6"))
    delta = builder.query("example", root)
    world = World(f"superbox:traversal={walk}", [delta], settings=CoreSettings(adapt=False, train=TrainShape(share=1.0)), builder=builder)
    for stream in streams.values():
        world.arrive(stream, 0)
    world.run()
    return {"latency": float(np.mean([response for _, response in world.responses_ns()])) / _OVERHEAD_NS, "steps": len(world.order)}


def loaded(walk: str, cost_us: float, tuples: int, seed: int) -> dict[str, Any]:
    """One tree of fan-out 3 and depth 5 at half of the ideal capacity, which knows no calls."""
    return carney_runs.superbox(f"superbox:traversal={walk}", 0.5, 1, 5, 3, tuples, seed, cost_us=cost_us, charged=False)


def memory(walk: str, tuples: int, seed: int, call_ns: int = carney_runs.CALL_NS) -> dict[str, Any]:
    """Bytes in queues while one run of a superbox empties a tree at whose leaves tuples wait: `byte_s` is their integral over time.

    A load of one half gives about one tuple a leaf.
    """
    work = carney_runs.tree_workload(0.5, 1, 4, 3, tuples, seed, 1, None, call_ns, 0.4)
    world = World(f"superbox:traversal={walk}", work.deltas, settings=CoreSettings(adapt=False, train=TrainShape(share=1.0)), seed=seed)
    sizes = {node.id: (node.row_bytes_in, node.row_bytes_out) for node in work.nodes}
    from millstream.scheduler.events import Arrived

    waiting = 0.0
    for log, times in work.arrivals.items():
        world.driver.post(Arrived(log, len(times), 100 * len(times), 0), 0)
        waiting += 100.0 * len(times)
    times_ns, levels = [0], [waiting]
    made: list[Any] = []
    world.driver._on_receipt = made.append
    world.run()
    now = 0
    roots = {delta.query.root for delta in work.deltas}
    for receipt in made:
        for step in receipt.each_step():
            now += step.cost_ns
            taken, given = sum(one.rows for one in step.consumed), sum(one.rows for one in step.produced)
            waiting -= taken * sizes[step.operator][0]
            waiting += 0 if step.operator in roots else given * sizes[step.operator][1]
            times_ns.append(now)
            levels.append(waiting)
    at, level = np.array(times_ns, dtype=np.float64), np.array(levels)
    byte_s = float((level[:-1] * np.diff(at)).sum()) / 1e9
    picked = np.linspace(0, len(at) - 1, min(200, len(at))).astype(int)
    return {"byte_s": byte_s, "at_ms": (at[picked] / 1e6).tolist(), "bytes": level[picked].tolist()}
