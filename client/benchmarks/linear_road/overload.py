"""Linear Road where more comes than the server can take: tolls may lose reports, warnings of accidents and answers to questions may not.

Judged: warnings and answers of earlier days by the rules over all reports. Tolls and balances by the rules over the reports that the tolls'
class kept, which the query `seen` tells: none missing, none twice, none wrong for what was seen. And the receipts: in each second, rows
seen and rows shed are the rows that were sent, and the accounts of the class and of its streams balance to the row. A run with a warning
that came too late is no failure but a figure, `in_time`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from millstream.client.benchmarks.kit import Figures, Kit
from millstream.client.benchmarks.linear_road import drive
from millstream.client.benchmarks.linear_road.rules import LIMITS_S, REPORT, Rules, late
from millstream.client.benchmarks.linear_road.traffic import Traffic
from millstream.client.benchmarks.linear_road.workload import QUERIES, answers, lossy_statements
from millstream.client.connection import AsyncClient
from millstream.client.receipts import receipt_of

SEEN, RECEIPTS = "seen", "receipts"
TARGET = 0.5  # of the limit of a toll, a second of which has to pass anyway: beyond it the class is shed
US_PER_S = 1_000_000


@dataclass
class LossyDrive(drive.Drive):
    """A run in which tolls may lose reports. `kept` are the cars that reported, by second; `receipts` the rows seen and shed, by second."""

    options: ClassVar = ("--load", "class")
    kept: dict[int, list[Any]] = field(default_factory=dict)
    receipts: dict[int, tuple[int, int]] = field(default_factory=dict)
    told: int = 0
    counts: dict[str, Mapping[str, int]] = field(default_factory=dict)
    shown: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def statements(self) -> list[str]:
        """What is registered: the target is a part of the limit, which is as much smaller as the run is faster."""
        return lossy_statements(1e3 * TARGET * LIMITS_S["toll"] / self.speedup)

    @property
    def queries(self) -> Mapping[str, str]:
        """The queries that are read: those of a usual run, and what answers can be judged by."""
        return {**QUERIES, SEEN: SEEN, RECEIPTS: RECEIPTS}

    def take(self, kind: str, batch: Any) -> None:
        """Note a batch of answers, of reports that were seen, or of receipts."""
        if kind == SEEN:
            times, cars = batch.column("time").to_numpy(), batch.column("vid").to_numpy()
            for part in np.split(np.arange(len(times)), np.flatnonzero(np.diff(times)) + 1):
                self.kept.setdefault(int(times[part[0]]), []).append(cars[part])
        elif kind == RECEIPTS:
            receipt = receipt_of(batch)
            lost = [0] * batch.num_rows if receipt is None else receipt.rows().column("rows_shed").to_pylist()
            seconds = (batch.column("window_start").cast(pa.int64()).to_numpy() // US_PER_S).tolist()
            for second, seen, shed in zip(seconds, batch.column("seen").to_pylist(), lost, strict=True):
                self.receipts[second] = seen, shed
        else:
            receipt = receipt_of(batch) if kind == "toll" else None
            self.told += batch.num_rows if receipt is not None and receipt.share_seen < 1 else 0
            super().take(kind, batch)

    async def ended(self, client: AsyncClient, subscriptions: Mapping[str, Any]) -> None:
        """Keep the final counts of the queries, and what the server says of its streams."""
        self.counts = {kind: subscription.end.counts for kind, subscription in subscriptions.items()}
        self.shown = [dict(row) for row in await client.execute("SHOW STREAMS")]

    def seen(self) -> Iterator[pa.RecordBatch]:
        """Make the rows again, without the reports that were shed."""
        for second, batch in self.traffic.batches():
            cars = np.concatenate(self.kept.get(second, [np.zeros(0, np.int64)]))
            keeps = (batch.column("type").to_numpy() != REPORT) | np.isin(batch.column("vid").to_numpy(), cars)
            yield batch.filter(pa.array(keeps))


def overloaded(kit: Kit, traffic: Traffic, speedup: float) -> Figures:
    """Drive once, judge every answer and every receipt, and return what was measured."""
    run = LossyDrive(traffic, speedup)
    drive.run(run)
    rules = Rules((batch for _, batch in traffic.batches()), traffic.history)
    known = Rules(run.seen(), traffic.history, rules)
    found = answers({kind: run.rows[kind] for kind in QUERIES})
    wrong = [
        *rules.wrong_of_warnings(found),
        *known.wrong_of_tolls(found),
        *faults(run),
    ]
    kit.require(not wrong, "; ".join(wrong))
    rows, lost = int(run.feeder["rows"]), sum(shed for _, shed in run.receipts.values())
    return {
        "name": "linear-road-overload",
        **run.figures(),
        "in_time": not late("accident", run.responses("accident"), speedup),
        "loss_percent": 100.0 * lost / rows,
        "tolls": len(found.toll["vid"]),
        "tolls_of_all": rules.counts["toll"],
        "tolls_as_of_all": rules.tolls_alike(found.toll),
        "tolls_marked": run.told,
        "limit_s": LIMITS_S["accident"] / speedup,
    }


def faults(run: LossyDrive) -> list[str]:
    """Return what is wrong with the receipts, a sentence each: of each second, of the class's queries, and of its streams."""
    found = []
    sent = {second: batch.num_rows for second, batch in run.traffic.batches()}
    for second, (seen, shed) in run.receipts.items():
        if seen + shed != sent.get(second):
            found.append(f"second {second}: {seen} rows seen and {shed} shed, {sent.get(second)} sent")
    total = sum(sent.values())
    for kind in (SEEN, RECEIPTS):
        counts = run.counts[kind]
        settled = counts["processed"] + counts["late"] + counts["shed"] + counts["failed"]
        if not counts["accepted"] == settled == total:
            found.append(f"the account of {kind} does not balance: {dict(counts)}, {total} rows were sent")
    shed_of = {row["name"]: row["shed"] for row in run.shown}
    shed = run.counts[SEEN]["shed"]
    if shed_of["report"] != shed or shed_of["input"] != shed:
        found.append(f"stream report lost {shed_of['report']} rows and stream input {shed_of['input']}, query {SEEN} {shed}")
    if any(shed_of[name] for name in ("sighting", "standing", "accident", "danger")):
        found.append("a stream behind which accidents are told lost rows")
    missing = [second for second in sent if second not in run.receipts]  # a window that lost all its rows gives no result
    if sum(shed for _, shed in run.receipts.values()) + sum(sent[second] for second in missing) != shed:
        found.append(f"the receipts of the seconds do not add up to the {shed} rows that query {SEEN} lost")
    return found
