CREATE STREAM a (ts BIGINT, k INT, v INT) TIMESTAMP BY ts UNIT ms DELAY 10 SECONDS;
CREATE STREAM b (ts BIGINT, k BIGINT, w INT) TIMESTAMP BY ts UNIT ms DELAY 10 SECONDS;
SELECT v, w FROM a JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts - 1 SECOND AND a.ts + INTERVAL '2' SECOND;
SELECT v, w FROM a JOIN b ON a.k = b.k WHERE b.ts BETWEEN a.ts - 1000 AND a.ts + 2000;
SELECT v, w FROM a ASOF JOIN b ON a.k = b.k AND b.ts < a.ts;
SELECT v, w, a.window_start AS x FROM a [RANGE 4 SECONDS SLIDE 4 SECONDS] JOIN b [RANGE 4 SECONDS SLIDE 4 SECONDS]
    ON a.k = b.k AND a.window_start = b.window_start AND a.window_end = b.window_end;
