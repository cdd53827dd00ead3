-- Nobody reads the only column of an aggregate without keys: its row stands all the same.
CREATE STREAM s (ts BIGINT, v INT) TIMESTAMP BY ts UNIT s;
WITH f AS (SELECT MAX(v) AS x FROM s) SELECT 'b' AS y FROM f EMIT FINAL;
WITH f AS (SELECT MAX(v) AS x, COUNT(*) AS n FROM s HAVING COUNT(*) > 5) SELECT 'b' AS y FROM f EMIT FINAL;
