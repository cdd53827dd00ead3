-- Inside an aggregate a name is a column of the input, also where the select list has an alias of that name.
CREATE STREAM s (ts BIGINT, k TEXT, v INT) TIMESTAMP BY ts UNIT s;
SELECT k, MAX(v) AS v FROM s GROUP BY k HAVING MAX(v) > 2 EMIT FINAL;
SELECT k, COUNT(*) AS v FROM s GROUP BY k HAVING SUM(v) FILTER (WHERE v > 1) < 7 AND v = 1 EMIT FINAL;
