"""What a benchmark needs of whoever runs it. The command brings it; nothing here knows how it times or prints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

Figures: TypeAlias = dict[str, Any]


class Timing(Protocol):
    """Medians of alternating runs in seconds; `ratio` is reference / ours, `noise` its spread, `cpu_s` processor time of one run."""

    @property
    def ours_s(self) -> float:
        """One run of ours."""
        ...

    @property
    def reference_s(self) -> float:
        """One run of the reference."""
        ...

    @property
    def ratio(self) -> float:
        """The reference's time over ours."""
        ...

    @property
    def noise(self) -> float:
        """Spread of the ratio, as a share of it."""
        ...

    @property
    def cpu_s(self) -> float:
        """Processor time of one run of ours."""
        ...


class Kit(Protocol):
    """Size, timing, checks, and rows and references of the chain and of the window, which benchmarks over TCP use as well."""

    quick: bool

    def size(self, full: int, quick: int) -> int:
        """Return how much of something to take."""
        ...

    def require(self, holds: bool, what: str) -> None:
        """Fail the benchmark, saying what is wrong, unless it holds."""
        ...

    def alternate(self, ours: Callable[[], object], reference: Callable[[], object], prepare: Callable[[], object] | None = None) -> Timing:
        """Time both in turn; `prepare` comes before each turn and is not timed."""
        ...

    def peak_rss_mb(self) -> float:
        """Return the most memory this process has held."""
        ...

    def chain_trains(self, rows: int, train: int) -> list[Any]:
        """Return the chain's rows in record batches."""
        ...

    def chain_views(self, batch: Any) -> list[Any]:
        """Return the columns the chain's reference reads."""
        ...

    def chain_reference(self, views: list[list[Any]]) -> list[tuple[Any, ...]]:
        """Return the chain's answer by hand."""
        ...

    @property
    def chain_query(self) -> tuple[str, str, Figures]:
        """The chain's stream, its definition, and the query as a plan."""
        ...

    def window_trains(self, rows: int) -> list[Any]:
        """Return the window's rows in record batches."""
        ...

    def window_views(self, batch: Any) -> list[Any]:
        """Return the columns the window's reference reads."""
        ...

    def window_reference(self, views: list[list[Any]]) -> list[Any]:
        """Return the windows by hand."""
        ...

    def window_is_answer(self, columns: list[Any], expected: list[Any]) -> bool:
        """Whether the query's columns hold these windows."""
        ...

    @property
    def window_query(self) -> tuple[str, str, str]:
        """The window's stream, its definition, and the query."""
        ...

    def nexmark(self) -> Nexmark:
        """Return NEXMark with as many events and those queries that were asked for."""
        ...

    def spread(self, values: list[float]) -> float:
        """Return half of the spread of the middle half of some figures, over their median."""
        ...


class Nexmark(Protocol):
    """Events, queries and their right answers. `queries`: their names; `sources`: the streams that events enter."""

    events: int
    queries: Sequence[str]
    sources: Sequence[str]

    @property
    def trains(self) -> list[list[tuple[str, Any]]]:
        """The events as record batches by stream, in order of arrival."""
        ...

    @property
    def streams(self) -> list[str]:
        """The statements that make the streams."""
        ...

    @property
    def side_input(self) -> tuple[str, Any]:
        """A table's name and rows, for the query that makes it."""
        ...

    def query(self, name: str) -> list[str]:
        """Return a query's statements; the last is the SELECT."""
        ...

    def fed(self, name: str) -> list[str]:
        """Return the streams that a query makes and feeds itself."""
        ...

    def write(self, folder: Path) -> str:
        """Write the events into files of a folder; returns a sentence about it."""
        ...

    def wrong(self, name: str, rows: Sequence[Any]) -> str | None:
        """Return what is wrong with the rows of a query."""
        ...


def compared(name: str, rows: int, timing: Timing, **others: Any) -> Figures:
    """Return the line of a benchmark that has a reference."""
    return {
        "name": name,
        "rows_per_s": rows / timing.ours_s,
        "reference_rows_per_s": rows / timing.reference_s,
        "ratio": timing.ratio,
        "noise": timing.noise,
        "cpu_s": timing.cpu_s,
        **others,
    }
