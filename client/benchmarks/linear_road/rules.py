"""What Linear Road must answer, and what is wrong with answers: written from the benchmark's rules, not from our queries.

The rules are those of Arasu et al. (VLDB 2004). Where implementations differ, these hold:

- LAV is the mean over minutes of the mean over cars of the mean of a car's reports; it is NULL where the five minutes had no report.
- An accident holds in a minute if two cars stood at one place at the end of the minute before: from the minute after the one in which it
  was detected to the one in which it is cleared.
- Of several accidents ahead of a car, the nearest is told.
- A trip ends with a report from lane 4. A car's first report is the first one in its segment, and so is the first after lane 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

SEGMENTS = 100
REPORT_S, MINUTE_S = 30, 60
EXIT_LANE = 4
STOP_REPORTS = 4
LAV_MINUTES, LAV_MPH, CARS_FREE = 5, 40, 50
REACH = 4  # segments before an accident that are told of it
BALANCE_AGE_S = 60  # a balance may be as old as this
CLOSE = 1e-9  # means may differ by their last bits
LIMITS_S = {"toll": 5.0, "accident": 5.0, "balance": 5.0, "expenditure": 10.0}
"""How soon after the row that causes it each answer must be there."""
SHOWN = 3

REPORT, BALANCE, EXPENDITURE = 0, 2, 3
READ: Mapping[int, Mapping[str, Any]] = {
    REPORT: {
        **dict.fromkeys(("dir", "lane", "seg"), np.int8),
        **dict.fromkeys(("xway", "speed"), np.int16),
        **dict.fromkeys(("pos", "time"), np.int32),
        "vid": np.int64,
    },
    BALANCE: dict.fromkeys(("qid", "vid", "time"), np.int64),
    EXPENDITURE: dict.fromkeys(("qid", "vid", "time", "xway", "day"), np.int64),
}
"""What is kept of each type of rows. Reports are narrow: three hours of ten expressways are 120 million."""

Arrays = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RoadAnswers:
    """What a system answered: the columns of each type, as arrays of equal length.

    toll: vid, time, lav (NaN for none), toll. accident: vid, time, xway, dir, seg. balance: qid, time, result_time, balance.
    expenditure: qid, time, toll.
    """

    toll: Arrays
    accident: Arrays
    balance: Arrays
    expenditure: Arrays


class Rules:
    """The right answers over the rows of a run (`traffic.COLUMNS`) and the tolls of earlier days (vid, day, xway, toll).

    `whole`: the rules over all rows where these are some of them; accidents are known from there.
    """

    def __init__(self, rows: Iterable[pa.RecordBatch], history: pa.Table, whole: Rules | None = None) -> None:
        self._whole = whole
        parts: dict[int, dict[str, list[Any]]] = {kind: {name: [] for name in names} for kind, names in READ.items()}
        for batch in rows:
            kinds = batch.column("type").to_numpy()
            for kind, names in READ.items():
                chosen = kinds == kind
                for name, width in names.items():
                    parts[kind][name].append(batch.column(name).to_numpy()[chosen].astype(width))
        asked = {kind: {name: np.concatenate(found.pop(name)) for name in READ[kind]} for kind, found in parts.items()}
        self._balances, self._expenditures = asked[BALANCE], asked[EXPENDITURE]
        self._history = history
        reports = asked[REPORT]
        order = np.lexsort((reports["time"], reports["vid"]))
        self._reports = {name: reports.pop(name)[order] for name in READ[REPORT]}

    # What holds on the roads -------------------------------------------------------------------------------------------

    @cached_property
    def _cell(self) -> Any:
        """The segment of each report, one number for expressway, direction and segment."""
        r = self._reports
        return (r["xway"].astype(np.int32) * 2 + r["dir"]) * SEGMENTS + r["seg"]

    @cached_property
    def _minutes(self) -> tuple[Any, Any]:
        """The average speed and the number of cars of each minute and segment, as two matrices; NaN where there was no report."""
        r, cell = self._reports, self._cell
        minute = r["time"] // MINUTE_S
        shape = int(minute.max(initial=0)) + 2, (int(cell.max(initial=0)) // SEGMENTS + 1) * SEGMENTS
        place = minute * shape[1] + cell
        order = np.argsort(place, kind="stable")  # reports are by car already
        place = place[order]
        begins = np.append(True, (place[1:] != place[:-1]) | (r["vid"][order][1:] != r["vid"][order][:-1]))
        first = np.flatnonzero(begins)
        of_car = np.add.reduceat(r["speed"][order], first) / np.diff(np.append(first, len(order)))
        cars = np.bincount(place[first], minlength=shape[0] * shape[1])
        speeds = np.bincount(place[first], of_car, minlength=shape[0] * shape[1])
        means = np.divide(speeds, cars, out=np.full(len(cars), np.nan), where=cars > 0)
        return means.reshape(shape), cars.reshape(shape)

    @cached_property
    def _lav(self) -> Any:
        """LAV of each minute, counted from 0, and segment; NaN where there is none."""
        means, _ = self._minutes
        known, total = np.zeros(means.shape, np.int64), np.zeros(means.shape)
        for back in range(1, LAV_MINUTES + 1):
            known[back:] += ~np.isnan(means[:-back])
            total[back:] += np.nan_to_num(means[:-back])
        return np.divide(total, known, out=np.full(means.shape, np.nan), where=known > 0)

    @cached_property
    def _accidents(self) -> Any:
        """Whether a segment has an accident that holds in a minute, counted from 0: a matrix as those of `_minutes`, or a larger one."""
        if self._whole is not None:
            return self._whole._accidents
        r = self._reports
        stands = np.ones(len(r["vid"]), np.bool_)
        for back in range(1, STOP_REPORTS):
            same = np.ones(len(stands), np.bool_)
            same[:back] = False
            for name in ("vid", "xway", "dir", "lane", "pos"):
                same[back:] &= r[name][back:] == r[name][:-back]
            stands &= same
        goes_on = np.append(r["vid"][1:] == r["vid"][:-1], False)
        until = np.where(goes_on, np.append(r["time"][1:], 0), r["time"] + REPORT_S)
        border = (r["time"] // MINUTE_S + 1) * MINUTE_S
        at_border = np.flatnonzero(stands & (until >= border))
        met: dict[tuple[int, ...], set[int]] = {}
        for i in at_border.tolist():
            place = int(border[i]) // MINUTE_S, int(self._cell[i]), int(r["lane"][i]), int(r["pos"][i])
            met.setdefault(place, set()).add(int(r["vid"][i]))
        holds = np.zeros(self._minutes[1].shape, np.bool_)
        for (minute, cell, *_), cars in met.items():
            holds[minute, cell] |= len(cars) > 1
        return holds

    # What is to be told ------------------------------------------------------------------------------------------------

    @cached_property
    def _entries(self) -> dict[str, Any]:
        """First reports in a segment, by car and time: `place` among the reports, whether the car drives on, LAV, accident and toll."""
        r, cell = self._reports, self._cell
        known = np.append(False, r["vid"][1:] == r["vid"][:-1])
        on_trip = known & np.append(False, r["lane"][:-1] != EXIT_LANE)
        place = np.flatnonzero(~on_trip | np.append(True, cell[1:] != cell[:-1]))
        minute, at = r["time"][place] // MINUTE_S, cell[place]
        lav, cars = self._lav[minute, at], np.where(minute > 0, self._minutes[1][minute - 1, at], 0)
        accident, seg, step = np.full(len(place), -1, np.int16), r["seg"][place].astype(np.int16), 1 - 2 * r["dir"][place].astype(np.int16)
        for ahead in range(REACH, -1, -1):  # the nearest comes last, and counts
            there = seg + step * ahead
            on_road = (there >= 0) & (there < SEGMENTS)
            told = on_road & self._accidents[minute, np.where(on_road, at + step * ahead, 0)]
            accident[told] = there[told]
        leaves = r["lane"][place] == EXIT_LANE
        price = np.where((cars > CARS_FREE) & (accident < 0) & ~leaves, 2 * (cars - CARS_FREE) ** 2, 0)
        toll = np.where(lav < LAV_MPH, price, 0)
        # Where a mean is the limit but for its last bits, these decide: nothing is right, and so is the toll.
        either = np.where(np.abs(lav - LAV_MPH) < CLOSE, price - toll, toll)
        columns = {name: r[name][place] for name in ("vid", "time", "xway", "dir")}
        return {**columns, "drives_on": on_trip[place], "leaves": leaves, "lav": lav, "accident": accident, "toll": toll, "either": either}

    @property
    def counts(self) -> dict[str, int]:
        """How many answers of each type there must be, and how many tolls are above zero."""
        e = self._entries
        stays = ~e["leaves"]
        return {
            "toll": int(stays.sum()),
            "accident": int((stays & (e["accident"] >= 0)).sum()),
            "balance": len(self._balances["qid"]),
            "expenditure": len(self._expenditures["qid"]),
            "charged": int((e["toll"] > 0).sum()),
        }

    def wrong(self, answers: RoadAnswers) -> list[str]:
        """Return what is wrong with answers, a sentence each: missing ones, ones that nobody asked for or that came twice, wrong values."""
        return [*self.wrong_of_tolls(answers), *self.wrong_of_warnings(answers)]

    def wrong_of_tolls(self, answers: RoadAnswers) -> list[str]:
        """Return what is wrong with tolls and balances."""
        return [*self._wrong_tolls(answers.toll), *self._wrong_balances(answers.balance)]

    def wrong_of_warnings(self, answers: RoadAnswers) -> list[str]:
        """Return what is wrong with warnings of accidents, and with answers of earlier days."""
        return [*self._wrong_accidents(answers.accident), *self._wrong_expenditures(answers.expenditure)]

    def tolls_alike(self, found: Arrays) -> int:
        """Return how many tolls are told as these rules have them."""
        e = {name: values[~self._entries["leaves"]] for name, values in self._entries.items()}
        _, mine, theirs = _paired("toll", e, found, ("vid", "time"))
        toll = found["toll"][theirs]
        return int(((toll == e["toll"][mine]) | (toll == e["either"][mine])).sum())

    def _wrong_tolls(self, found: Arrays) -> list[str]:
        e = {name: values[~self._entries["leaves"]] for name, values in self._entries.items()}
        faults, mine, theirs = _paired("toll", e, found, ("vid", "time"))
        lav, expected = found["lav"][theirs], e["lav"][mine]
        same = (np.abs(lav - expected) <= CLOSE * np.maximum(1, np.abs(expected))) | (np.isnan(lav) & np.isnan(expected))
        faults += _values("toll", "LAV", same, lav, expected, found["vid"][theirs], found["time"][theirs])
        toll, expected = found["toll"][theirs], e["toll"][mine]
        same = (toll == expected) | (toll == e["either"][mine])
        return faults + _values("toll", "toll", same, toll, expected, found["vid"][theirs], found["time"][theirs])

    def _wrong_accidents(self, found: Arrays) -> list[str]:
        told = ~self._entries["leaves"] & (self._entries["accident"] >= 0)
        e = {name: values[told] for name, values in self._entries.items()}
        faults, mine, theirs = _paired("accident", e, found, ("vid", "time"))
        for name, expected in (("seg", e["accident"]), ("xway", e["xway"]), ("dir", e["dir"])):
            same = found[name][theirs] == expected[mine]
            faults += _values("accident", name, same, found[name][theirs], expected[mine], found["vid"][theirs], found["time"][theirs])
        return faults

    def _wrong_balances(self, found: Arrays) -> list[str]:
        asked = self._balances
        faults, mine, theirs = _paired("balance", asked, found, ("qid", "time"))
        vid, time = asked["vid"][mine], asked["time"][mine]
        told, result_time = found["balance"][theirs], found["result_time"][theirs]
        # Charges of the very second may count or not, and so may tolls that the last bits of a mean decide.
        least = np.minimum(self._balance("toll", vid, result_time - 1), self._balance("either", vid, result_time - 1))
        most = np.maximum(self._balance("toll", vid, result_time), self._balance("either", vid, result_time))
        same = (told == least) | (told == most)
        faults += _values("balance", "balance", same, told, most, vid, time)
        fresh = (result_time <= time) & (result_time >= time - BALANCE_AGE_S)
        return faults + _values("balance", "result_time", fresh, result_time, time, vid, time)

    def _balance(self, tolls: str, vid: Any, until: Any) -> Any:
        """Return what each car has been charged up to a second, that second included."""
        e = self._entries  # by car and time
        paid = np.where(e["drives_on"], np.append(0, e[tolls][:-1]), 0)
        total = np.append(0, np.cumsum(paid))
        span = int(max(e["time"].max(initial=0), until.max(initial=0))) + 2
        keys = e["vid"] * span + e["time"]
        return total[np.searchsorted(keys, vid * span + until, side="right")] - total[np.searchsorted(keys, vid * span, side="left")]

    def _wrong_expenditures(self, found: Arrays) -> list[str]:
        asked = self._expenditures
        faults, mine, theirs = _paired("expenditure", asked, found, ("qid", "time"))
        days = zip(*(self._history.column(name).to_pylist() for name in ("vid", "day", "xway")), strict=True)
        paid = dict(zip(days, self._history.column("toll").to_pylist(), strict=True))
        of = zip(*(asked[name][mine].tolist() for name in ("vid", "day", "xway")), strict=True)
        expected = np.array([paid.get(key, 0) for key in of], np.int64)
        same = found["toll"][theirs] == expected
        return faults + _values("expenditure", "toll", same, found["toll"][theirs], expected, asked["vid"][mine], asked["time"][mine])


def late(kind: str, response_s: Any, speedup: float = 1.0) -> list[str]:
    """Return a sentence if answers of a type took longer than their limit, which is as much smaller as a run is faster."""
    limit = LIMITS_S[kind] / speedup
    over = int((np.asarray(response_s) > limit).sum())
    return [f"{over} {kind} answers took longer than {limit:.3g} s, the slowest {np.max(response_s):.3g} s"] if over else []


def _paired(kind: str, expected: Arrays, found: Arrays, key: tuple[str, str]) -> tuple[list[str], Any, Any]:
    """Match answers by key; return faults, and the places of those that match among the expected and the found ones."""
    span = int(max(expected[key[1]].max(initial=0), found[key[1]].max(initial=0))) + 1
    wanted, given = (side[key[0]] * span + side[key[1]] for side in (expected, found))
    order = np.argsort(given, kind="stable")
    ordered = given[order]
    twice = np.zeros(len(ordered), np.bool_)
    twice[1:] = ordered[1:] == ordered[:-1]
    once, keys = order[~twice], ordered[~twice]
    _, mine, theirs = np.intersect1d(wanted, keys, assume_unique=True, return_indices=True)
    missing, extra = np.setdiff1d(wanted, keys), np.setdiff1d(keys, wanted)
    faults = []
    for what, which in (("missing", missing), ("not called for", extra), ("told twice", ordered[twice])):
        if len(which):
            shown = ", ".join(f"{key[0]} {k // span} at {k % span}" for k in which[:SHOWN].tolist())
            faults.append(f"{len(which)} {kind} answers are {what}: {shown}")
    return faults, mine, once[theirs]


def _values(kind: str, what: str, same: Any, found: Any, expected: Any, vid: Any, time: Any) -> list[str]:
    wrong = np.flatnonzero(~same)
    shown = ", ".join(f"{found[i]} instead of {expected[i]} (vid {vid[i]} at {time[i]})" for i in wrong[:SHOWN])
    return [f"{len(wrong)} {kind} answers have a wrong {what}: {shown}"] if len(wrong) else []
