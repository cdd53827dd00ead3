-- case: C05
CREATE STREAM s (ts TIMESTAMP) TIMESTAMP BY ts;
SELECT window_start, window_end, COUNT(*) AS n FROM s [RANGE 1 HOUR SLIDE 1 HOUR TIME ZONE 'America/New_York'];
