CREATE STREAM packets (ts TIMESTAMP, proto TEXT, length INT) TIMESTAMP BY ts DELAY 2 SECONDS;
SELECT proto, COUNT(*) AS n, SUM(length) AS bytes, MIN(length) AS least, MAX(length) AS most, AVG(length) AS mean, window_end
FROM packets [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY proto HAVING COUNT(*) > 1;
SELECT window_start, proto, COUNT(*) AS n FROM TUMBLE(TABLE packets, DESCRIPTOR(ts), 10 SECONDS) GROUP BY window_start, window_end, proto;
