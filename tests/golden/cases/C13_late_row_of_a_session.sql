-- case: C13
-- says: q1: 1 late
CREATE STREAM s (ts BIGINT) TIMESTAMP BY ts UNIT s;
SELECT window_start, window_end, COUNT(*) AS n FROM s [SESSION 5 SECONDS];
