-- Rows that cause rows that cause rows, read beside what they came from: the order must not depend on trains.
CREATE STREAM s (ts BIGINT, v INT) TIMESTAMP BY ts UNIT s;
CREATE STREAM t (ts BIGINT, v INT) TIMESTAMP BY ts UNIT s;
CREATE STREAM u (ts BIGINT, v INT) TIMESTAMP BY ts UNIT s;
INSERT INTO t SELECT ts, v * 10 AS v FROM s;
INSERT INTO u SELECT ts, v + 1 AS v FROM t;
INSERT INTO u SELECT ts, v FROM s WHERE v > 1;
SELECT v FROM u;
SELECT v FROM s UNION ALL SELECT v FROM t;
