-- A duration of nothing is a duration where none need be more, in every spelling.
CREATE STREAM a (ts BIGINT, k INT) TIMESTAMP BY ts UNIT s DELAY INTERVAL '0' SECOND;
CREATE STREAM b (ts BIGINT, k INT, WATERMARK FOR ts AS ts - INTERVAL '0 seconds') TIMESTAMP BY ts UNIT s;
SELECT a.ts AS x, b.ts AS y FROM a JOIN b ON a.k = b.k WITHIN INTERVAL '0' SECOND;
SELECT a.ts AS x, b.ts AS y FROM a JOIN b ON a.k = b.k WITHIN 0 SECONDS;
SELECT a.ts AS x, b.ts AS y FROM a JOIN b ON a.k = b.k AND a.ts BETWEEN b.ts - INTERVAL '0' SECOND AND b.ts + INTERVAL '0 seconds';
SELECT window_start, COUNT(*) AS n FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '0' SECOND);
