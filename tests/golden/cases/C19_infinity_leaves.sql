-- case: C19
CREATE STREAM s (ts BIGINT, v DOUBLE) TIMESTAMP BY ts UNIT s;
SELECT AVG(v) AS average, SUM(v) AS total, MIN(v) AS least, MAX(v) AS greatest FROM s [ROWS 3];
