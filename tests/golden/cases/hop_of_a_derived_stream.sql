-- A window over the answers of a window (K19).
CREATE STREAM s (ts BIGINT, v INT) TIMESTAMP BY ts UNIT s;
CREATE STREAM per_two AS SELECT window_end AS at, SUM(v) AS total FROM s [RANGE 2 SECONDS SLIDE 2 SECONDS];
SELECT window_start, COUNT(total) AS n, MAX(total) AS most FROM per_two [RANGE 4 SECONDS SLIDE 4 SECONDS];
