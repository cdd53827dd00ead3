-- case: C12
-- W reaches 3 before the second row of a and after that of b.
CREATE STREAM s (ts BIGINT, k TEXT) TIMESTAMP BY ts UNIT s;
SELECT k, window_start, window_end, COUNT(*) AS n FROM s [SESSION 2 SECONDS] GROUP BY k;
