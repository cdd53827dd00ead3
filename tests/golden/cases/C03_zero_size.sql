-- case: C03
-- must fail: size must be positive, not 0 SECONDS (line 4, column 77)
CREATE STREAM s (ts BIGINT) TIMESTAMP BY ts UNIT s;
SELECT COUNT(*) AS n FROM HOP(TABLE s, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '0' SECOND);
