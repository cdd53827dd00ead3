-- case: C27
-- must fail: ROUND
CREATE STREAM s (ts BIGINT) TIMESTAMP BY ts UNIT ns;
