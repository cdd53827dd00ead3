"""Reads a workload from TOML (docs/simulation.md tells of every key). Errors name the table and the key.

A class that may be shed has a source of its own for each stream that its queries read, as it has a log of its own in the engine.
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from millstream.engine.data.graph import DEFAULT_CLASS, DEFAULT_QOS, NS_PER_S, ClassId, ClassNode, GraphDelta
from millstream.scheduler.errors import SimulationError
from millstream.scheduler.simulation import arrivals
from millstream.scheduler.simulation.generators import select_join_project, window_joins
from millstream.scheduler.simulation.networks import Asked, Box, NetworkBuilder, SimulatedSource
from millstream.scheduler.simulation.workloads import Workload, workload

Table = Mapping[str, Any]

_NS_PER_US = 1_000.0
_NS_PER_MS = 1_000_000.0

_STREAM_KEYS = {
    "poisson": {"rate", "count"},
    "regular": {"rate", "count"},
    "on-off": {"rate", "count", "shape", "sources", "period"},
    "trace": {"trace", "count", "rate", "scale", "skip"},
    "steps": {"steps", "count"},
    "times": {"times_ms"},
}


def read_workload(path: Path, seed: int) -> Workload:
    """Read a file; raises `SimulationError` naming what is wrong and where."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise SimulationError(f"workload '{path}' cannot be read: {problem}") from problem
    return parse_workload(table, seed, path.stem)


def parse_workload(table: Table, seed: int, name: str = "workload") -> Workload:
    """Make a workload of a parsed table."""
    return _Reader(table, seed, name).read()


