"""What `millstream bench` hands to a benchmark: how large to be, how to time, how to check, what to compare with.

A benchmark is a function of a kit that yields figures, one mapping for each line of the answer. Folders that may not import this one get
the kit as an argument and describe for themselves what they need of it.
"""

from __future__ import annotations

import gc
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import click
from millstream.client.benchmarks import chain_workload, window_workload

if TYPE_CHECKING:
    import pyarrow as pa
    from millstream.client.benchmarks.nexmark.workload import Workload

Figures: TypeAlias = dict[str, Any]

PAIRS_MIN, PAIRS_MAX, PAIRS_QUICK = 5, 41, 3
SECONDS_PER_COMPARISON = 6.0


class WrongAnswer(click.ClickException):
    """A benchmark's answer is not the reference's: however fast it was, it does not count."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Medians of alternating runs, in seconds. `ratio` is reference / ours, the median over pairs; `noise` half of its spread.

    `cpu_s` is processor time of one run of ours, all threads. The spread is that of the middle half of the pairs, over the median.
    """

    ours_s: float
    reference_s: float
    ratio: float
    noise: float
    cpu_s: float


class Kit:
    """See the module's text. `quick`: seconds in all, figures that say little, the same checks.

    `parts`: what was asked for of a benchmark that has parts, nothing for all. `events`, `seed`: of one that makes its events.
    """

    def __init__(self, quick: bool, parts: Sequence[str] = (), events: int | None = None, seed: int = 1) -> None:
        self.quick = quick
        self.parts = tuple(parts)
        self.events = events
        self.seed = seed

    def size(self, full: int, quick: int) -> int:
        """Return how much of something to take."""
        return quick if self.quick else full

    def require(self, holds: bool, what: str) -> None:
        """Raise WrongAnswer, saying what is wrong, unless it holds."""
        if not holds:
            raise WrongAnswer(f"the benchmark's answer is wrong: {what}")

    def alternate(
        self,
        ours: Callable[[], object],
        reference: Callable[[], object],
        prepare: Callable[[], object] | None = None,
        pairs_min: int = PAIRS_MIN,
    ) -> Timing:
        """Run both in turn: once to warm up, then at least so many pairs, more of short ones. `prepare` comes before each, untimed."""
        prepare = prepare or _nothing
        prepare()
        gc.collect()
        started = time.perf_counter()
        reference()
        ours()
        pair_s = time.perf_counter() - started
        pairs = PAIRS_QUICK if self.quick else min(PAIRS_MAX, max(pairs_min, int(SECONDS_PER_COMPARISON / pair_s)))
        runs = [_pair(ours, reference, prepare) for _ in range(pairs)]
        ratios = [reference_s / ours_s for ours_s, reference_s, _ in runs]
        return Timing(
            ours_s=statistics.median(r[0] for r in runs),
            reference_s=statistics.median(r[1] for r in runs),
            ratio=statistics.median(ratios),
            noise=spread(ratios),
            cpu_s=statistics.median(r[2] for r in runs),
        )

    def peak_rss_mb(self) -> float:
        """Return the most memory that this process has held so far, in MB."""
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    def chain_trains(self, rows: int, train: int) -> list[pa.RecordBatch]:
        """Return the rows that the chain of six operators is run over, in record batches of `train` rows."""
        return chain_workload.trains(rows, train)

    def chain_reference(self, views: list[list[Any]]) -> list[tuple[Any, ...]]:
        """Return the chain's answer as NumPy gives it, one tuple of columns for each train (`chain_workload.views`)."""
        return chain_workload.reference(views)

    def chain_views(self, batch: pa.RecordBatch) -> list[Any]:
        """Return the NumPy views of one train that the reference reads."""
        return chain_workload.views(batch)

    @property
    def chain_query(self) -> tuple[str, str, Figures]:
        """The chain's stream, its definition, and the query as a plan."""
        return chain_workload.NAME, chain_workload.STREAM, chain_workload.PLAN

    def window_trains(self, rows: int) -> list[pa.RecordBatch]:
        """Return the rows that the window is run over, in record batches."""
        return window_workload.trains(rows)

    def window_views(self, batch: pa.RecordBatch) -> list[Any]:
        """Return the NumPy views of one train that the reference reads."""
        return window_workload.views(batch)

    def window_reference(self, views: list[list[Any]]) -> list[window_workload.Window]:
        """Return every window as NumPy gives it."""
        return window_workload.reference(views)

    def window_is_answer(self, columns: list[Any], expected: list[window_workload.Window]) -> bool:
        """Whether the query's columns hold these windows."""
        return window_workload.is_answer(columns, expected)

    @property
    def window_query(self) -> tuple[str, str, str]:
        """The window's stream, its definition, and the query."""
        return window_workload.NAME, window_workload.STREAM, window_workload.SELECT

    def nexmark(self) -> Workload:
        """Return NEXMark with as many events and those queries that were asked for. UsageError for parts that it does not have."""
        from millstream.client.benchmarks.nexmark.generator import Generator
        from millstream.client.benchmarks.nexmark.workload import QUERIES, Workload

        if unknown := [part for part in self.parts if part not in QUERIES]:
            raise click.UsageError(f"nexmark has no query {unknown[0]}; there are {', '.join(QUERIES)}")
        events = self.size(1_000_000, 50_000) if self.events is None else self.events
        return Workload(Generator(events, self.seed), self.parts or QUERIES)

    def spread(self, values: list[float]) -> float:
        """Return half of the spread of the middle half of some figures, over their median."""
        return spread(values)


def _nothing() -> None:
    """Prepare nothing."""


def _pair(ours: Callable[[], object], reference: Callable[[], object], prepare: Callable[[], object]) -> tuple[float, float, float]:
    prepare()
    gc.collect()  # what preparing and the runs before left behind is looked through in nobody's time
    started = time.perf_counter()
    reference()
    between, cpu = time.perf_counter(), time.process_time()
    ours()
    return time.perf_counter() - between, between - started, time.process_time() - cpu


def spread(values: list[float]) -> float:
    """Return half the width of the middle half, as a share of the median."""
    if len(values) < 2:
        return 0.0
    lower, middle, upper = statistics.quantiles(values, n=4)
    return (upper - lower) / 2 / middle if middle else 0.0
