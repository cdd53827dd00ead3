-- case: C12
CREATE STREAM s (ts BIGINT) TIMESTAMP BY ts UNIT s;
SELECT window_start, window_end, COUNT(*) AS n FROM s [SESSION 2 SECONDS];
