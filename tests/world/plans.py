"""What happens in a world: a plan, drawn by seed.

A plan is a list of steps with their times, so that it can be shortened: a failing one is shrunk by leaving steps out. Steps are what
users do (publish, create, drop, pause, subscribe, fetch, change the policy, send wrong statements) and what befalls the machine (crashes,
power cuts, a disk that fails, a network that loses, a clock that jumps).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

US = 1_000_000
EPOCH_US = 1_715_000_000 * US
COLUMNS = "(ts TIMESTAMP, k BIGINT, v BIGINT, src TEXT, n BIGINT)"
SET_UP = (
    f"CREATE STREAM a {COLUMNS} TIMESTAMP BY ts DELAY 1 SECOND DURABILITY sync",
    f"CREATE STREAM b {COLUMNS} TIMESTAMP BY ts DELAY 1 SECOND DURABILITY journal",
    f"CREATE STREAM m {COLUMNS} TIMESTAMP BY ts DELAY 1 SECOND",
    f"CREATE STREAM fed {COLUMNS} TIMESTAMP BY ts DELAY 1 SECOND DURABILITY journal",
    "CREATE TABLE t (k BIGINT, name TEXT, PRIMARY KEY (k)) DURABILITY journal",
    "CREATE STREAM d AS SELECT ts, k, v, n FROM a WHERE v > 2",
    "CREATE CLASS low PRIORITY 1 TARGET 1 SECOND SHED",
    "INSERT INTO fed SELECT ts, k, v + 100 AS v, src, n FROM a WHERE v > 6",
)
DURABLE = ("a", "b", "fed", "t")
PUBLISHED = ("a", "b", "m", "t")
# Text as the server gets it, text for the oracle where that differs.
TEXTS: tuple[tuple[str, str | None], ...] = (
    ("SELECT k, v, src, n FROM a WHERE v > 2", None),
    ("SELECT k, v + 1 AS w, n FROM b", None),
    ("SELECT window_end, k, COUNT(*) AS c, SUM(v) AS total FROM a [RANGE 4 SECONDS SLIDE 4 SECONDS] GROUP BY k", None),
    (
        "SELECT window_end, k, COUNT(*) AS c, MAX(v) AS high FROM a [RANGE 6 SECONDS SLIDE 2 SECONDS] GROUP BY k WITH (split = 2)",
        "SELECT window_end, k, COUNT(*) AS c, MAX(v) AS high FROM a [RANGE 6 SECONDS SLIDE 2 SECONDS] GROUP BY k",
    ),
    ("SELECT window_end, AVG(v) AS mean, COUNT(*) AS c FROM b [RANGE 5 SECONDS SLIDE 5 SECONDS] WHERE v < 8", None),
    ("SELECT k, COUNT(*) AS c, SUM(v) AS total FROM b [RANGE 3 SECONDS] GROUP BY k", None),
    ("SELECT k, COUNT(*) AS c, MIN(v) AS least FROM b [SESSION 2 SECONDS] GROUP BY k", None),
    ("SELECT SUM(v) AS total FROM a [ROWS 5]", None),
    ("SELECT a.k, a.n, b.n AS m, a.v, b.v AS w FROM a JOIN b ON a.k = b.k WITHIN 1 SECOND", None),
    ("SELECT a.k, a.n, t.name FROM a JOIN t ON a.k = t.k", None),
    ("SELECT b.k, b.n, t.name FROM b LEFT JOIN t ON b.k = t.k", None),
    (
        "SELECT window_end, k, COUNT(*) AS c FROM d [RANGE 4 SECONDS SLIDE 4 SECONDS] GROUP BY k",
        "SELECT window_end, k, COUNT(*) AS c FROM (SELECT ts, k, v, n FROM a WHERE v > 2) AS d [RANGE 4 SECONDS SLIDE 4 SECONDS]"
        " GROUP BY k",
    ),
    ("SELECT k, v, n FROM d WHERE v < 9", "SELECT k, v, n FROM (SELECT ts, k, v, n FROM a WHERE v > 2) AS d WHERE v < 9"),
    ("SELECT k, v, n FROM fed", None),
    ("SELECT window_end, COUNT(*) AS c, SUM(v) AS total FROM fed [RANGE 4 SECONDS SLIDE 4 SECONDS]", None),
    ("SELECT k, v, n FROM a UNION ALL SELECT k, v, n FROM b", None),
)
# In worlds with too much work, in a class that may be shed; the first must be the one without a condition.
SHED = (
    "SELECT k, v, src, n FROM a",
    "SELECT window_end, COUNT(*) AS c FROM a [RANGE 4 SECONDS SLIDE 4 SECONDS]",
    "SELECT k, v, src, n FROM a WHERE v > 4",
)
IN_MEMORY = "SELECT k, v, src, n FROM m"  # a durable query over rows that are not
TEMPORARY = (
    "SELECT k, v, src, n FROM m",
    "SELECT k, v, src, n FROM m WHERE v > 3",
    "SELECT window_end, k, COUNT(*) AS c FROM m [RANGE 4 SECONDS SLIDE 4 SECONDS] GROUP BY k",
    "SELECT window_end, k, COUNT(*) AS c, SUM(v) AS total FROM a [RANGE 4 SECONDS SLIDE 4 SECONDS] GROUP BY k",
    "SELECT k, v, n FROM a WITH (class = 'low')",
    "SELECT k, v, src, n FROM m WITH (class = 'low')",
    "SELECT k, COUNT(*) AS c FROM a GROUP BY k",
)
WRONG = (
    "SELEC 1",
    "SELECT x FROM a",
    "CREATE STREAM a (ts TIMESTAMP) TIMESTAMP BY ts",
    "DROP STREAM a",
    "DROP QUERY nobody",
    "SELECT COUNT(*) FROM a [RANGE 0 SECONDS]",
    "INSERT INTO a VALUES (1)",
    "PAUSE QUERY nobody",
    "FETCH SELECT k / 0 FROM nothing",
)
SHOWS = ("SHOW QUERIES", "SHOW STREAMS", "SHOW SHARING", "SHOW SCHEDULER", "SHOW MEASURES", "SHOW WATERMARKS", "DESCRIBE a")
FETCHES = ("SELECT COUNT(*) AS c FROM a", "SELECT k, SUM(v) AS total FROM b GROUP BY k", "SELECT * FROM t", "SELECT n FROM d")
POLICIES = ("fcfs", "hr", "rr", "hnr", "bsd-log", "edf", "chain", "lsf", "round-robin", "superbox", "slope-slack")


@dataclass(frozen=True)
class Step:
    """One thing that happens `at_ms` after the world began."""

    at_ms: int
    kind: str
    what: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.at_ms / 1000:9.3f} s  {self.kind} {' '.join(map(str, self.what))}"


USERS = {"publish": 40, "create": 6, "subscribe": 5, "temporary": 4, "show": 2, "fetch": 2, "wrong": 2, "policy": 1}
USERS |= {"drop": 1, "pause": 1, "resume": 1, "restart_query": 1, "checkpoint": 2}
FAULTS = {"kill": 2, "power": 2, "crash_at": 2, "stop": 1, "reset": 4, "stall": 1, "lose": 1, "disk": 3, "clock": 1}
WORKER_FAULTS = FAULTS | {"kill_worker": 12}
WORKERS_EVERY = 4  # one world in so many has several workers
DELAYS_MS = (0, 5, 300, 1500)  # what a reader takes over a batch
CROWDED_EVERY = 3  # one world in so many has more work than it can do
CROWDED = USERS | {"burst": 5, "temporary": 8, "policy": 2}


@dataclass(frozen=True)
class Conditions:
    """What is so throughout a world: what a row takes each operator (0: no time), how many rows fill a queue, the server's settings."""

    row_ns: int = 0
    log_rows_max: int = 1_000_000
    settings: dict[str, Any] = field(default_factory=dict)


