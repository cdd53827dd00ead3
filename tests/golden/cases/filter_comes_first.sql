-- case: C33
-- The argument is evaluated only for rows that pass FILTER, or the WHERE of a window of rows: nothing is counted as failed here.
CREATE STREAM s (ts BIGINT, x INT, y INT) TIMESTAMP BY ts UNIT s ON ERROR INTO broken;
SELECT SUM(y / x) FILTER (WHERE x <> 0) AS total, COUNT(*) AS n FROM s EMIT FINAL;
SELECT SUM(y / x) FILTER (WHERE x <> 0) AS total FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS];
SELECT SUM(y / x) AS total FROM s [ROWS 2] WHERE x <> 0;
SELECT SUM(y / x) AS total FROM s [SESSION 5 SECONDS] WHERE x <> 0;
SELECT reason FROM broken;
