-- HOUR is the hours of the whole duration, as in PostgreSQL; DAY its whole days.
CREATE STREAM s (ts BIGINT) TIMESTAMP BY ts UNIT s;
SELECT EXTRACT(HOUR FROM INTERVAL '26 hours 5 minutes') AS h, EXTRACT(MINUTE FROM INTERVAL '26 hours 5 minutes') AS m, EXTRACT(DAY FROM INTERVAL '26 hours') AS d, EXTRACT(HOUR FROM INTERVAL '-26 hours') AS back FROM s;
