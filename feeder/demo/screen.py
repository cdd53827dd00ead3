"""What the demo shows: the queries with their newest results while it runs, and the table of what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from millstream.feeder.demo.check import Verdict
from millstream.feeder.demo.watch import Followed, PublishTimes
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one query: rows in by the server's count, whether its counts add up, and whether the answer is right."""

    followed: Followed
    rows_in: int
    conserved: bool
    verdict: Verdict


def live_table(followed: Sequence[Followed], sent: int, total: int, policy: str) -> Table:
    """Return the table shown while rows flow."""
    table = Table(title=f"{sent:,} of {total:,} rows, policy {policy}", title_justify="left", expand=True)
    table.add_column("query", no_wrap=True)
    table.add_column("asks for", no_wrap=True, ratio=2)
    table.add_column("results", justify="right")
    table.add_column("newest", no_wrap=True, ratio=3)
    for one in followed:
        table.add_row(one.query.name, one.query.title, f"{one.rows:,}", one.last())
    return table


def final_table(outcomes: Sequence[Outcome], times: PublishTimes, policy: str) -> Table:
    """Return the closing table."""
    table = Table(title=f"policy {policy}", title_justify="left")
    for name in ("query", "rows in", "rows out", "p50 ms", "p99 ms", "conserved", "DuckDB"):
        table.add_column(name, justify="left" if name in {"query", "DuckDB"} else "right")
    for outcome in outcomes:
        latency = outcome.followed.latency_ms(times)
        middle, tail = ("-", "-") if latency is None else (f"{latency[0]:,.2f}", f"{latency[1]:,.2f}")
        verdict = "equal" if outcome.verdict.equal else "DIFFERENT"
        conserved = "yes" if outcome.conserved else "NO"
        table.add_row(outcome.followed.query.name, f"{outcome.rows_in:,}", f"{outcome.followed.rows:,}", middle, tail, conserved, verdict)
    return table


def is_conserved(counts: dict[str, Any]) -> bool:
    """Return whether accepted = processed + late + shed + failed + queued, by the server's final counts (K10)."""
    settled = sum(int(counts.get(name, 0)) for name in ("processed", "late", "shed", "failed", "queued"))
    return int(counts.get("accepted", -1)) == settled
