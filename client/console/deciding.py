"""What the scheduler decides, and what it would have given under other policies: a look at decisions, and simulations of what arrived.

Decisions come as the trace that STOP RECORDING DECISIONS returns. A simulation is `millstream simulate` in a process of its own, one at a
time and for a bounded time, on the counts that the server keeps of what arrived.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from millstream.client.advice import OBJECTIVES
from millstream.client.console.pages import Connector
from millstream.client.console.processes import Alone, Bounds, printed
from millstream.client.errors import MillstreamError

LOOK_S_MAX = 10.0
ORDERS_TOLD_MAX = 200
SPANS_TOLD_MAX = 4_000
LAST_S_MAX = 3_600.0
POLICIES_MAX = 12
SIMULATION_S_MAX = 120.0
MINUTES_MAX = 10.0
LOADS = ("none", "common", "class", "dilos")
SWEEP = "load=0.3,0.5,0.7,0.9,0.95"
SWEEP_TIMES = 2.5  # as long as other simulations, at most
POLICY = re.compile(r"[A-Za-z0-9_:=+.-]{1,200}")
"""A policy as `simulate` takes it, with its options; `user:file=…` has a path, which this keeps out."""


async def decisions(connections: Connector, token: str | None, asked: dict[str, Any]) -> dict[str, Any]:
    """Return the decisions of so many `seconds` from now on, the last ones of many. MillstreamError as the server; ValueError."""
    seconds = _number(asked, "seconds", LOOK_S_MAX)
    async with connections.one(token) as client:
        await client.execute("START RECORDING DECISIONS")
        try:
            await asyncio.sleep(seconds)
            answer = await client.execute("STOP RECORDING DECISIONS")
        except MillstreamError:
            await client.abandon()  # the recording ends with its connection
            raise
        return digest(json.loads(answer.rows[0]["line"])["traceEvents"])


def digest(events: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return a trace as a page shows it: operators by number, spans of their runs, orders with reasons; times in µs from the first on."""
    names: dict[str, int] = {}
    spans: list[list[float]] = []
    orders: list[dict[str, Any]] = []
    began = None
    for event in events:
        if event["ph"] == "M":
            continue
        at = float(event["ts"])
        began = at if began is None else min(began, at)
        if event["ph"] == "X" and event["tid"] == 2:
            number = names.setdefault(event["name"], len(names))
            spans.append([at, event["dur"], number, event["args"]["rows"], event["args"]["out"]])
        elif event["ph"] == "i" and "steps" in event["args"]:
            orders.append({"at": at, "order": event["name"].removeprefix("order "), **event["args"]})
    spans, seen = spans[-SPANS_TOLD_MAX:], len(spans)
    first = began or 0.0
    for span in spans:
        span[0] = round(span[0] - first, 3)
    for order in orders:
        order["at"] = round(order["at"] - first, 3)
    return {
        "operators": list(names),
        "spans": spans,
        "spans_in_all": seen,
        "orders": orders[-ORDERS_TOLD_MAX:],
        "orders_in_all": len(orders),
    }


class Simulations:
    """Runs one simulation, or one search for advice, at a time."""

    def __init__(self, seconds_max: float = SIMULATION_S_MAX) -> None:
        self._alone = Alone("another simulation")
        self._seconds_max = seconds_max

    async def simulate(self, connections: Connector, token: str | None, asked: dict[str, Any]) -> dict[str, Any]:
        """Return what each of the `policies` would have given for what arrived in the last `last_s`, as `simulate --format json` says it;
        with `sweep` at several loads, as curves need it, with `load` under a load manager.

        MillstreamError when another simulation runs, nothing was kept, or it takes too long; ValueError for a request that is none.
        """
        policies = asked.get("policies")
        if not isinstance(policies, list) or not 0 < len(policies) <= POLICIES_MAX:
            raise ValueError(f"policies is a list of 1 to {POLICIES_MAX}")
        for policy in policies:
            if not isinstance(policy, str) or not POLICY.fullmatch(policy) or policy.startswith("-"):
                raise ValueError(f"{policy!r} is no policy that can be simulated here")
        words: tuple[str, ...] = ("simulate", "--policy", ",".join(policies), "--format", "json")
        load = asked.get("load", LOADS[0])
        if load not in LOADS:
            raise ValueError(f"load is one of {', '.join(LOADS)}")
        if load != LOADS[0]:
            words += ("--load", load)
        if asked.get("sweep") is True:
            words += ("--sweep", SWEEP)
        seconds_max = self._seconds_max * (SWEEP_TIMES if asked.get("sweep") is True else 1)
        text, notices = await self._about_the_last(connections, token, asked, words, seconds_max)
        return {"runs": [json.loads(line) for line in text.splitlines()], "notices": notices}

    async def advise(self, connections: Connector, token: str | None, asked: dict[str, Any]) -> dict[str, Any]:
        """Return the advice on what arrived in the last `last_s`, as `millstream.client.advice` gives it, sought for `minutes`.

        MillstreamError and ValueError as `simulate`.
        """
        objective = asked.get("objective")
        if objective not in OBJECTIVES:
            raise ValueError(f"objective is one of {', '.join(OBJECTIVES)}")
        minutes = _number(asked, "minutes", MINUTES_MAX)
        words = ("advise", "--objective", objective, "--minutes", str(minutes), "--processes", "1", "--format", "json")
        text, notices = await self._about_the_last(connections, token, asked, words, self._seconds_max + 90 * minutes)
        return {"advice": json.loads(text), "notices": notices}

    async def _about_the_last(
        self, connections: Connector, token: str | None, asked: dict[str, Any], words: tuple[str, ...], seconds_max: float
    ) -> tuple[str, list[str]]:
        """Return what a command printed about what arrived in the last `last_s`, and the server's notices."""
        last_s = _number(asked, "last_s", LAST_S_MAX)
        with self._alone.turn():
            async with connections.one(token) as client:
                answer = await client.execute(f"SHOW RECORDING LAST {round(last_s * 1_000)} MILLISECONDS")
            lines = "".join(f"{row['line']}\n" for row in answer)
            with TemporaryDirectory(prefix="millstream-console-") as folder:
                file = Path(folder) / "arrivals.recording"
                await asyncio.to_thread(file.write_text, lines, "utf-8")
                bounds = Bounds(seconds_max, "choose fewer policies or a shorter time")
                return await printed("the simulation", (words[0], str(file), *words[1:]), bounds), answer.notices


def _number(asked: dict[str, Any], name: str, most: float) -> float:
    value = asked.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0.001 <= value <= most:
        raise ValueError(f"{name} is a number up to {most:g}")
    return float(value)
