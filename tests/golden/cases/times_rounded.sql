-- ROUND rounds half to even what is finer than a microsecond.
-- case: C27
CREATE STREAM s (ts TIMESTAMP, n INT) TIMESTAMP BY ts ROUND;
SELECT ts, n FROM s;
