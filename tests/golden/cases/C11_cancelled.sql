-- case: C11
-- says: query q1 was cancelled
CREATE STREAM s (ts BIGINT) TIMESTAMP BY ts UNIT s;
SELECT window_start, COUNT(*) AS n FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS];
