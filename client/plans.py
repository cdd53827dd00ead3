"""Plan objects built in Python: the same words as the JSON form (docs/language.md, Plan objects), checked for shape as they are made.

    from millstream.client import plans as p
    root = p.source("s").select("v > 3", selectivity=0.5)
    root = root.aggregate(window="RANGE 10 SECONDS SLIDE 1 SECOND", group_by=["k"], aggregates=[("mean", "AVG", "v")])
    ms.submit(p.Plan(root, name="avg", qos={"latency": [(0, 1), (1, 0)]}))

Conditions, expressions, windows and durations are text of the language; the server reads and checks them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

VERSION = 1
JOIN_KINDS = ("inner", "left", "right", "full", "asof", "left asof")


@dataclass(frozen=True)
class Node:
    """One operator of a plan with its inputs. Made by `source` and the methods; `words` are what the JSON form says."""

    words: Mapping[str, Any]

    def select(self, condition: str, **estimates: float) -> Node:
        """Rows for which `condition` is true. `estimates`: `selectivity` (0 to 1 and beyond), `cost_us` a row."""
        return self._over("select", estimates, condition=condition)

    def project(self, columns: Mapping[str, str] | Iterable[tuple[str, str]] | str, **estimates: float) -> Node:
        """New columns: name to expression, in order; or `"*"`."""
        pairs = columns if isinstance(columns, str) else [list(pair) for pair in _pairs(columns)]
        return self._over("project", estimates, columns=pairs)

    def split(self, condition: str, *, keep: bool = True, **estimates: float) -> Node:
        """One side of a split: the rows for which `condition` is true (`keep`), or the others."""
        return self._over("split", estimates, condition=condition, keep=keep)

    def aggregate(
        self,
        *,
        aggregates: Iterable[tuple[str, str, str]],
        window: str | None = None,
        group_by: Sequence[str] = (),
        where: str | None = None,
        **estimates: float,
    ) -> Node:
        """Aggregates `(name, function, expression)` per window and group."""
        listed = [list(aggregate) for aggregate in aggregates]
        return self._over("aggregate", estimates, window=window, where=where, group_by=list(group_by), aggregates=listed)

    def distinct(self, **estimates: float) -> Node:
        """Each row once."""
        return self._over("distinct", estimates)

    def top(self, limit: int, order_by: str, **estimates: float) -> Node:
        """The first `limit` rows by `order_by`."""
        if limit < 1:
            raise ValueError("limit must be at least 1")
        return self._over("top", estimates, order_by=order_by, limit=limit)

    def join(
        self, right: Node, on: str, *, kind: str = "inner", within: str | None = None, windows: Sequence[str] = (), **estimates: float
    ) -> Node:
        """Pairs of rows for which `on` is true, within a duration or in windows on both sides."""
        if kind not in JOIN_KINDS:
            raise ValueError(f"kind must be one of {', '.join(JOIN_KINDS)}, not {kind!r}")
        return _node("join", estimates, inputs=[self.words, right.words], kind=kind, on=on, within=within, windows=list(windows) or None)

    def _over(self, op: str, estimates: Mapping[str, float], **words: Any) -> Node:
        return _node(op, estimates, input=self.words, **words)


def _node(op: str, estimates: Mapping[str, float], **words: Any) -> Node:
    unknown = set(estimates) - {"selectivity", "cost_us"}
    if unknown:
        raise ValueError(f"{op} has no {', '.join(sorted(unknown))}; estimates are selectivity and cost_us")
    if any(value < 0 for value in estimates.values()):
        raise ValueError(f"{op}: selectivity and cost_us cannot be negative")
    said = {name: value for name, value in words.items() if value is not None}
    return Node({"op": op, **said, **estimates})


def _pairs(columns: Mapping[str, str] | Iterable[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    return columns.items() if isinstance(columns, Mapping) else columns


def source(stream: str) -> Node:
    """The rows of a stream or table."""
    return Node({"op": "source", "stream": stream})


def union(first: Node, *others: Node) -> Node:
    """The rows of all inputs, in order of arrival."""
    return _node("union", {}, inputs=[node.words for node in (first, *others)])


@dataclass(frozen=True)
class Plan:
    """A whole plan: the root node, and what concerns the query as a whole.

    `qos` as in the JSON form: `latency` a list of (seconds, utility), `latency_target` (a duration), `memory_bytes_max`,
    `tolerance_percent`. `emit` is EMIT's text, `stream` is `i`, `d` or `r`, the latter perhaps with `every` (a duration).
    """

    root: Node
    name: str | None = None
    class_: str | None = None
    qos: Mapping[str, Any] = field(default_factory=dict)
    start: str | None = None
    lifetime: str | None = None
    emit: str | None = None
    stream: str | None = None
    every: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as it goes over the wire."""
        if self.stream not in (None, "i", "d", "r"):
            raise ValueError(f"stream must be i, d or r, not {self.stream!r}")
        when = _said(emit=self.emit, stream=self.stream, every=self.every)
        root = dict(self.root.words)
        head = _said(name=self.name, qos=_plain_qos(self.qos) or None, start=self.start, lifetime=self.lifetime)
        if self.class_ is not None:
            head["class"] = self.class_
        if root["op"] == "source":  # whose `stream` is a name
            return {"version": VERSION, **head, **when, "root": root}
        return {"version": VERSION, **head, "root": {**root, **when}}

    def to_json(self) -> str:
        """Return the JSON form, as `millstream query submit --plan FILE.json` reads it."""
        return json.dumps(self.to_dict(), indent=2)


def _said(**words: Any) -> dict[str, Any]:
    return {name: value for name, value in words.items() if value is not None}


def _plain_qos(qos: Mapping[str, Any]) -> dict[str, Any]:
    return {name: [list(point) for point in value] if name == "latency" else value for name, value in qos.items()}
