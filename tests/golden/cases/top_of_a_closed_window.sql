-- A row that comes after its window has closed must not bring a second answer of that window (K4, K9).
-- says: q1: 2 late rows
-- says: q2: 1 late row, 1 partly late row
CREATE STREAM s (ts BIGINT, n INT) TIMESTAMP BY ts UNIT s LATE INTO too_late;
SELECT window_start, n FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] ORDER BY n DESC LIMIT 1;
SELECT window_start, n FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS] ORDER BY n DESC LIMIT 1;
SELECT ts, query FROM too_late;
