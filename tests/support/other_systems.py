"""Twelve statements of each other system, typed in, and how to write them here; docs/other-systems.md is made of them.

`ours` is None where the statement runs as it stands.
"""

from __future__ import annotations

from typing import NamedTuple

DEFINITIONS = """
CREATE STREAM readings (ts TIMESTAMP, sensor TEXT, value DOUBLE) TIMESTAMP BY ts DELAY 5 SECONDS;
CREATE STREAM orders (ts TIMESTAMP, id BIGINT, item TEXT, amount DOUBLE) TIMESTAMP BY ts;
CREATE STREAM payments (ts TIMESTAMP, id BIGINT, paid DOUBLE) TIMESTAMP BY ts;
CREATE TABLE sensors (sensor TEXT, room TEXT, PRIMARY KEY (sensor));
"""


class Typed(NamedTuple):
    """A statement of another system, and ours."""

    theirs: str
    ours: str | None = None


MEAN = "SELECT sensor, AVG(value) AS mean FROM readings"

FLINK = (
    Typed(
        "CREATE TABLE clicks (page STRING, at TIMESTAMP(3), WATERMARK FOR at AS at - INTERVAL '5' SECOND) WITH ('connector' = 'kafka')",
        "CREATE STREAM clicks (page STRING, at TIMESTAMP(3), WATERMARK FOR at AS at - INTERVAL '5' SECOND)",
    ),
    Typed(
        "SELECT window_start, sensor, AVG(value) FROM TABLE(TUMBLE(TABLE readings, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"
        " GROUP BY window_start, window_end, sensor"
    ),
    Typed(
        "SELECT sensor, AVG(value) FROM readings GROUP BY sensor, TUMBLE(ts, INTERVAL '1' MINUTE)",
        f"{MEAN} [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY sensor",
    ),
    Typed(
        "SELECT sensor, AVG(value) OVER (PARTITION BY sensor ORDER BY ts RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW)"
        " FROM readings",
    ),
    Typed(
        "SELECT * FROM readings MATCH_RECOGNIZE (PARTITION BY sensor ORDER BY ts MEASURES A.value AS low"
        " PATTERN (A B+? C) WITHIN INTERVAL '1' HOUR DEFINE B AS B.value < A.value, C AS C.value > LAST(B.value, 1))",
    ),
    Typed("CREATE VIEW hot AS SELECT * FROM readings WHERE value > 30", "CREATE STREAM hot AS SELECT * FROM readings WHERE value > 30"),
    Typed("SELECT r.sensor, s.room FROM readings AS r JOIN sensors FOR SYSTEM_TIME AS OF r.ts AS s ON r.sensor = s.sensor"),
    Typed("SELECT o.id FROM orders o, payments p WHERE o.id = p.id AND p.ts BETWEEN o.ts AND o.ts + INTERVAL '1' HOUR"),
    Typed("SELECT JSON_VALUE(item, '$.name') FROM orders"),
    Typed(
        "SELECT sensor, COLLECT(value) FROM readings GROUP BY sensor",
        "SELECT sensor, COLLECT_SET(value) AS found FROM readings GROUP BY sensor",
    ),
    Typed("SELECT sensor, PROCTIME() FROM readings", "SELECT sensor, ts FROM readings"),
    Typed("EXPLAIN PLAN FOR SELECT sensor FROM readings", "EXPLAIN SELECT sensor FROM readings"),
)

KSQLDB = (
    Typed(
        "CREATE STREAM clicks (page VARCHAR, at BIGINT) WITH (KAFKA_TOPIC = 'clicks', VALUE_FORMAT = 'JSON', TIMESTAMP = 'at')",
        "CREATE STREAM clicks (page VARCHAR, at BIGINT) TIMESTAMP BY at UNIT ms",
    ),
    Typed("CREATE STREAM clicks (id BIGINT KEY, page VARCHAR)", "CREATE STREAM clicks (id BIGINT, page VARCHAR)"),
    Typed(
        "CREATE TABLE means AS SELECT sensor, AVG(value) FROM readings WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY sensor",
        f"CREATE QUERY means AS {MEAN} [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY sensor",
    ),
    Typed(
        "SELECT sensor, AVG(value) FROM readings WINDOW HOPPING (SIZE 1 MINUTE, ADVANCE BY 10 SECONDS, GRACE PERIOD 5 SECONDS)"
        " GROUP BY sensor",
        f"{MEAN} [RANGE 1 MINUTE SLIDE 10 SECONDS] GROUP BY sensor",
    ),
    Typed(
        "SELECT sensor, COUNT(*) FROM readings WINDOW SESSION (5 MINUTES) GROUP BY sensor",
        "SELECT sensor, COUNT(*) AS n FROM readings [SESSION 5 MINUTES] GROUP BY sensor",
    ),
    Typed("SELECT sensor, COUNT(*) FROM readings GROUP BY sensor EMIT CHANGES"),
    Typed("SELECT ROWTIME, sensor FROM readings EMIT CHANGES", "SELECT ts, sensor FROM readings"),
    Typed("SELECT o.id, p.paid FROM orders o JOIN payments p WITHIN 1 HOUR ON o.id = p.id"),
    Typed("SELECT EXTRACTJSONFIELD(item, '$.name') FROM orders", "SELECT item FROM orders"),
    Typed(
        "SELECT sensor, LATEST_BY_OFFSET(value) FROM readings GROUP BY sensor",
        "SELECT sensor, LAST(value) AS newest FROM readings GROUP BY sensor",
    ),
    Typed("SELECT * FROM readings PARTITION BY sensor", "SELECT * FROM readings"),
    Typed("TERMINATE means", "STOP QUERY means"),
)

