"""What the demo asks, each question twice: in Millstream's language over the streams, and in DuckDB's SQL over the same files.

The DuckDB side is written from the meaning of the question and knows nothing of windows or watermarks; times are microseconds there
(`us`), and `seq` is the row's place in its file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millstream.client import plans

STREAMS = (
    """CREATE STREAM departures (ts TIMESTAMP NOT NULL, carrier TEXT, flight BIGINT, tailnum TEXT, origin TEXT, dest TEXT,
       dep_delay BIGINT, arr_delay BIGINT, air_time BIGINT, distance BIGINT) TIMESTAMP BY ts""",
    """CREATE STREAM arrivals (ts TIMESTAMP NOT NULL, carrier TEXT, flight BIGINT, origin TEXT, dest TEXT,
       arr_delay BIGINT, distance BIGINT) TIMESTAMP BY ts""",
    """CREATE STREAM weather (ts TIMESTAMP NOT NULL, origin TEXT, temp DOUBLE, humid DOUBLE, wind_dir BIGINT,
       wind_speed DOUBLE, precip DOUBLE, pressure DOUBLE, visib DOUBLE) TIMESTAMP BY ts""",
)
AIRLINES = "CREATE TABLE airlines (carrier TEXT, name TEXT, PRIMARY KEY (carrier))"


@dataclass(frozen=True, slots=True)
class DemoQuery:
    """A question: its name, what it wants to know, the query (text or plan), and DuckDB's SQL for the whole answer.

    `changes`: the results are a change log (`op` in front); its sum is the answer. `airlines`: it reads that table.
    """

    name: str
    title: str
    query: Any
    truth: str
    changes: bool = False
    airlines: bool = False


_FAST = (
    plans.source("departures")
    .select("distance > 500", selectivity=0.7)
    .project([("carrier", "carrier"), ("origin", "origin"), ("dest", "dest"), ("miles", "distance"), ("minutes", "air_time")])
    .select("minutes IS NOT NULL", selectivity=0.99)
    .project([("carrier", "carrier"), ("route", "origin || '-' || dest"), ("speed", "miles * 60e0 / minutes")])
    .select("speed > 450e0", selectivity=0.2)
    .project([("carrier", "LOWER(carrier)"), ("route", "route"), ("speed", "speed")])
)

QUERIES = (
    DemoQuery(
        "delays",
        "delay at each airport, hour by hour",
        """SELECT origin, window_start, COUNT(*) AS flights, AVG(dep_delay) AS mean, MAX(dep_delay) AS worst
           FROM departures [RANGE 1 HOUR SLIDE 1 HOUR] GROUP BY origin""",
        "SELECT origin, us // 3600000000 * 3600000000, count(*), avg(dep_delay), max(dep_delay) FROM departures GROUP BY ALL",
    ),
    DemoQuery(
        "carriers",
        "arrival delay of each airline over six hours, every hour",
        """SELECT carrier, window_end, COUNT(arr_delay) AS landed, AVG(arr_delay) AS mean
           FROM departures [RANGE 6 HOURS SLIDE 1 HOUR] GROUP BY carrier""",
        """SELECT carrier, (us // 3600000000 + back + 1) * 3600000000, count(arr_delay), avg(arr_delay)
           FROM departures, range(6) AS r(back) GROUP BY ALL""",
    ),
    DemoQuery(
        "conditions",
        "wind and sight at each departure (window join)",
        """SELECT d.carrier, d.flight, d.origin, d.dep_delay, w.wind_speed, w.visib
           FROM departures AS d JOIN weather AS w ON d.origin = w.origin WITHIN 30 MINUTES""",
        """SELECT d.carrier, d.flight, d.origin, d.dep_delay, w.wind_speed, w.visib
           FROM departures d JOIN weather w ON d.origin = w.origin AND abs(d.us - w.us) <= 1800000000""",
    ),
    DemoQuery(
        "fast",
        "long flights above 450 mph (plan object, six operators)",
        plans.Plan(_FAST, name="fast"),
        """SELECT lower(carrier), origin || '-' || dest, distance * 60e0 / air_time FROM departures
           WHERE distance > 500 AND air_time IS NOT NULL AND distance * 60e0 / air_time > 450""",
    ),
    DemoQuery(
        "movements",
        "every take-off and landing (union)",
        """SELECT 'departure' AS kind, carrier, flight, origin AS airport, dep_delay AS delay FROM departures
           UNION ALL SELECT 'arrival', carrier, flight, dest, arr_delay FROM arrivals""",
        """SELECT 'departure', carrier, flight, origin, dep_delay FROM departures
           UNION ALL SELECT 'arrival', carrier, flight, dest, arr_delay FROM arrivals""",
    ),
    DemoQuery(
        "days",
        "median and spread of the delay, day by day",
        """SELECT origin, window_start, MEDIAN(dep_delay) AS median, MIN(dep_delay) AS least, STDDEV(dep_delay) AS spread
           FROM departures [RANGE 1 DAY SLIDE 1 DAY] GROUP BY origin""",
        """SELECT origin, us // 86400000000 * 86400000000, median(dep_delay), min(dep_delay), stddev_samp(dep_delay)
           FROM departures GROUP BY ALL""",
    ),
    DemoQuery(
        "stranded",
        "flights two hours late, with the airline's name (stream and table)",
        "SELECT d.flight, a.name, d.dep_delay FROM departures AS d JOIN airlines AS a ON d.carrier = a.carrier WHERE d.dep_delay > 120",
        "SELECT flight, name, dep_delay FROM departures JOIN airlines USING (carrier) WHERE dep_delay > 120",
        airlines=True,
    ),
    DemoQuery(
        "routes",
        "the three busiest routes of each day",
        """SELECT window_start, origin, dest, COUNT(*) AS flights FROM departures [RANGE 1 DAY SLIDE 1 DAY]
           GROUP BY origin, dest ORDER BY flights DESC, origin, dest LIMIT 3""",
        """WITH counted AS (SELECT us // 86400000000 * 86400000000 AS day, origin, dest, count(*) AS flights FROM departures GROUP BY ALL)
           SELECT * FROM counted QUALIFY row_number() OVER (PARTITION BY day ORDER BY flights DESC, origin, dest) <= 3""",
    ),
    DemoQuery(
        "planes",
        "busy spells of each plane (sessions)",
        "SELECT tailnum, window_start, window_end, COUNT(*) AS flights FROM departures [SESSION 12 HOURS] GROUP BY tailnum",
        """WITH marked AS (SELECT *, coalesce(us - lag(us) OVER spell >= 43200000000, true) AS first FROM departures
                           WINDOW spell AS (PARTITION BY tailnum ORDER BY us, seq)),
                numbered AS (SELECT *, sum(first::INT) OVER (PARTITION BY tailnum ORDER BY us, seq) AS number FROM marked)
           SELECT tailnum, min(us), max(us) + 43200000000, count(*) FROM numbered GROUP BY tailnum, number""",
    ),
    DemoQuery(
        "recent",
        "mean delay of each airline's last ten flights, at every flight",
        """SELECT carrier, LAST(ts) AS at, COUNT(*) AS flights, AVG(dep_delay) AS mean
           FROM departures [PARTITION BY carrier ROWS 10] GROUP BY carrier""",
        """SELECT carrier, us, count(*) OVER ten, avg(dep_delay) OVER ten FROM departures
           WINDOW ten AS (PARTITION BY carrier ORDER BY us, seq ROWS 9 PRECEDING)""",
    ),
    DemoQuery(
        "rush",
        "quarters of an hour with more than a dozen departures",
        """SELECT origin, window_start, COUNT(*) AS flights FROM TUMBLE(TABLE departures, DESCRIPTOR(ts), INTERVAL '15' MINUTES)
           GROUP BY origin HAVING COUNT(*) > 12""",
        "SELECT origin, us // 900000000 * 900000000, count(*) FROM departures GROUP BY ALL HAVING count(*) > 12",
    ),
    DemoQuery(
        "totals",
        "miles of each airline so far (change log)",
        "SELECT carrier, COUNT(*) AS flights, SUM(distance) AS miles FROM departures GROUP BY carrier EMIT CHANGES",
        "SELECT carrier, count(*), sum(distance) FROM departures GROUP BY carrier",
        changes=True,
    ),
    DemoQuery(
        "air",
        "the last weather report before each departure (as-of join)",
        """SELECT d.carrier, d.flight, w.temp, w.pressure
           FROM departures AS d ASOF JOIN weather AS w ON d.origin = w.origin AND w.ts <= d.ts""",
        "SELECT d.carrier, d.flight, w.temp, w.pressure FROM departures d ASOF JOIN weather w ON d.origin = w.origin AND w.us <= d.us",
    ),
)
