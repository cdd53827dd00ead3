"""A recording: the queries of a live server with their measured costs and selectivities, and what arrived when. Replayed by `simulate`.

The file is text, one JSON object a line:

    {"recording": 1, "workers": 1, "schedule": 16, ...}          heading; only the version is needed
    {"query": {...}}                                             one line a query, in the order they were added
    {"arrivals": {"log": 3, "row_bytes": 52, "start_ns": 0, "gaps_ns": [...], "rows": [...]}}     any number of lines a log

A query line is a `GraphDelta` field by field, with the measured cost and selectivity of each operator in the place of the declared
ones. Arrivals of a log follow one another: `start_ns` is the first arrival of the line since the recording began, `gaps_ns` the gaps
between the following ones, `rows` how many rows came each time (left out: one each).

The heading may say under what conditions the server decided, and a simulation then does so too: `workers`; `schedule`, the units a
decision gives out; `budget_ns`, after which an order gives the worker back; `order_ns`, what deciding cost per order. Whatever else it
holds is for people.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from millstream.engine.data.graph import (
    ClassId,
    ClassNode,
    Edge,
    EdgeId,
    GraphDelta,
    LogId,
    OperatorId,
    OperatorNode,
    QueryId,
    QueryNode,
)
from millstream.scheduler.errors import SimulationError
from millstream.scheduler.simulation.arrivals import Times
from millstream.scheduler.simulation.workloads import Workload

RECORDING_VERSION = 1

_ARRIVALS_A_LINE = 1_000


@dataclass
class Recording:
    """What a recording holds: deltas, and per log the arrival times of its rows (one entry a row) and their mean size."""

    deltas: list[GraphDelta] = field(default_factory=list)
    arrivals: dict[LogId, Times] = field(default_factory=dict)
    row_bytes: dict[LogId, int] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)

    def workload(self, name: str) -> Workload:
        """Return the recording as a workload; outcomes are drawn by the measured selectivities."""
        if not self.deltas:
            raise SimulationError(f"recording '{name}' holds no query")
        return Workload(name, tuple(self.deltas), dict(self.arrivals), row_bytes=dict(self.row_bytes))


def save(recording: Recording, path: Path) -> None:
    """Write a recording; a file appears whole or not at all."""
    part = path.with_name(path.name + ".part")
    with part.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines(recording))
    part.replace(path)


def lines(recording: Recording) -> Iterable[Mapping[str, Any]]:
    """Yield the objects of the file."""
    yield {"recording": RECORDING_VERSION, **recording.about}
    for delta in recording.deltas:
        yield {"query": asdict(delta)}
    for log in sorted(recording.arrivals):
        times = recording.arrivals[log]
        times, rows = np.unique(times, return_counts=True)
        for first in range(0, len(times), _ARRIVALS_A_LINE):
            part, counts = times[first : first + _ARRIVALS_A_LINE], rows[first : first + _ARRIVALS_A_LINE]
            line = {"log": int(log), "row_bytes": recording.row_bytes.get(log, 1), "start_ns": int(part[0])}
            together = {"rows": counts.tolist()} if counts.max() > 1 else {}
            yield {"arrivals": {**line, "gaps_ns": np.diff(part).tolist(), **together}}


def load(path: Path) -> Recording:
    """Read a recording; raises `SimulationError` naming the line."""
    try:
        with path.open(encoding="utf-8") as file:
            return parse(file)
    except (OSError, UnicodeDecodeError) as problem:
        raise SimulationError(f"recording '{path}' cannot be read: {problem}") from problem


def parse(text: Iterable[str]) -> Recording:
    """Read the lines of a recording."""
    recording = Recording()
    parts: dict[LogId, list[Times]] = {}
    for number, line in enumerate(text, 1):
        try:
            value = json.loads(line)
            if number == 1:
                if value.get("recording") != RECORDING_VERSION:
                    raise SimulationError(f"this is not a recording of version {RECORDING_VERSION}")
                recording.about = {key: one for key, one in value.items() if key != "recording"}
            elif "query" in value:
                recording.deltas.append(_delta(value["query"]))
            else:
                _take_arrivals(value["arrivals"], parts, recording)
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise SimulationError(f"line {number} of the recording cannot be read: {problem}") from problem
    for log, found in parts.items():
        recording.arrivals[log] = np.sort(np.concatenate(found))
    return recording


def _take_arrivals(value: Mapping[str, Any], parts: dict[LogId, list[Times]], recording: Recording) -> None:
    log = LogId(int(value["log"]))
    times = np.cumsum(np.array([value["start_ns"], *value["gaps_ns"]], dtype=np.int64))
    rows = value.get("rows")
    parts.setdefault(log, []).append(times if rows is None else np.repeat(times, rows))
    recording.row_bytes[log] = max(1, int(value.get("row_bytes", 1)))


def _delta(value: Mapping[str, Any]) -> GraphDelta:
    query = dict(value["query"])
    return GraphDelta(
        QueryNode(
            **{
                **query,
                "id": QueryId(query["id"]),
                "operators": tuple(OperatorId(one) for one in query["operators"]),
                "class_id": ClassId(query["class_id"]),
                "qos": tuple((float(at), float(gain)) for at, gain in query["qos"]),
            }
        ),
        tuple(_operator(one) for one in value["operators"]),
        tuple(Edge(**one) for one in value["edges"]),
        tuple(ClassNode(**{**one, "workers": tuple(one.get("workers", ()))}) for one in value["classes"]),
    )


def _operator(value: Mapping[str, Any]) -> OperatorNode:
    inputs: Sequence[int] = value["inputs"]
    outputs: Sequence[int] = value["outputs"]
    each = tuple(float(one) for one in value.get("output_selectivity", ()))
    ends = {"inputs": tuple(EdgeId(one) for one in inputs), "outputs": tuple(LogId(one) for one in outputs)}
    return OperatorNode(**{**value, **ends, "output_selectivity": each})
