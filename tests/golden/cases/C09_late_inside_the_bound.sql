-- case: C09
-- says: q1: 1 late
CREATE STREAM s (ts BIGINT) TIMESTAMP BY ts UNIT s DELAY 60 SECONDS LATE INTO too_late;
SELECT window_start, COUNT(*) AS n FROM s [RANGE 60 SECONDS SLIDE 60 SECONDS];
SELECT ts, query FROM too_late;