POSTGRESQL = (
    Typed("CREATE MATERIALIZED VIEW means AS SELECT sensor, AVG(value) AS mean FROM readings GROUP BY sensor"),
    Typed("SELECT DISTINCT ON (sensor) sensor, value FROM readings ORDER BY sensor, ts DESC"),
    Typed(
        "SELECT time_bucket('5 minutes', ts), AVG(value) FROM readings GROUP BY 1",
        "SELECT window_start, AVG(value) AS mean FROM readings [RANGE 5 MINUTES SLIDE 5 MINUTES]",
    ),
    Typed("SELECT item ->> 'name' FROM orders"),
    Typed("SELECT ts::date, value::int FROM readings WHERE sensor ~* '^a' AND value BETWEEN 1 AND 2"),
    Typed("SELECT HASHTEXT(item) FROM orders", "SELECT MD5(item) AS digest FROM orders"),
    Typed("SELECT JSON_BUILD_OBJECT('id', id) FROM orders", "SELECT CAST({'id': id} AS JSON) AS order_ids FROM orders"),
    Typed(
        "SELECT percentile_cont(0.95) WITHIN GROUP (ORDER BY value) FROM readings [RANGE 1 HOUR SLIDE 1 HOUR]",
    ),
    Typed(
        "SELECT id FROM orders WHERE id NOT IN (SELECT id FROM payments)",
        "SELECT o.id FROM orders o LEFT JOIN payments p ON o.id = p.id WITHIN 1 HOUR WHERE p.id IS NULL",
    ),
    Typed("SELECT * FROM readings WHERE ts > now() - interval '1 hour'", "SELECT * FROM readings"),
    Typed("UPDATE sensors SET room = 'attic' WHERE sensor = 'a'", "INSERT INTO sensors VALUES ('a', 'attic')"),
    Typed("COPY readings FROM 'readings.csv' CSV HEADER", None),
)

SPARK = (
    Typed(
        "SELECT window(ts, '10 minutes'), sensor, AVG(value) FROM readings GROUP BY window(ts, '10 minutes'), sensor",
        "SELECT window_start, window_end, sensor, AVG(value) AS mean FROM readings [RANGE 10 MINUTES SLIDE 10 MINUTES] GROUP BY sensor",
    ),
    Typed(
        "SELECT sensor, COUNT(*) FROM readings GROUP BY session_window(ts, '5 minutes'), sensor",
        "SELECT sensor, COUNT(*) AS n FROM readings [SESSION 5 MINUTES] GROUP BY sensor",
    ),
    Typed("SELECT `sensor` FROM readings", "SELECT sensor FROM readings"),
    Typed(
        "SELECT sensor, value FROM readings QUALIFY ROW_NUMBER() OVER (PARTITION BY sensor ORDER BY value DESC) = 1",
        "SELECT sensor, value FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY sensor ORDER BY value DESC) AS n FROM readings) WHERE n = 1",
    ),
    Typed(
        "SELECT * FROM (SELECT sensor, value FROM readings) PIVOT (AVG(value) FOR sensor IN ('a', 'b'))",
        "SELECT AVG(value) FILTER (WHERE sensor = 'a') AS a, AVG(value) FILTER (WHERE sensor = 'b') AS b"
        " FROM readings [RANGE 1 HOUR SLIDE 1 HOUR]",
    ),
    Typed(
        "SELECT r.* FROM readings r LEFT SEMI JOIN sensors s ON r.sensor = s.sensor",
        "SELECT r.* FROM readings r JOIN sensors s ON r.sensor = s.sensor",
    ),
    Typed("SELECT STRUCT(sensor, value) FROM readings"),
    Typed("SELECT get_json_object(item, '$.name') FROM orders", "SELECT JSON_VALUE(item, '$.name') AS name FROM orders"),
    Typed(
        "SELECT sensor, percentile_approx(value, 0.95) FROM readings GROUP BY sensor",
        "SELECT sensor, APPROX_PERCENTILE(value, 0.95) AS p95 FROM readings GROUP BY sensor",
    ),
    Typed("SELECT date_format(ts, 'yyyy-MM-dd') FROM readings", "SELECT TO_CHAR(ts, 'YYYY-MM-DD') AS day FROM readings"),
    Typed("SELECT sensor, collect_list(value) AS found, approx_count_distinct(value) AS n FROM readings GROUP BY sensor"),
    Typed(
        "CREATE OR REPLACE TEMP VIEW hot AS SELECT * FROM readings WHERE value > 30",
        "CREATE STREAM hot AS SELECT * FROM readings WHERE value > 30",
    ),
)

