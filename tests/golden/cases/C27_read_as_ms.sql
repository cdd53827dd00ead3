-- case: C27
-- says: an implausible time
CREATE STREAM s (ts BIGINT) TIMESTAMP BY ts UNIT ms;
SELECT window_start, COUNT(*) AS n FROM s [RANGE 1 MILLISECOND SLIDE 1 MILLISECOND];
