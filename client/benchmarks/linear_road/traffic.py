"""Traffic of Linear Road: cars on L expressways of 100 segments, by the benchmark's published rules (Arasu et al., VLDB 2004).

Every car reports each 30 s: first in lane 0 (entry), then in lanes 1 to 3, last in lane 4 (exit). The more cars in a segment, the slower
they drive, so segments come to more than 50 cars and less than 40 mph. Accidents are two cars that stand at one place for four reports and
more; some cars stand alone, which is none. One report in 200 comes with a question for the account's balance, one in 1,000 with one for the
tolls of an earlier day. Some cars come back for a second trip.

The original generator (MITSIM) is not repeated: streams agree in shape, not in values. The rows depend on the fields of `Traffic` alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

SEGMENTS, SEGMENT_FEET = 100, 5_280
REPORT_S = 30
RUN_S = 3 * 3_600
FEET_PER_MPH = REPORT_S * SEGMENT_FEET // 3_600  # what a car drives between two reports
ENTRY, EXIT = 0, 4
DAYS = 69  # of history: ten weeks without today
BALANCES_PER_REPORT, EXPENDITURES_PER_REPORT = 1 / 200, 1 / 1_000
RAMP_S, RATE_MIN, RATE_MAX = 7_200, 17.0, 1_700.0  # reports a second of an expressway: a ramp of two hours, then one hour of the most
FILLING_S = 600  # traffic that is not shown, before rows that begin later than at 0
FASTEST_MPH, SLOWEST_MPH = 100, 6
HOT_SEGMENT = 45
RETURNS = 0.3  # of those who enter, once others have left
PASSING_MPH = 18  # past an accident

COLUMNS = ("type", "time", "vid", "speed", "xway", "lane", "dir", "seg", "pos", "qid", "sinit", "send", "dow", "tod", "day")
WIDE = ("time", "vid")
SCHEMA = pa.schema([(name, pa.int64() if name in WIDE else pa.int32()) for name in COLUMNS])
REPORT, BALANCE, EXPENDITURE = 0, 2, 3


@dataclass(frozen=True)
class Traffic:
    """Rows of `seconds` from second `begin_s` on, for so many expressways.

    `rate_max` are reports a second of one expressway at most. Around the busiest segment, most cars enter within `spread` segments; a
    segment of `jam_cars` cars stands nearly still. An expressway has an accident every `accident_s` seconds, on average.
    """

    expressways: int = 1
    seconds: int = RUN_S
    begin_s: int = 0
    seed: int = 1
    rate_max: float = RATE_MAX
    spread: float = 35.0
    trip_segments: float = 8.0
    jam_cars: int = 800
    accident_s: float = 300.0

    def rate(self, second: int) -> int:
        """Return how many reports all expressways send in a second."""
        least = min(RATE_MIN, self.rate_max)
        return round(self.expressways * (least + (self.rate_max - least) * min(1.0, second / RAMP_S)))

    def batches(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Make the rows, second by second; all rows of a second have its number as their time."""
        road = Road(self)
        for second in range(max(0, self.begin_s - FILLING_S), self.begin_s):
            road.step(second)
        for second in range(self.begin_s, self.begin_s + self.seconds):
            yield second, road.rows(second, road.step(second))

    def table(self) -> pa.Table:
        """Return all rows."""
        return pa.Table.from_batches([batch for _, batch in self.batches()], SCHEMA).combine_chunks()

    @cached_property
    def history(self) -> pa.Table:
        """The tolls of earlier days: of the first thousand cars of each expressway, a toll on a few days each; one row a car and day."""
        random = np.random.Generator(np.random.SFC64([self.seed, 2]))
        cars = 1_000 * self.expressways
        rows = 5 * cars
        keys = np.unique(random.integers(0, cars, rows) * DAYS + random.integers(0, DAYS, rows))
        return pa.table(
            {
                "vid": pa.array(keys // DAYS, pa.int64()),
                "day": pa.array(keys % DAYS + 1, pa.int32()),
                "xway": pa.array(random.integers(0, self.expressways, len(keys)), pa.int32()),
                "toll": pa.array(random.integers(10, 1_000, len(keys)), pa.int32()),
            }
        )


CAR = ("vid", "xway", "dir", "lane", "pos", "speed", "cruise", "last", "until")
"""Of a car: what it reports, the speed it likes, the segment it leaves in, and until when it stands (0 when it does not)."""


@dataclass
class Stop:
    """A place where cars stand, until a second; one more car is to join them there as long as `missing`."""

    cell: int
    lane: int
    pos: int
    until: int
    missing: int


@dataclass
class Road:
    """The cars on all expressways. They report in thirty groups, a second after the other."""

    traffic: Traffic
    groups: list[dict[str, Any]] = field(default_factory=lambda: [{name: np.zeros(0, np.int64) for name in CAR} for _ in range(REPORT_S)])

    def __post_init__(self) -> None:
        self.random = np.random.Generator(np.random.SFC64([self.traffic.seed, 1]))
        self.cells = self.traffic.expressways * 2 * SEGMENTS
        self.by_group = np.zeros((REPORT_S, self.cells), np.int64)
        self.occupied = np.zeros(self.cells, np.int64)
        self.gone: list[tuple[int, Any]] = []  # when cars left, and which
        self.stops: list[Stop] = []
        self.cars = self.questions = 0
        entries = np.exp(-(((np.arange(SEGMENTS) - HOT_SEGMENT) / self.traffic.spread) ** 2)) + 0.02
        self.entries = np.cumsum(entries / entries.sum())

    def step(self, second: int) -> dict[str, Any]:
        """Drive on by one second; return the cars that report in it."""
        place = second % REPORT_S
        before = self.groups[place]
        stays = before["lane"] != EXIT
        if not stays.all():
            self.gone.append((second, before["vid"][~stays]))
        cars = {name: values[stays] for name, values in before.items()}
        self._drive(cars, second)
        self._stop(cars, second)
        entering = self._entering(second, self.traffic.rate(second) - len(cars["vid"]))
        cars = {name: np.concatenate((cars[name], entering[name])) for name in CAR}
        self.groups[place] = cars
        now = np.bincount(_cell(cars), minlength=self.cells)
        self.occupied += now - self.by_group[place]
        self.by_group[place] = now
        return cars

    def _drive(self, cars: dict[str, Any], second: int) -> None:
        """Move cars by their speed of 30 s ago, then set the lanes and speeds that they report."""
        random, count = self.random, len(cars["vid"])
        stands = cars["until"] > second
        cars["until"][~stands] = 0
        east = cars["dir"] == 0
        cars["pos"] = np.clip(cars["pos"] + np.where(east, 1, -1) * cars["speed"] * FEET_PER_MPH, 0, SEGMENTS * SEGMENT_FEET - 1)
        seg = cars["pos"] // SEGMENT_FEET
        leaves = np.where(east, seg >= cars["last"], seg <= cars["last"]) & ~stands
        changes = (random.random(count) < 0.2) | (cars["lane"] == ENTRY)
        cars["lane"] = np.where(stands, cars["lane"], np.where(changes, random.integers(1, 4, count), cars["lane"]))
        cars["lane"][leaves] = EXIT
        cell = _cell(cars)
        jam = self.traffic.jam_cars
        free = np.clip((jam - self.occupied[cell]) / (jam * 5 / 6), 0.3, 1.0)
        speed = cars["cruise"] * free * (0.9 + 0.2 * random.random(count))
        blocked = [stop.cell for stop in self.stops if stop.until > second and not stop.missing]
        speed = np.where(np.isin(cell, blocked), np.minimum(speed, PASSING_MPH), speed)
        cars["speed"] = np.where(stands, 0, np.clip(speed, SLOWEST_MPH, FASTEST_MPH)).astype(np.int64)

    def _stop(self, cars: dict[str, Any], second: int) -> None:
        """Let cars stand: a first one somewhere, and a second one where one stands alone and is to be met."""
        random = self.random
        self.stops = [stop for stop in self.stops if stop.until > second]
        drives = (cars["until"] == 0) & (cars["lane"] != ENTRY) & (cars["lane"] != EXIT)
        cell = _cell(cars)
        for stop in self.stops:
            if stop.missing:
                reach = drives & (cell == stop.cell) & (np.abs(cars["pos"] - stop.pos) < SEGMENT_FEET)
                for car in np.flatnonzero(reach)[: stop.missing]:
                    drives[car] = False
                    cars["lane"][car], cars["pos"][car], cars["speed"][car], cars["until"][car] = stop.lane, stop.pos, 0, stop.until
                    stop.missing -= 1
        begins = random.poisson(self.traffic.expressways / self.traffic.accident_s)
        candidates = np.flatnonzero(drives)
        if not len(candidates):
            return
        for car in random.choice(candidates, size=min(begins, len(candidates)), replace=False):
            until = second + int(random.integers(240, 720))
            alone = random.random() < 0.2
            cars["speed"][car], cars["until"][car] = 0, until
            self.stops.append(Stop(int(cell[car]), int(cars["lane"][car]), int(cars["pos"][car]), until, 0 if alone else 1))

    def _entering(self, second: int, count: int) -> dict[str, Any]:
        """Return cars that report for the first time on their trip."""
        random, count = self.random, max(0, count)
        vid = np.arange(self.cars, self.cars + count)
        while self.gone and len(self.gone[0][1]) == 0:
            self.gone.pop(0)
        if self.gone and self.gone[0][0] < second - 2 * REPORT_S:
            since, left = self.gone[0]
            back = min(int(RETURNS * count), len(left))
            vid = np.concatenate((left[:back], vid[: count - back]))
            self.gone[0] = since, left[back:]
        self.cars = max(self.cars, int(vid.max(initial=-1)) + 1)
        towards = random.integers(0, 2, count)
        enter = np.minimum(np.searchsorted(self.entries, random.random(count)), SEGMENTS - 1)
        enter = np.where(towards == 0, enter, SEGMENTS - 1 - enter)
        length = 1 + random.geometric(1 / self.traffic.trip_segments, count)
        last = np.clip(enter + np.where(towards == 0, length, -length), 0, SEGMENTS - 1)
        return {
            "vid": vid,
            "xway": random.integers(0, self.traffic.expressways, count),
            "dir": towards,
            "lane": np.full(count, ENTRY),
            "pos": enter * SEGMENT_FEET + random.integers(0, SEGMENT_FEET, count),
            "speed": random.integers(10, 30, count),
            "cruise": np.clip(random.normal(62, 9, count), 40, FASTEST_MPH),
            "last": last,
            "until": np.zeros(count, np.int64),
        }

    def rows(self, second: int, cars: dict[str, Any]) -> pa.RecordBatch:
        """Return the reports of cars, and questions of some of them, in random order."""
        random, count = self.random, len(cars["vid"])
        chance = random.random(count)
        asks = [np.flatnonzero(chance < BALANCES_PER_REPORT), np.flatnonzero(chance > 1 - EXPENDITURES_PER_REPORT)]
        who = np.concatenate((np.arange(count), *asks))
        kind = np.repeat([REPORT, BALANCE, EXPENDITURE], [count, *map(len, asks)])
        order = random.permutation(len(who))
        who, kind = who[order], kind[order]
        reports, asking = kind == REPORT, kind != REPORT
        columns = {name: np.full(len(who), -1, np.int64) for name in COLUMNS}
        columns["type"], columns["time"], columns["vid"] = kind, np.full(len(who), second), cars["vid"][who]
        for name in ("speed", "lane", "dir", "pos"):
            columns[name] = np.where(reports, cars[name][who], -1)
        columns["seg"] = np.where(reports, cars["pos"][who] // SEGMENT_FEET, -1)
        columns["xway"] = np.where(kind != BALANCE, cars["xway"][who], -1)
        columns["qid"][asking] = self.questions + np.arange(int(asking.sum()))
        self.questions += int(asking.sum())
        self._ask_for_days(columns, kind == EXPENDITURE)
        return pa.record_batch([pa.array(columns[f.name], f.type) for f in SCHEMA], schema=SCHEMA)

    def _ask_for_days(self, columns: dict[str, Any], asking: Any) -> None:
        """Fill in type 3: half of them ask for a day that is in the history, by whatever car."""
        count = int(asking.sum())
        columns["day"][asking] = self.random.integers(1, DAYS + 1, count)
        known = asking & (self.random.random(len(asking)) < 0.5)
        history = self.traffic.history
        chosen = self.random.integers(0, history.num_rows, int(known.sum()))
        for name in ("vid", "day", "xway"):
            columns[name][known] = history.column(name).to_numpy()[chosen]


def _cell(cars: dict[str, Any]) -> Any:
    return (cars["xway"] * 2 + cars["dir"]) * SEGMENTS + cars["pos"] // SEGMENT_FEET
