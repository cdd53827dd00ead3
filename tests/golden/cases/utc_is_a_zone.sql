-- Weeks of a named zone begin on Monday, also those of UTC; without a zone they count from the epoch, a Thursday.
CREATE STREAM s (ts BIGINT) TIMESTAMP BY ts UNIT s;
SELECT window_start, COUNT(*) AS n FROM s [RANGE 1 WEEK SLIDE 1 WEEK TIME ZONE 'UTC'];
SELECT window_start, COUNT(*) AS n FROM s [RANGE 1 WEEK SLIDE 1 WEEK TIME ZONE 'Etc/UTC'];
SELECT window_start, COUNT(*) AS n FROM s [RANGE 1 WEEK SLIDE 1 WEEK];
SELECT window_start, window_end, COUNT(*) AS n FROM s [RANGE 7 HOURS SLIDE 7 HOURS TIME ZONE 'UTC'];
SELECT window_start, COUNT(*) AS n FROM s [RANGE 2 DAYS SLIDE 2 DAYS TIME ZONE 'UTC'];
