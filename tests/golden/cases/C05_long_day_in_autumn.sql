-- case: C05
CREATE STREAM s (ts TIMESTAMP) TIMESTAMP BY ts;
SELECT window_start, window_end, window_end - window_start AS length, COUNT(*) AS n FROM s [RANGE 1 DAY SLIDE 1 DAY TIME ZONE 'America/New_York'];
