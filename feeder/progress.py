"""Shows how a feed gets on: what it does before the first row, which takes Spark a while, a bar on a terminal, a line at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from millstream.feeder.pace import NS_PER_S, Tally

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

NS_PER_MS = 1_000_000


def achieved(tally: Tally, now_ns: int) -> float:
    """Return the rows per second sent since the first row; 0 before it."""
    if tally.started_ns is None:
        return 0.0
    end_ns = now_ns if tally.ended_ns is None else tally.ended_ns
    return tally.sent * NS_PER_S / max(1, end_ns - tally.started_ns)


@contextmanager
def stage(console: Console, doing: str) -> Iterator[None]:
    """Say what is being done: for as long as it lasts on a terminal, as a line elsewhere. Yields once."""
    if not console.is_terminal:
        console.print(f"{doing} …")
        yield
        return
    with console.status(doing):
        yield


@contextmanager
def progress_bar(console: Console, rows: int, now_ns: Callable[[], int]) -> Iterator[Callable[[Tally, float], None]]:
    """Give a function that draws the numbers as they are; draws nothing when the console is not a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[numbers]}"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("feed", total=rows, numbers="")

        def look(tally: Tally, rate: float) -> None:
            asked = f"asked {rate:,.0f}/s, " if rate else ""
            lag = f", {tally.lag_ns / NS_PER_MS:,.1f} ms late" if rate else ""
            progress.update(task, completed=tally.sent, numbers=f"{asked}sent {achieved(tally, now_ns()):,.0f}/s{lag}")

        yield look


def summary(tally: Tally, refused: dict[str, int], *, complete: bool, paced: bool) -> list[str]:
    """Return the closing lines: what was sent, how fast and how late, what was not taken and why."""
    end_ns = tally.ended_ns or 0
    line = (
        f"{'fed' if complete else 'stopped after'} {_rows(tally.sent)} in {_seconds(tally):,.1f} s ({achieved(tally, end_ns):,.0f} rows/s)"
    )
    if paced and tally.sent:
        line += f", at most {tally.lag_ns_max / NS_PER_MS:,.1f} ms late"
    lines = [line]
    if tally.rejected:
        lines.append(f"the server refused {_rows(tally.rejected)}: {'; '.join(tally.reasons)}")
    lines += [f"{_rows(rows)} {'was' if rows == 1 else 'were'} not fed: {reason}" for reason, rows in sorted(refused.items())]
    return lines


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


def _seconds(tally: Tally) -> float:
    if tally.started_ns is None or tally.ended_ns is None:
        return 0.0
    return (tally.ended_ns - tally.started_ns) / NS_PER_S
