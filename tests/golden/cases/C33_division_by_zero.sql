-- case: C33
-- says: q1: 1 failed
CREATE STREAM s (ts BIGINT, x INT) TIMESTAMP BY ts UNIT s ON ERROR INTO bad;
SELECT 8 / x AS y FROM s;
SELECT x FROM s WHERE 8 / x > 1;
SELECT query, position, raw FROM bad;
