CREATE STREAM s (ts TIMESTAMP, a BIGINT, b INT, d DECIMAL(10, 2)) TIMESTAMP BY ts;
SELECT a + b AS sum, a / b AS quotient, -b AS negative, d * 2 AS doubled FROM s;
SELECT CASE WHEN a > 2 THEN 'many' ELSE 'few' END AS word FROM s WHERE b IS NOT NULL;
