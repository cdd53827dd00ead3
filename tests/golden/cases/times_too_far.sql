-- says: 3 of 5 rows refused
-- says: column ts: out of the range of TIMESTAMP that events may have
CREATE STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT us DELAY 100000 WEEKS;
SELECT window_start, COUNT(*) AS n FROM s [RANGE 1 DAY SLIDE 1 DAY];
SELECT COUNT(*) AS n FROM s [RANGE 1 DAY];
