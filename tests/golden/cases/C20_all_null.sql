-- case: C20
CREATE STREAM s (ts BIGINT, v INT) TIMESTAMP BY ts UNIT s;
SELECT MIN(v) AS least, SUM(v) AS total, AVG(v) AS average, COUNT(v) AS given, COUNT(*) AS n FROM s [ROWS 2];
