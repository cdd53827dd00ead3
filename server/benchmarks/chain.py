"""The chain of six operators in this thread: trains in, columns out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from millstream.engine.data.train import Train
from millstream.scheduler.core import CoreSettings
from millstream.scheduler.spec import PolicySpec
from millstream.scheduler.trains import TrainShape
from millstream.server.benchmarks.contract import Figures, Kit, compared
from millstream.server.benchmarks.embedding import Embedded

TRAINS = (100, 1_000, 10_000, 65_536)


def benchmark(kit: Kit) -> Iterator[Figures]:
    """Six selections and projections in a row, the engine alone, for several train sizes."""
    for train in (1_000, 10_000) if kit.quick else TRAINS:
        yield _measure(kit, train, None)
    yield _measure(kit, 10_000, PolicySpec("fcfs"))


def _measure(kit: Kit, train: int, policy: PolicySpec | None) -> Figures:
    name, stream, plan = kit.chain_query
    batches = kit.chain_trains(min(kit.size(2_000_000, 100_000), 2_000 * train), train)
    engine = Embedded(stream, policy=policy, settings=CoreSettings(train=TrainShape(share=1.0)))
    engine.submit(plan)
    columns = [engine.columns(name, batch) for batch in batches]
    views = [kit.chain_views(batch) for batch in batches]
    expected = kit.chain_reference(views)
    rows_out = sum(len(answer[0]) for answer in expected)

    def ours() -> list[Train]:
        for one in columns:
            engine.push(name, one)
            engine.runtime.run()
        trains = engine.results.take()
        kit.require(sum(t.rows for t in trains) == rows_out, "another number of rows")
        return trains

    kit.require(_equal(ours(), expected), "other rows than by hand")
    timing = kit.alternate(ours, lambda: kit.chain_reference(views))
    rows = sum(batch.num_rows for batch in batches)
    return compared("chain", rows, timing, train=train, operators=6, policy=None if policy is None else policy.name)


def _equal(trains: list[Train], expected: list[tuple[Any, ...]]) -> bool:
    return all(
        np.array_equal(np.concatenate([t.column(i).values for t in trains]), np.concatenate([answer[i] for answer in expected]))
        for i in range(3)
    )
