-- A whole-number time column stays the event time of a derived stream: windows, joins and as-of joins may name it (K19).
CREATE STREAM s (ts BIGINT, k INT) TIMESTAMP BY ts UNIT s;
CREATE STREAM d AS SELECT ts, k FROM s WHERE k > 0;
SELECT window_start, COUNT(*) AS n FROM TUMBLE(TABLE d, DESCRIPTOR(ts), INTERVAL '10' SECOND);
SELECT a.ts AS earlier, b.ts AS later FROM d a JOIN d b ON a.k = b.k AND b.ts BETWEEN a.ts + 1 SECOND AND a.ts + 5 SECONDS;
SELECT a.ts AS t, b.ts AS last FROM s a ASOF JOIN d b ON a.k = b.k AND b.ts <= a.ts;