class _Reader:
    def __init__(self, table: Table, seed: int, name: str) -> None:
        self.table, self.seed, self.name = table, seed, name
        self.builder = NetworkBuilder()
        self.sources: dict[str, SimulatedSource] = {}
        self.times: dict[SimulatedSource, arrivals.Times] = {}
        self.shared: dict[str, Box] = {}
        self.classes: dict[str, ClassNode] = {}
        self.deltas: list[GraphDelta] = []
        self.told: set[str] = set()
        self.own: dict[tuple[str, ClassId], SimulatedSource] = {}
        self.sheds: ClassNode | None = None  # the class of the query that is being read, if it may be shed

    def read(self) -> Workload:
        _check("the workload", self.table, {"name", "utilisation", "load", "stream", "class", "box", "query", "random"})
        for index, (name, stream) in enumerate(_tables(self.table, "stream").items()):
            source = self.sources[name] = self.builder.source(name)
            self.times[source] = _times(f"stream.{name}", stream, self.seed * 1_000_003 + index)
        if not self.sources:
            raise SimulationError("the workload has no stream", hint="add a table [stream.NAME]")
        for index, (name, one) in enumerate(_tables(self.table, "class").items(), 1):
            self.classes[name] = _class(name, one, index)
        for box in self.table.get("box", []):
            self._box(box, self.shared, "box")
        for index, query in enumerate(self.table.get("query", []), 1):
            self._query(query, index)
        for index, drawn in enumerate(self.table.get("random", []), 1):
            self._random(drawn, index)
        if not self.deltas:
            raise SimulationError("the workload has no query", hint="add a table [[query]] or [[random]]")
        made = workload(str(self.table.get("name", self.name)), self.builder, self.deltas, self.times)
        if "load" in self.table:
            made = replace(made, load=str(self.table["load"]))
        target = self.table.get("utilisation")
        return made if target is None else made.at_utilisation(_number("the workload", "utilisation", target))

    def _query(self, query: Table, index: int) -> None:
        name = str(query.get("name", f"q{index}"))
        where = f"query '{name}'"
        _check(where, query, {"name", "copies", "boxes", "root", "class", "weight", "qos_ms", "deadline_ms", "period_ms"})
        copies = query.get("copies", 1)
        if not isinstance(copies, int) or copies < 1:
            raise SimulationError(f"copies of {where} is not a whole number of at least 1")
        class_node = self.classes.get(str(query.get("class")))
        self.sheds = class_node if class_node is not None and class_node.may_shed else None
        for copy in range(copies):
            boxes = dict(self.shared)
            last: Box | None = None
            for box in query.get("boxes", []):
                last = self._box(box, boxes, where)
            root = query.get("root")
            if root is not None:
                last = boxes.get(str(root))
                if last is None:
                    raise SimulationError(f"root of {where} names '{root}', which is not a box")
            if last is None:
                raise SimulationError(f"{where} has no box", hint="add boxes = [{ ... }]")
            self._add(name if copies == 1 else f"{name}.{copy + 1}", last, self._asked(where, query))

    def _add(self, name: str, root: Box, asked: Asked) -> None:
        classes = tuple(one for one in self.classes.values() if one.id == asked.class_id and one.name not in self.told)
        self.told.update(one.name for one in classes)
        self.deltas.append(self.builder.query(name, root, asked, classes))

    def _asked(self, where: str, query: Table) -> Asked:
        class_name = query.get("class")
        if class_name is not None and class_name not in self.classes:
            raise SimulationError(f"class of {where} names '{class_name}', which is not declared")
        points = query.get("qos_ms")
        period = query.get("period_ms")
        return Asked(
            class_id=self.classes[class_name].id if class_name is not None else DEFAULT_CLASS,
            weight=_number(where, "weight", query.get("weight", 1.0)),
            qos=DEFAULT_QOS if points is None else _graph(where, points),
            deadline_ns=round(_number(where, "deadline_ms", query.get("deadline_ms", NS_PER_S / _NS_PER_MS)) * _NS_PER_MS),
            period_ns=None if period is None else round(_number(where, "period_ms", period) * _NS_PER_MS),
        )

    def _box(self, box: Table, known: dict[str, Box], where: str) -> Box:
        name = box.get("name")
        here = f"box '{name}' of {where}" if where != "box" else f"box '{name}'"
        _check(here, box, {"name", "input", "inputs", "cost_us", "call_us", "selectivity", "bytes_in", "bytes_out", "window_ms"})
        if not isinstance(name, str) or name in known or name in self.sources:
            raise SimulationError(f"{here} needs a name of its own")
        names = box.get("inputs", [box["input"]] if "input" in box else [])
        inputs: list[Box | SimulatedSource] = []
        for one in names:
            found = known.get(one) or self._source(one)
            if found is None:
                raise SimulationError(f"{here} reads '{one}', which is neither a stream nor a box before it")
            inputs.append(found)
        if not inputs:
            raise SimulationError(f"{here} reads nothing", hint="give input or inputs")
        window = box.get("window_ms")
        size_in = _number(here, "bytes_in", box.get("bytes_in", 1))
        known[name] = Box(
            _number(here, "cost_us", box.get("cost_us", 1.0)) * _NS_PER_US,
            _number(here, "selectivity", box.get("selectivity", 1.0)),
            *inputs,
            call_ns=_number(here, "call_us", box.get("call_us", 0.0)) * _NS_PER_US,
            label=name,
            size=size_in,
            size_out=_number(here, "bytes_out", box.get("bytes_out", size_in)),
            window_ns=None if window is None else round(_number(here, "window_ms", window) * _NS_PER_MS),
        )
        return known[name]

    def _source(self, name: str) -> SimulatedSource | None:
        """Return a stream, or the present class's own reader of it."""
        source = self.sources.get(name)
        if source is None or self.sheds is None:
            return source
        key = (name, self.sheds.id)
        if key not in self.own:
            own = self.own[key] = self.builder.source(f"{name} for {self.sheds.name}")
            self.times[own] = self.times[source]
        return self.own[key]

    def _random(self, drawn: Table, index: int) -> None:
        where = f"random {index}"
        _check(where, drawn, {"kind", "queries", "streams", "seed", "shared", "cost_us", "window_s"})
        names = drawn.get("streams", list(self.sources))
        for name in names:
            if name not in self.sources:
                raise SimulationError(f"streams of {where} names '{name}', which is not a stream")
        sources = [self.sources[name] for name in names]
        queries, seed = int(_number(where, "queries", drawn.get("queries", 100))), int(drawn.get("seed", self.seed))
        unit_ns = _number(where, "cost_us", drawn.get("cost_us", 1.0)) * _NS_PER_US
        if drawn.get("kind") == "select-join-project":
            self.deltas += select_join_project(self.builder, sources, queries, seed, unit_ns=unit_ns, shared=int(drawn.get("shared", 1)))
        elif drawn.get("kind") == "window-join" and len(sources) == 2:
            low, high = drawn.get("window_s", [1.0, 10.0])
            left, right = sources
            self.deltas += window_joins(self.builder, left, right, queries, seed, window_s=(low, high), unit_ns=unit_ns)
        else:
            raise SimulationError(
                f"kind of {where} is not known or does not go with {len(sources)} streams",
                hint="kinds are select-join-project, and window-join over two streams",
            )


