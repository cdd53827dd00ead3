-- Rows that came while nobody read their stream must not hold back those of a query that comes later.
CREATE STREAM s (ts BIGINT, n INT) TIMESTAMP BY ts UNIT s;
CREATE QUERY a AS SELECT n FROM s;
INSERT INTO s VALUES (1, 100);
STOP QUERY a;
INSERT INTO s VALUES (1, 101), (1, 102);
CREATE QUERY b AS SELECT n + 0 AS m FROM s WHERE n > 0;
START QUERY a;
CREATE QUERY c AS SELECT COUNT(*) FROM s EMIT FINAL;
