-- A car enters a segment with its first report from there. `drives_on` says that it came from another segment of the same trip.
CREATE STREAM entry AS
SELECT time, minute, vid, xway, dir, seg, lane, lane_before IS NOT NULL AND lane_before <> 4 AS drives_on
FROM report
WHERE lane_before IS NULL OR lane_before = 4 OR seg <> seg_before OR dir <> dir_before OR xway <> xway_before;

-- What each entry costs: nothing in light or fast traffic, nor within reach of an accident, nor to a car that is about to exit.
CREATE STREAM toll AS
SELECT time, vid, xway, dir, seg, lane, drives_on, lav, accident,
       CASE WHEN lane <> 4 AND lav < 40 AND cars > 50 AND accident IS NULL THEN 2 * (cars - 50) * (cars - 50) ELSE 0 END AS toll
FROM (SELECT e.time, e.vid, e.xway, e.dir, e.seg, e.lane, e.drives_on,
             CASE WHEN s.minute = e.minute THEN s.lav END AS lav,
             CASE WHEN s.minute = e.minute THEN s.cars ELSE 0 END AS cars,
             CASE WHEN d.minute = e.minute THEN IF(e.dir = 0, e.seg + d.ahead, e.seg - d.ahead) END AS accident
      FROM entry e
           LEFT ASOF JOIN statistics s ON s.xway = e.xway AND s.dir = e.dir AND s.seg = e.seg
           LEFT ASOF JOIN danger d ON d.xway = e.xway AND d.dir = e.dir AND d.seg = e.seg);

CREATE QUERY toll_notification AS
SELECT 0 AS type, vid, time, lav, toll FROM toll WHERE lane <> 4;

CREATE QUERY accident_notification AS
SELECT 1 AS type, time, xway, accident AS seg, dir, vid FROM toll WHERE accident IS NOT NULL AND lane <> 4;