PLAIN = Conditions()


def conditions(seed: int) -> Conditions:
    """Draw the conditions of a world.

    One in three has more work than it can do, a load manager, and small buffers; one in four has workers.
    """
    draw = random.Random(f"conditions {seed}")
    workers = {"workers": 2 + seed // WORKERS_EVERY % 2} if seed % WORKERS_EVERY == 1 else {}
    if seed % CROWDED_EVERY != CROWDED_EVERY - 1:
        return Conditions(settings=workers)
    settings: dict[str, Any] = workers | {
        "slow_subscriber": draw.choice(("disconnect", "gap", "gap")),
        "subscriber_bytes_max": 16 * 1024,
        "results_kept_bytes_max": 32 * 1024,
        "publish_rows_max": 400,
        "connections_bytes_max": 2**20,
        "server_memory_bytes_max": 2**26,
        "query_memory_bytes_max": 2**25,
    }
    return Conditions(draw.choice((300_000, 1_000_000, 3_000_000)), draw.choice((400, 3_000)), settings)


class _Drawing:
    """What each kind of step may be about."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.queries: list[str] = []
        self.readers = 0
        self.steps: list[Step] = []
        choose, number = draw.choice, draw.randint
        self.about: dict[str, Callable[[int], tuple[Any, ...]]] = {
            "publish": self._publish,
            "create": self.create,
            "subscribe": lambda at: (self._reader(), choose(self.queries), choose(DELAYS_MS)),
            "burst": lambda at: (f"p{number(0, 2)}", choose("aabm"), number(2, 10)),
            "temporary": lambda at: (choose(TEMPORARY), number(100, 8000), choose((0, 0, 20))),
            "show": lambda at: (choose(SHOWS),),
            "fetch": lambda at: (choose(FETCHES),),
            "wrong": lambda at: (choose(WRONG),),
            "policy": lambda at: (choose(POLICIES),),
            "power": lambda at: (draw.random() < 0.2,),
            "crash_at": lambda at: (number(1, 60), draw.random() < 0.5),
            "kill_worker": lambda at: (number(0, 9), number(0, 20), draw.random() < 0.5),
            "reset": lambda at: (number(0, 99), draw.random() < 0.5),
            "lose": lambda at: (number(0, 99),),
            "stall": lambda at: (number(0, 99), number(100, 5000)),
            "disk": lambda at: (choose(("slow", "fails", "sync", "full", "slow", "sync", "slow", "lies")), number(50, 4000)),
            "clock": lambda at: (choose((-3600.0, 86_400.0, 2.0, -2.0)), number(1000, 20_000)),
            **dict.fromkeys(("drop", "pause", "resume", "restart_query"), lambda at: (choose(self.queries),)),
        }

    def _publish(self, at_ms: int) -> tuple[Any, ...]:
        draw = self.draw
        stream = draw.choices(PUBLISHED, (5, 5, 3, 2))[0]
        return f"p{draw.randrange(3)}", stream, draw.choice((1, 1, 2, 5, 20, 60)), draw.random() < 0.1

    def _reader(self) -> str:
        self.readers += 1
        return f"s{self.readers}"

    def create(self, at_ms: int) -> tuple[Any, ...]:
        """A query, and somebody who reads it soon."""
        draw = self.draw
        name = f"kept{len(self.queries)}"  # not q1, q2, …, as the server names those of connections
        self.queries.append(name)
        self.steps.append(Step(at_ms + draw.randint(0, 2000), "subscribe", (self._reader(), name, draw.choice(DELAYS_MS))))
        return name, draw.randrange(len(TEXTS))

    def step(self, at_ms: int, kind: str) -> None:
        """Add a step."""
        about = self.about.get(kind)
        self.steps.append(Step(at_ms, kind, () if about is None else about(at_ms)))


def plan(seed: int, *, length: int = 60, seconds: int = 40, faults: bool = True) -> list[Step]:
    """Draw a plan: `length` steps within so many seconds, beside the first queries."""
    draw = random.Random(f"plan {seed}")
    drawing = _Drawing(draw)
    found = conditions(seed)
    users = CROWDED if found.row_ns else USERS
    if users is CROWDED:
        for place in range(len(SHED)):
            drawing.steps.append(Step(10, "shed", (place,)))
            drawing.steps.append(Step(500, "subscribe", (f"h{place}", f"shed{place}", draw.choice(DELAYS_MS))))
    for _ in range(draw.randint(2, 4)):
        drawing.step(draw.randint(0, 1500), "create")
    faults_of = WORKER_FAULTS if "workers" in found.settings else FAULTS
    kinds = {**users, **(faults_of if faults else {})}
    for at_ms in sorted(draw.randint(500, seconds * 1000) for _ in range(length)):
        drawing.step(at_ms, draw.choices(list(kinds), list(kinds.values()))[0])
    return sorted(drawing.steps, key=lambda step: step.at_ms)
