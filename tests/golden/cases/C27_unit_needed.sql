-- case: C27
-- must fail: UNIT
CREATE STREAM s (ts BIGINT) TIMESTAMP BY ts;
