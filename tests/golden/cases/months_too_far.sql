-- Months may lead beyond the year 9999, not beyond what a TIMESTAMP holds (K8, K22).
CREATE STREAM s (ts TIMESTAMP, n BIGINT) TIMESTAMP BY ts ON ERROR INTO broken;
SELECT n, ts + n * INTERVAL '1 month' AS due FROM s;
SELECT reason FROM broken;
