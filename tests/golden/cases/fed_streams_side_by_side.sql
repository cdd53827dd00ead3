-- Two queries feed one stream: for each row in the order in which they were made.
CREATE STREAM s (ts BIGINT, v INT) TIMESTAMP BY ts UNIT s;
CREATE STREAM t (who TEXT, v INT);
INSERT INTO t SELECT 'first' AS who, v FROM s;
INSERT INTO t SELECT 'second' AS who, v * 10 AS v FROM s WHERE v > 1;
SELECT who, v FROM t;
