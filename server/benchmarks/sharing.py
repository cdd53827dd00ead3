"""Similar queries on one stream: 1, 10, 100, 1,000 window aggregates, with the work shared and not.

The windows are those of Golab 2006, ch. 5: lengths of 20 to 100 s, slides from 1 s to half the length, drawn with a seed; the aggregates
take turns, by 100 keys. The default policy schedules them. Both are warmed up with one row a key and second until the longest window is
full, as the paper does. By hand: the same rows folded once into panes of a second, each window added
up from running sums over its panes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.data.train import Train
from millstream.scheduler.core import CoreSettings
from millstream.scheduler.limits import ESTIMATE_CALLS_LIVE, ORDER_BUDGET_NS, SCHEDULE_UNITS_LIVE
from millstream.scheduler.spec import PolicySpec
from millstream.scheduler.trains import TrainShape
from millstream.server.benchmarks.contract import Figures, Kit
from millstream.server.benchmarks.embedding import Embedded

STREAM = "CREATE STREAM sharing_in (ts TIMESTAMP, key BIGINT, price DOUBLE) TIMESTAMP BY ts"
AGGREGATES = ("COUNT(*)", "SUM(price)", "AVG(price)", "MAX(price)", "MIN(price)")
KEYS, ROWS_PER_S, TRAIN = 100, 100_000, 10_000
LENGTHS_S = (20, 100)
COUNTS = (1, 10, 100, 1_000)
SECOND_US = 1_000_000
START_US = 1_700_000_000 * SECOND_US
WARM_ROWS = LENGTHS_S[1] * KEYS
ALONE_SHARE = {1: 1, 10: 1, 100: 10, 1_000: 50}  # of the rows, where nothing is shared: the rates are what compares

Shape = tuple[int, int, int]  # range and slide in seconds, which aggregate


def shapes(queries: int) -> list[Shape]:
    """Return the windows of so many queries."""
    draw = random.Random(6)
    found: list[Shape] = []
    for number in range(queries):
        length = draw.randint(*LENGTHS_S)
        found.append((length, draw.randint(1, length // 2), number % len(AGGREGATES)))
    return found


def benchmark(kit: Kit) -> Iterator[Figures]:
    """1 to 1,000 window aggregates on a stream, shared and not, through the default policy."""
    rows = kit.size(2_000_000, 100_000)
    batches = _trains(rows)
    views = [(b.column(0).view(pa.int64()).to_numpy(), b.column(1).to_numpy(), b.column(2).to_numpy()) for b in batches]
    counts = COUNTS[:3] if kit.quick else COUNTS
    for shared in (True, False):
        for queries in counts:
            share = 1 if shared or kit.quick else ALONE_SHARE[queries]
            yield _measure(kit, batches[: len(batches) // share], views[: len(views) // share], queries, shared)


def _measure(kit: Kit, batches: list[Any], views: list[Any], queries: int, shared: bool) -> Figures:
    wanted = shapes(queries)
    template = Embedded(STREAM)
    columns = [template.columns("sharing_in", batch) for batch in batches]
    engines: list[Embedded] = []

    warm = template.columns("sharing_in", _warm_up())

    def start() -> None:
        settings = CoreSettings(
            train=TrainShape(share=1.0), schedule=SCHEDULE_UNITS_LIVE, budget_ns=ORDER_BUDGET_NS, estimate_calls=ESTIMATE_CALLS_LIVE
        )
        engine = Embedded(STREAM, *map(_select, wanted), policy=PolicySpec("fcfs"), settings=settings, sharing=shared)
        engine.push("sharing_in", warm)
        engine.runtime.run()
        engine.results.take()
        engines.append(engine)

    def ours() -> list[Train]:
        engine = engines.pop()
        for one in columns:
            engine.push("sharing_in", one)
            engine.runtime.run()
        return engine.results.take()

    start()
    kit.require(_equal(ours(), reference(views, wanted)), "other windows than by hand")
    timing = kit.alternate(ours, lambda: reference(views, wanted), prepare=start)
    rows = sum(b.num_rows for b in batches)
    return {
        "name": "sharing",
        "queries": queries,
        "shared": shared,
        "rows": rows,
        "cpu_s": timing.cpu_s,
        "rows_per_s": rows / timing.ours_s,
        "reference_rows_per_s": rows / timing.reference_s,
        "ratio": timing.ratio,
        "peak_rss_mb": kit.peak_rss_mb(),
    }


def _select(shape: Shape) -> str:
    length, slide, kind = shape
    return f"SELECT key, {AGGREGATES[kind]} AS answer FROM sharing_in [RANGE {length} SECONDS SLIDE {slide} SECONDS] GROUP BY key"


def _trains(rows: int) -> list[Any]:
    draw = np.random.default_rng(6)
    times = pa.array(START_US + SECOND_US // ROWS_PER_S * np.arange(rows, dtype=np.int64)).view(pa.timestamp("us", "UTC"))
    whole = pa.record_batch({"ts": times, "key": draw.integers(0, KEYS, rows), "price": draw.integers(0, 1_000, rows) / 8.0})
    return [whole.slice(at, TRAIN) for at in range(0, rows, TRAIN)]


def _warm_up() -> Any:
    """Return the rows before START_US: one a key in each second of the longest window."""
    times = pa.array(START_US - SECOND_US * np.repeat(np.arange(LENGTHS_S[1], 0, -1), KEYS)).view(pa.timestamp("us", "UTC"))
    keys = np.tile(np.arange(KEYS, dtype=np.int64), LENGTHS_S[1])
    return pa.record_batch({"ts": times, "key": keys, "price": np.zeros(WARM_ROWS)})


def reference(views: list[tuple[Any, Any, Any]], wanted: list[Shape]) -> list[Any]:
    """Return the answers of all closed windows, instant by instant and query by query."""
    count, total, highest, lowest = np.ones((LENGTHS_S[1], KEYS)), *(np.zeros((LENGTHS_S[1], KEYS)) for _ in range(3))
    panes = [np.zeros(KEYS), np.zeros(KEYS), np.full(KEYS, -np.inf), np.full(KEYS, np.inf)]
    answers: list[Any] = []
    current = START_US // SECOND_US
    answers.extend(_windows(current, wanted, count, total, highest, lowest))
    for ts, key, price in views:
        numbers = ts // SECOND_US
        cuts = np.flatnonzero(np.diff(numbers)) + 1
        for low, high in pairwise([0, *cuts.tolist(), len(ts)]):
            if numbers[low] != current:
                count, total = _longer(count, panes[0]), _longer(total, panes[1])
                highest, lowest = _longer(highest, panes[2]), _longer(lowest, panes[3])
                current = int(numbers[low])
                answers.extend(_windows(current, wanted, count, total, highest, lowest))
                panes = [np.zeros(KEYS), np.zeros(KEYS), np.full(KEYS, -np.inf), np.full(KEYS, np.inf)]
            keys, values = key[low:high], price[low:high]
            panes[0] += np.bincount(keys, minlength=KEYS)
            panes[1] += np.bincount(keys, weights=values, minlength=KEYS)
            np.maximum.at(panes[2], keys, values)
            np.minimum.at(panes[3], keys, values)
    return answers


def _longer(kept: Any, pane: Any) -> Any:
    """Return the panes with one more, the newest first, as far back as the longest window."""
    return np.concatenate((pane[None], kept[: LENGTHS_S[1] - 1]))


def _windows(end: int, wanted: list[Shape], count: Any, total: Any, highest: Any, lowest: Any) -> list[Any]:
    """Return the answers due at one instant: running sums over the panes from the newest on."""
    due = [(length, kind) for length, slide, kind in wanted if (end - length) % slide == 0]
    counts, totals = np.cumsum(count, axis=0), np.cumsum(total, axis=0)
    highs, lows = np.maximum.accumulate(highest, axis=0), np.minimum.accumulate(lowest, axis=0)
    answers = []
    for length, kind in due:
        place = length - 1
        if kind == 2:
            answers.append(totals[place] / counts[place])
        else:
            answers.append((counts, totals, totals, highs, lows)[kind][place])
    return answers


def _equal(trains: list[Train], expected: list[Any]) -> bool:
    """Tell whether both hold the same numbers, whoever comes first among queries due at one instant."""
    ours = np.concatenate([np.asarray(t.column(1).values, dtype=np.float64) for t in trains]) if trains else np.zeros(0)
    by_hand = np.concatenate(expected) if expected else np.zeros(0)
    return len(ours) == len(by_hand) and bool(np.allclose(np.sort(ours), np.sort(by_hand), rtol=1e-12))
