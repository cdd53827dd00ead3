"""Joins: stream with stream within a bound, stream with table, as-of; row against row (K2, K4, K6, K18, K20)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.property.oracle.expressions import Expr
from tests.property.oracle.feeds import Event, Feed, Row, merged

Bound = Callable[[int, int], bool]


@dataclass(frozen=True)
class Key:
    """One comparison of ON: a column of each side, NULL matching NULL or not."""

    left: str
    right: str
    null_safe: bool = False


def _equal(a: Any, b: Any, null_safe: bool) -> bool:
    if a is None or b is None:
        return null_safe and a is None and b is None
    both_nan = isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b)
    return bool(both_nan or a == b)


def on_holds(keys: Sequence[Key], residual: Expr | None, left: Row, right: Row) -> bool:
    """Whether ON is true for a pair."""
    if not all(_equal(left[k.left], right[k.right], k.null_safe) for k in keys):
        return False
    return residual is None or residual.value({**left, **right}) is True


@dataclass
class _Held:
    time: int
    seq: int
    row: Row
    matched: bool = False


def join(
    left: Feed,
    right: Feed,
    kind: str,
    keys: Sequence[Key],
    residual: Expr | None,
    bound: Bound,
    reach: tuple[int, int],
    sql: str,
) -> Feed:
    """Pairs for which `bound(left time, right time)` and ON hold.

    `reach` is how much later than a left, and than a right row its partner may be: so long waits what has none, and so far is W behind.
    The columns of both sides must have different names. Pairs come with the later row, then by the arrival of the earlier.
    """
    kept = [which for which in (0, 1) if kind in ("FULL", ("LEFT", "RIGHT")[which])]
    result = Feed(sql, left.columns + right.columns)
    held: tuple[list[_Held], list[_Held]] = ([], [])
    pads = ({n: None for n, _ in left.columns}, {n: None for n, _ in right.columns})
    low = -math.inf
    found: list[tuple[int, int, int, Row]] = []  # pairs at one arrival number: the earlier row's, the left row's, the time, the row
    for seq, side, event, after in merged([left, right]):
        if not result.events or result.events[-1].seq != seq:
            result.events.append(Event(seq, [], -math.inf))
            found = []
        made = result.events[-1]
        padded = made.rows[len(found) :]
        for time, row in event.rows:
            if time < low:
                result.late += 1
                continue
            mine = _Held(time, seq, row)
            held[side].append(mine)
            for other in held[1 - side]:
                one, two = (mine, other) if side == 0 else (other, mine)
                if bound(one.time, two.time) and on_holds(keys, residual, one.row, two.row):
                    one.matched = two.matched = True
                    found.append((other.seq, one.seq, max(one.time, two.time), {**one.row, **two.row}))
        low = after
        for which in kept:
            for waiting in [h for h in held[which] if not h.matched and h.time + reach[which] < low]:
                waiting.matched = True
                padded.append((waiting.time, {**pads[0], **pads[1], **waiting.row}))
        made.rows = [(time, row) for _, _, time, row in sorted(found, key=lambda f: f[:2])] + padded
        made.watermark = low - max((reach[which] for which in kept), default=0)
    return result


def table_join(
    stream: Feed,
    changes: Sequence[tuple[int, Row]],
    kind: str,
    keys: Sequence[Key],
    residual: Expr | None,
    primary: str,
    columns: Any,
    sql: str,
) -> Feed:
    """Each stream row with the rows that the table holds at its place; `changes` are (arrival number, row), `op` '-' deleting."""
    result = Feed(sql, [*stream.columns, *columns])
    pad = {n: None for n, _ in columns}
    for event in stream.events:
        state: dict[Any, Row] = {}
        for seq, row in changes:
            if seq <= event.seq:
                state.pop(row[primary], None)
                if row.get("op") != "-":
                    state[row[primary]] = row
        made: list[tuple[int, Row]] = []
        for time, row in event.rows:
            found = [{**row, **{n: r[n] for n, _ in columns}} for r in state.values() if on_holds(keys, residual, row, r)]
            made += [(time, f) for f in found or ([{**row, **pad}] if kind == "LEFT" else [])]
        result.events.append(Event(event.seq, made, event.watermark))
    return result


def asof(left: Feed, right: Feed, kind: str, keys: Sequence[Key], sql: str, operator: str = "<=", within: int | None = None) -> Feed:
    """Each left row with the nearest right row that right.ts `operator` left.ts lets it have, at most `within` away.

    It comes once the right W has passed its time, looking back, or the time of what it found, looking ahead.
    """
    if operator in (">", ">="):
        return _asof_ahead(left, right, kind, keys, sql, operator, within)
    result = Feed(sql, left.columns + right.columns)
    waiting: list[tuple[int, Row]] = []
    versions: list[tuple[int, int, Row]] = []
    pad = {n: None for n, _ in right.columns}
    low, right_reached, count = -math.inf, -math.inf, 0
    for seq, side, event, after in merged([left, right]):
        for time, row in event.rows:
            if time < low:
                result.late += 1
            elif side == 0:
                waiting.append((time, row))
            else:
                count += 1
                versions.append((time, count, row))
        low = after
        if side == 1:
            right_reached = max(right_reached, event.watermark)
        made = []
        for time, row in [w for w in waiting if w[0] < right_reached + (operator == "<")]:
            fitting = [v for v in versions if v[0] < time + (operator == "<=") and on_holds(keys, None, row, v[2])]
            fitting = [v for v in fitting if within is None or time - v[0] <= within]
            if fitting:
                made.append((time, {**row, **max(fitting, key=lambda v: v[:2])[2]}))
            elif kind == "LEFT":
                made.append((time, {**row, **pad}))
        waiting = [w for w in waiting if w[0] >= right_reached + (operator == "<")]
        result.events.append(Event(seq, made, low))
    return result


def _asof_ahead(left: Feed, right: Feed, kind: str, keys: Sequence[Key], sql: str, operator: str, within: int | None) -> Feed:
    result = Feed(sql, left.columns + right.columns)
    waiting: list[tuple[int, Row]] = []
    versions: list[tuple[int, int, Row]] = []
    pad = {n: None for n, _ in right.columns}
    low, reached, count = -math.inf, -math.inf, 0
    lag = 0.0 if kind != "LEFT" else math.inf if within is None else within
    for seq, side, event, after in merged([left, right]):
        for time, row in event.rows:
            if time < low:
                result.late += 1
            elif side == 0:
                waiting.append((time, row))
            else:
                count += 1
                versions.append((time, -count, row))
        low = after
        if side == 1:
            reached = max(reached, event.watermark)
        made, still = [], []
        for time, row in waiting:
            fitting = [v for v in versions if v[0] >= time + (operator == ">") and on_holds(keys, None, row, v[2])]
            best = min((v for v in fitting if within is None or v[0] - time <= within), key=lambda v: v[:2], default=None)
            if best is not None and best[0] < reached:
                made.append((best[0], {**row, **best[2]}))
            elif best is None and (reached == math.inf or (within is not None and time + within < reached)):
                made += [(time, {**row, **pad})] if kind == "LEFT" else []
            else:
                still.append((time, row))
        waiting = still
        result.events.append(Event(seq, made, low if low == math.inf else low - lag))
    return result
