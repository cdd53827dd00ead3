"""The figures of now, those of the last fifteen minutes, and what happened: of the looks at a server. No socket and no clock in here."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from millstream.client.top.model import Look, Row, behind_ms, in_milliseconds, policy_in_use, with_rates

SAMPLES_MAX = 900
"""Fifteen minutes, at a look a second."""
EVENTS_MAX = 500
OBJECTS_MAX = 2_000
"""Queries, streams and classes with a past of their own, 15 KiB each; of more, only the figures of now are known."""
SPARK_SAMPLES = 60
TOTAL = ("all", "")
MEASURED = {
    "queries": ("rows_per_s", "results_per_s", "latency_now_ms", "queued", "memory_bytes", "shed_per_s"),
    "streams": ("rows_per_s", "behind_ms"),
    "classes": ("latency_now_ms", "load", "headroom", "quota", "drop_percent"),
    "all": ("rows_per_s", "results_per_s", "latency_now_ms", "rows_waiting", "memory_bytes", "busy_cores"),
}
"""Of each kind of thing, what has a past."""
SPARKS = {"queries": ("results_per_s", "latency_now_ms"), "streams": ("rows_per_s",), "classes": ("latency_now_ms", "load")}
SHOWN = {
    "queries": (
        "name", "state", "class", "rows_per_s", "results_per_s", "latency_now_ms", "latency_p50_ms", "latency_p99_ms", "target",
        "target_since", "slowdown", "utility", "queued", "shed_percent", "memory_bytes",
        "spilled_bytes", "results", "accepted", "shed", "shed_per_s", "late", "failure", "streams",
    ),
    "streams": ("name", "kind", "state", "rows_per_s", "accepted", "refused", "shed", "behind_ms", "columns"),
    "classes": (
        "name", "priority", "target_ms", "verdict", "verdict_since", "may_shed", "latency_now_ms", "latency_p50_ms", "latency_p99_ms",
        "slowdown", "loss_percent", "load", "headroom", "quota", "drop_percent", "accepted", "shed",
    ),
}  # fmt: skip
"""The columns of each table, in the order in which a page is given them."""
Key = tuple[str, str]
Floats = npt.NDArray[np.float32]


class Past:
    """What a server did and does, as far as it was looked at."""

    def __init__(self) -> None:
        self.looks = 0
        self.now: dict[str, list[dict[str, Any]]] = {}
        self.totals: dict[str, float | None] = {}
        self.policy = ""
        self.policies: list[dict[str, Any]] = []
        self.scheduler: dict[str, str] = {}
        self.events: deque[dict[str, Any]] = deque(maxlen=EVENTS_MAX)
        self._times_ms: npt.NDArray[np.float64] = np.full(SAMPLES_MAX, np.nan)
        self._rings: dict[tuple[str, str, str], Floats] = {}  # the last samples by kind, name, measure; NaN where nothing is known
        self._seen: dict[Key, int] = {}
        self._before: Look | None = None
        self._verdicts: dict[str, tuple[str, float]] = {}
        self._decision = 0
        self._told = 0
        self._streams: dict[Key, str] = {}  # that a query reads, by its name and state

    # --- taking a look ---

    def take(self, look: Look) -> None:
        """Note a look: it becomes the figures of now, a sample of the past, and the events that lie between it and the one before."""
        before = self._before
        seconds = None if before is None or look.at_s <= before.at_s else look.at_s - before.at_s
        old = before if before is not None else Look(0.0, look.now, {})
        at_ms = look.now.timestamp() * 1_000
        self.scheduler = {str(row["measure"]): str(row["value"]) for row in look.table("SCHEDULER")}
        measures = {(str(row["scope"]), str(row["name"])): row for row in look.table("MEASURES")}
        if operators := look.table("OPERATORS"):
            read, before_by_name = streams_read(operators), {name: streams for (name, _), streams in self._streams.items()}
            self._streams = {
                _key(row): ", ".join(sorted(read.get(str(row["name"]), ()))) or before_by_name.get(str(row["name"]), "")
                for row in look.table("QUERIES")
            }
        self.now = {
            "queries": _queries(look, old, seconds, measures, self._streams),
            "streams": _streams(look, old, seconds),
            "classes": self._classes(look, old, measures, at_ms),
        }
        policy = policy_in_use(look.table("POLICIES"), self.scheduler)
        if before is not None:
            self._tell_changes(old, look, policy, at_ms)
        self._tell_decisions(look, quietly=before is None)
        self.policy, self.policies = policy, [dict(row) for row in look.table("POLICIES")]
        earlier = {str(row["measure"]): str(row["value"]) for row in old.table("SCHEDULER")}
        self.totals = self._sums(earlier, seconds)
        self._keep(at_ms)
        self._before = look

    def lacks_streams(self) -> bool:
        """Whether the last look had queries of which it is not known what they read: SHOW OPERATORS tells."""
        return self._before is None or any(_key(row) not in self._streams for row in self._before.table("QUERIES"))

    def lost(self, at_ms: float, why: str) -> None:
        """Note that the server does not answer any more."""
        if self._before is not None:
            self._tell(at_ms, "server", "", f"the server does not answer: {why}", bad=True)
            self._before = None

    def _classes(self, look: Look, old: Look, measures: Mapping[Key, Row], at_ms: float) -> list[dict[str, Any]]:
        earlier = {str(row["name"]): row for row in old.table("CLASSES")}
        rows = []
        for row in look.table("CLASSES"):
            name, target_ms = str(row["name"]), in_milliseconds(row.get("target"))
            now_ms = latency_since(row, earlier.get(name))
            if target_ms is None:
                self._verdicts.pop(name, None)
            elif now_ms is not None:
                verdict = "met" if now_ms <= target_ms else "missed"
                if self._verdicts.get(name, ("", 0.0))[0] != verdict:
                    if name in self._verdicts or verdict == "missed":
                        text = f"class {name} {'meets' if verdict == 'met' else 'misses'} its target of {target_ms:g} ms"
                        self._tell(at_ms, "classes", name, text, bad=verdict == "missed")
                    self._verdicts[name] = verdict, at_ms
            stands, since = self._verdicts.get(name, (None, None))
            p50 = measures.get(("class", name), {}).get("latency_p50_ms")
            told = {"target_ms": target_ms, "verdict": stands, "verdict_since": since, "latency_now_ms": now_ms, "latency_p50_ms": p50}
            rows.append({**row, **told})
        return rows

    def _sums(self, earlier: Mapping[str, str], seconds: float | None) -> dict[str, float | None]:
        busy, before = _number(self.scheduler.get("busy_ns")), _number(earlier.get("busy_ns"))
        queries, streams = self.now["queries"], self.now["streams"]
        weighed = [
            (row["latency_now_ms"], row["results_per_s"]) for row in queries if row["latency_now_ms"] is not None and row["results_per_s"]
        ]
        results = sum(rate for _, rate in weighed)
        return {
            "rows_per_s": _sum(row["rows_per_s"] for row in streams),
            "results_per_s": _sum(row["results_per_s"] for row in queries),
            "latency_now_ms": sum(latency * rate for latency, rate in weighed) / results if results else None,
            "rows_waiting": _number(self.scheduler.get("rows_waiting")),
            "memory_bytes": _sum(row.get("memory_bytes") for row in queries),
            "busy_cores": None if None in (busy, before, seconds) or busy < before else (busy - before) / seconds / 1e9,  # type: ignore[operator]
        }

    def _keep(self, at_ms: float) -> None:
        place = self.looks % SAMPLES_MAX
        self.looks += 1
        self._times_ms[place] = at_ms
        for ring in self._rings.values():
            ring[place] = np.nan
        self._sample("all", "", self.totals, place)
        for kind in ("streams", "classes", "queries"):
            for row in self.now[kind]:
                self._sample(kind, str(row["name"]), row, place)
        if place == 0:
            self._forget()

    def _sample(self, kind: str, name: str, row: Mapping[str, Any], place: int) -> None:
        if (kind, name) not in self._seen and len(self._seen) >= OBJECTS_MAX:
            return
        self._seen[kind, name] = self.looks
        for measure in MEASURED[kind]:
            value = row.get(measure)
            if value is not None:
                ring = self._rings.get((kind, name, measure))
                if ring is None:
                    ring = self._rings[kind, name, measure] = np.full(SAMPLES_MAX, np.nan, np.float32)
                ring[place] = value

    def _forget(self) -> None:
        """Let go of what was not seen for as long as the past is."""
        gone = {key for key, seen in self._seen.items() if seen <= self.looks - SAMPLES_MAX}
        self._seen = {key: seen for key, seen in self._seen.items() if key not in gone}
        self._rings = {key: ring for key, ring in self._rings.items() if key[:2] not in gone}

    # --- events ---

    def _tell(self, at_ms: float, kind: str, name: str, text: str, *, bad: bool = False) -> None:
        self._told += 1
        self.events.append({"number": self._told, "at": at_ms, "kind": kind, "name": name, "text": text, "bad": bad})

    def _tell_changes(self, old: Look, look: Look, policy: str, at_ms: float) -> None:
        if policy != self.policy:
            self._tell(at_ms, "policy", policy, f"the policy is {policy}, before it was {self.policy}")
        for kind, noun in (("QUERIES", "query"), ("STREAMS", "stream"), ("CLASSES", "class")):
            before = {str(row["name"]): row for row in old.table(kind)}
            after = {str(row["name"]): row for row in look.table(kind)}
            for name in before.keys() - after.keys():
                self._tell(at_ms, kind.lower(), name, f"{noun} {name} is gone")
            for name, row in after.items():
                was = before.get(name)
                if was is None:
                    self._tell(at_ms, kind.lower(), name, f"{noun} {name} came")
                elif row.get("state") != was.get("state"):
                    bad = row.get("state") == "failed"
                    self._tell(at_ms, kind.lower(), name, f"{noun} {name} is {row.get('state')}", bad=bad)
                elif row.get("target") != was.get("target") and row.get("target") in ("met", "missed"):
                    self._tell(at_ms, kind.lower(), name, f"query {name}: target {row['target']}", bad=row["target"] == "missed")

    def _tell_decisions(self, look: Look, *, quietly: bool) -> None:
        for row in look.table("DECISIONS"):
            if int(row["number"]) > self._decision:
                self._decision = int(row["number"])
                if not quietly:
                    text = f"optimiser, for {row['query']}: {row['action']} ({row['reason']})"
                    self._tell(float(row["time"]) / 1_000, "optimiser", str(row["query"]), text)

    # --- what pages are told ---

    def state(self) -> dict[str, Any]:
        """Return the figures of now: tables by column, totals, the policy. Events are told by number (`events_after`)."""
        at = self._times_ms[(self.looks - 1) % SAMPLES_MAX] if self.looks else math.nan
        tables = {kind: [[_plain(row.get(name)) for name in SHOWN[kind]] for row in rows] for kind, rows in self.now.items()}
        totals = {name: _plain(value) for name, value in self.totals.items()}
        return {"at": _plain(at), "policy": self.policy, "tables": tables, "totals": totals, "scheduler": self.scheduler}

    def events_after(self, number: int) -> list[dict[str, Any]]:
        """Return the events since the one with that number, the oldest first."""
        return [event for event in self.events if event["number"] > number]

    def of(self, kind: str, name: str) -> dict[str, Any]:
        """Return the past of one thing: times in ms since 1970, and a column for each measure; none of a thing that is not known."""
        order = self._order()
        columns = {
            measure: _listed(ring[order])
            for measure in MEASURED.get(kind, ())
            if (ring := self._rings.get((kind, name, measure))) is not None
        }
        return {"times": self._times_ms[order].tolist(), "measures": columns}

    def sparks(self) -> dict[str, dict[str, dict[str, list[float | None]]]]:
        """Return the last minute of what tables draw, by kind, name and measure."""
        order = self._order()[-SPARK_SAMPLES:]
        found: dict[str, dict[str, dict[str, list[float | None]]]] = {}
        for kind, measures in SPARKS.items():
            for row in self.now.get(kind, ()):
                name = str(row["name"])
                rings = {measure: self._rings.get((kind, name, measure)) for measure in measures}
                found.setdefault(kind, {})[name] = {m: _listed(ring[order]) for m, ring in rings.items() if ring is not None}
        return found

    def _order(self) -> npt.NDArray[np.int64]:
        """Return the places of the samples, the oldest first."""
        kept = min(self.looks, SAMPLES_MAX)
        return (np.arange(kept) + (self.looks - kept)) % SAMPLES_MAX


def latency_since(row: Row, before: Row | None) -> float | None:
    """Return the mean latency in ms of the results since the look before, of two means over all results; None where none came."""
    if before is None or row.get("latency_ms") is None:
        return None
    told_before = before["results"] or 0
    more = row["results"] - told_before
    if more <= 0:
        return None
    total = row["latency_ms"] * row["results"] - (before["latency_ms"] or 0.0) * told_before
    return max(0.0, float(total) / float(more))


def streams_read(operators: Iterable[Row]) -> dict[str, set[str]]:
    """Return by query the streams that its rows come from, as SHOW OPERATORS has it: directly, or over operators and derived streams."""
    rows = {int(row["operator"]): row for row in operators}
    known: dict[int, set[str]] = {}

    def read(number: int) -> set[str]:
        if number not in known:
            known[number] = set(rows[number]["reads_streams"])
            for behind in rows[number]["reads_operators"]:
                if behind in rows:
                    known[number] |= read(behind)
        return known[number]

    found: dict[str, set[str]] = {}
    for number in sorted(rows):  # whoever reads came later: no long chain of calls
        for query in rows[number]["serves"]:
            found.setdefault(str(query), set()).update(read(number))
    return found


def _key(query: Row) -> tuple[str, str]:
    """Return name and state: who was stopped has no operators, and has some again when it is started."""
    return str(query["name"]), str(query.get("state"))


def _queries(look: Look, old: Look, seconds: float | None, measures: Mapping[Key, Row], streams: Mapping[Key, str]) -> list[dict[str, Any]]:
    rates = {"rows_per_s": "accepted", "results_per_s": "results", "shed_per_s": "shed"}
    earlier = {str(row["name"]): row for row in old.table("QUERIES")}
    rows = []
    for row in with_rates(look.table("QUERIES"), old.table("QUERIES"), seconds, rates):
        name = str(row["name"])
        since = row.get("target_since")
        shed = None if not row.get("accepted") else 100.0 * (row.get("shed") or 0) / row["accepted"]
        told = {
            "latency_now_ms": latency_since(row, earlier.get(name)),
            "latency_p50_ms": measures.get(("query", name), {}).get("latency_p50_ms"),
            "shed_percent": shed,
            "target_since": None if since is None else since / 1_000,
            "streams": streams.get(_key(row)),
        }
        rows.append({**row, **told})
    return rows


def _streams(look: Look, old: Look, seconds: float | None) -> list[dict[str, Any]]:
    behind = {str(row["stream"]): behind_ms(row.get("watermark"), look.now) for row in look.table("WATERMARKS")}
    rows = with_rates(look.table("STREAMS"), old.table("STREAMS"), seconds, {"rows_per_s": "accepted"})
    return [{**row, "behind_ms": behind.get(str(row["name"]))} for row in rows]


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _listed(values: Floats) -> list[float | None]:
    return [None if math.isnan(value) else float(f"{value:.5g}") for value in values.tolist()]


def _plain(value: Any) -> Any:
    """Return a value as JSON knows it; five digits of a fraction are enough for a page."""
    if isinstance(value, float):
        return (
            float(f"{value:.13g}")
            if math.isfinite(value) and abs(value) >= 1e9
            else float(f"{value:.5g}")
            if math.isfinite(value)
            else None
        )
    return value
