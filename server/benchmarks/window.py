"""A sliding window of many panes by many keys: COUNT, SUM and MAX over 10 s each second, 1,000 keys."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from millstream.engine.data.train import Train
from millstream.server.benchmarks.contract import Figures, Kit, compared
from millstream.server.benchmarks.embedding import Embedded


def benchmark(kit: Kit) -> Iterator[Figures]:
    """COUNT, SUM, MAX over 10 s each second by 1,000 keys, the engine alone."""
    name, stream, select = kit.window_query
    rows = kit.size(2_000_000, 200_000)
    batches = kit.window_trains(rows)
    views = [kit.window_views(batch) for batch in batches]
    template = Embedded(stream)
    columns = [template.columns(name, batch) for batch in batches]
    engines: list[Embedded] = []

    def start() -> None:
        engines.append(Embedded(stream, select))  # which neither side has in its time: by hand nobody registers a query

    def ours() -> list[Train]:
        engine = engines.pop()
        for one in columns:
            engine.push(name, one)
            engine.runtime.run()
        engine.end(name)
        return engine.results.take()

    expected = kit.window_reference(views)
    start()
    made = ours()
    found = [np.concatenate([train.column(i).values for train in made]) for i in range(5)]
    kit.require(kit.window_is_answer(found, expected), "other windows than by hand")
    timing = kit.alternate(ours, lambda: kit.window_reference(views), prepare=start)
    yield compared("window", rows, timing, train=batches[0].num_rows, queries=1, peak_rss_mb=kit.peak_rss_mb())