ESPER = (
    Typed("create schema Tick (symbol string, price double)", "create stream tick (symbol string, price double)"),
    Typed("select avg(value) from readings#time(30 sec)", "select avg(value) as mean from readings [RANGE 30 SECONDS]"),
    Typed("select avg(value) from readings#length(10)", "select avg(value) as mean from readings [ROWS 10]"),
    Typed("select avg(value) from readings#time_batch(1 min)", "select avg(value) as mean from readings [RANGE 1 MINUTE SLIDE 1 MINUTE]"),
    Typed("select avg(value) from readings.win:length_batch(10)", "select avg(value) as mean from readings [ROWS 10 SLIDE 10]"),
    Typed("select sensor, value from readings#unique(sensor)", "select sensor, value from readings [PARTITION BY sensor ROWS 1]"),
    Typed(
        "select * from pattern [every o=orders -> p=payments(id = o.id) where timer:within(10 sec)]",
        "select o.id, p.paid from orders o join payments p on o.id = p.id and p.ts between o.ts and o.ts + 10 SECONDS",
    ),
    Typed(
        "select sum(value) from readings output every 10 seconds",
        "select sum(value) as total from readings [LANDMARK] EMIT EVERY 10 SECONDS",
    ),
    Typed("select irstream sensor from readings", "select sensor from readings [RANGE 30 SECONDS] EMIT CHANGES"),
    Typed("select prev(1, value) from readings", "select LAG(value, 1) OVER (PARTITION BY sensor) as before from readings"),
    Typed("@name('hot') select * from readings where value > 30", "create query hot as select * from readings where value > 30"),
    Typed("insert into readings select ts, item as sensor, amount as value from orders"),
)

INFLUXDB = (
    Typed(
        "SELECT MEAN(value) FROM readings WHERE time > now() - 1h GROUP BY time(5m), sensor",
        f"{MEAN} [RANGE 5 MINUTES SLIDE 5 MINUTES] GROUP BY sensor",
    ),
    Typed(
        "SELECT MEAN(value) FROM readings GROUP BY time(5m) fill(0)",
        "SELECT window_start, COALESCE(AVG(value), 0) AS mean FROM readings [RANGE 5 MINUTES SLIDE 5 MINUTES] EMIT EMPTY",
    ),
    Typed(
        "SELECT SUM(value) FROM readings [RANGE 10s SLIDE 10s]",
        "SELECT SUM(value) AS total FROM readings [RANGE 10 SECONDS SLIDE 10 SECONDS]",
    ),
    Typed(
        "SELECT DERIVATIVE(value, 1s) FROM readings",
        "SELECT (value - LAG(value) OVER (PARTITION BY sensor)) / EXTRACT(EPOCH FROM ts - LAG(ts) OVER (PARTITION BY sensor)) AS rate"
        " FROM readings",
    ),
    Typed("SELECT DIFFERENCE(value) FROM readings", "SELECT value - LAG(value) OVER (PARTITION BY sensor) AS difference FROM readings"),
    Typed("SELECT MOVING_AVERAGE(value, 5) FROM readings", "SELECT AVG(value) AS mean FROM readings [ROWS 5]"),
    Typed("SELECT CUMULATIVE_SUM(value) FROM readings", "ISTREAM(SELECT SUM(value) AS total FROM readings)"),
    Typed(
        "SELECT PERCENTILE(value, 95) FROM readings", "SELECT PERCENTILE_CONT(value, 0.95) AS p95 FROM readings [RANGE 1 HOUR SLIDE 1 HOUR]"
    ),
    Typed("SELECT value FROM readings WHERE sensor =~ /^a/", "SELECT value FROM readings WHERE sensor ~ '^a'"),
    Typed("SHOW MEASUREMENTS", "SHOW STREAMS"),
    Typed(
        "CREATE CONTINUOUS QUERY means ON db BEGIN SELECT MEAN(value) INTO hourly FROM readings GROUP BY time(1h) END",
        "CREATE QUERY means AS SELECT window_start, AVG(value) AS mean FROM readings [RANGE 1 HOUR SLIDE 1 HOUR]",
    ),
    Typed(
        'from(bucket: "readings") |> range(start: -1h) |> aggregateWindow(every: 5m, fn: mean)',
        "SELECT window_start, AVG(value) AS mean FROM readings [RANGE 5 MINUTES SLIDE 5 MINUTES]",
    ),
)

SYSTEMS = {
    "Apache Flink": FLINK,
    "ksqlDB": KSQLDB,
    "PostgreSQL": POSTGRESQL,
    "Apache Spark": SPARK,
    "Esper": ESPER,
    "InfluxDB": INFLUXDB,
}
