-- case: C14
-- must fail: no rows of stream s are held
CREATE STREAM s (ts BIGINT, k BIGINT) TIMESTAMP BY ts UNIT s;
FETCH SELECT COUNT(*) AS n FROM s;