def _times(where: str, stream: Table, seed: int) -> arrivals.Times:
    kind = stream.get("kind", "poisson")
    if kind not in _STREAM_KEYS:
        raise SimulationError(f"kind of {where} is '{kind}'", hint="kinds are " + ", ".join(_STREAM_KEYS))
    _check(where, stream, {"kind", "burst", *_STREAM_KEYS[kind]})
    made = _made(where, kind, stream, seed)
    burst = stream.get("burst", 1)
    return arrivals.gather(made, burst) if burst != 1 else made


def _made(where: str, kind: str, stream: Table, seed: int) -> arrivals.Times:
    if kind == "times":
        times = np.sort(np.array(stream.get("times_ms", []), dtype=np.float64) * _NS_PER_MS)
        return times.round().astype(np.int64)
    if kind == "steps":
        pairs = [(float(rate), float(seconds)) for rate, seconds in stream.get("steps", [])]
        return arrivals.steps(pairs, seed, stream.get("count"))
    count = int(_number(where, "count", stream.get("count", 1_000)))
    rate = stream.get("rate")
    if kind == "trace":
        scale = stream.get("scale")
        return arrivals.trace(str(stream.get("trace", "dec-pkt-1")), count, rate=rate, scale=scale, skip=int(stream.get("skip", 0)))
    pace = _number(where, "rate", 100.0 if rate is None else rate)
    if kind == "on-off":
        return arrivals.on_off(
            pace, count, seed, shape=float(stream.get("shape", arrivals.PARETO_SHAPE)),
            sources=int(stream.get("sources", arrivals.ON_OFF_SOURCES)), period_tuples=float(stream.get("period", 10.0)),
        )  # fmt: skip
    return arrivals.poisson(pace, count, seed) if kind == "poisson" else arrivals.regular(pace, count)


def _class(name: str, one: Table, index: int) -> ClassNode:
    where = f"class.{name}"
    _check(where, one, {"priority", "target_ms", "may_shed"})
    target = one.get("target_ms")
    return ClassNode(
        ClassId(index),
        name,
        _number(where, "priority", one.get("priority", 1.0)),
        None if target is None else round(_number(where, "target_ms", target) * _NS_PER_MS),
        bool(one.get("may_shed", False)),
    )


def _graph(where: str, points: Sequence[Sequence[float]]) -> tuple[tuple[float, float], ...]:
    graph = tuple((float(at) / 1_000.0, float(value)) for at, value in points)
    if not graph or any(after[0] <= before[0] for before, after in itertools.pairwise(graph)):
        raise SimulationError(f"qos_ms of {where} does not ascend in latency")
    return graph


def _tables(table: Table, key: str) -> dict[str, Table]:
    found = table.get(key, {})
    if not isinstance(found, dict) or not all(isinstance(one, dict) for one in found.values()):
        raise SimulationError(f"{key} is not a group of tables", hint=f"write [{key}.NAME]")
    return found


def _check(where: str, table: Table, known: set[str]) -> None:
    unknown = sorted(set(table) - known)
    if unknown:
        raise SimulationError(f"{where} has no key '{unknown[0]}'", hint="it has " + ", ".join(sorted(known)))


def _number(where: str, key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SimulationError(f"{key} of {where} is not a number")
    if value < 0:
        raise SimulationError(f"{key} of {where} is negative")
    return float(value)
