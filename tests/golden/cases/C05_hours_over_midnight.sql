-- case: C05
CREATE STREAM s (ts TIMESTAMP) TIMESTAMP BY ts;
SELECT window_start, window_end, COUNT(*) AS n FROM s [RANGE 7 HOURS SLIDE 7 HOURS TIME ZONE 'America/New_York'];
SELECT window_start, window_end, COUNT(*) AS n FROM s [RANGE 90 MINUTES SLIDE 60 MINUTES TIME ZONE 'America/New_York'];
