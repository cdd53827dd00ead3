-- case: C27
-- says: line 2: column ts: '2024-01-01T00:00:00.0000005Z' is finer than a microsecond (TIMESTAMP BY … ROUND rounds it)
-- says: line 4: column ts: 1715000000 is a number without a unit: as s it would be 2024-05-06T12:53:20Z
CREATE STREAM s (ts TIMESTAMP, n INT) TIMESTAMP BY ts;
SELECT ts, n FROM s;
