-- How fast was each car in each segment, in each minute?
CREATE STREAM car_speed AS
SELECT xway, dir, seg, vid, AVG(speed) AS speed
FROM report [RANGE 1 MINUTE SLIDE 1 MINUTE]
GROUP BY xway, dir, seg, vid;

-- How many cars were in each segment, in each minute, and how fast were they on average?
CREATE STREAM segment_speed AS
SELECT window_end AS ended, xway, dir, seg, AVG(speed) AS speed, COUNT(*) AS cars
FROM car_speed [RANGE 1 MINUTE SLIDE 1 MINUTE]
GROUP BY xway, dir, seg;

-- What holds in a minute: the mean speed of the five minutes before it (LAV), and the number of cars in the last of them. A segment that
-- had no car in that last minute counts none, whatever there was before.
CREATE STREAM statistics AS
SELECT CAST(EXTRACT(EPOCH FROM window_end) AS BIGINT) / 60 + 1 AS minute, xway, dir, seg, AVG(speed) AS lav,
       CASE WHEN MAX(ended) = window_end THEN ARG_MAX(cars, ended) ELSE 0 END AS cars
FROM segment_speed [RANGE 5 MINUTES SLIDE 1 MINUTE]
GROUP BY xway, dir, seg;
