-- What may lose reports when too much comes, and what may not. The statements of this file stand in for those of the same name elsewhere.
CREATE CLASS warnings PRIORITY 10 NEVER SHED;
CREATE CLASS tolls PRIORITY 1 TARGET 500 MILLISECONDS SHED;

-- Warnings have a chain of their own, from the cars' rows on: all that they need, and no more.
CREATE STREAM sighting AS
SELECT time, time / 60 + 1 AS minute, vid, xway, dir, seg, lane, pos,
       LAG(xway) OVER (PARTITION BY vid ORDER BY time) AS xway_before,
       LAG(dir) OVER (PARTITION BY vid ORDER BY time) AS dir_before,
       LAG(seg) OVER (PARTITION BY vid ORDER BY time) AS seg_before,
       LAG(lane) OVER (PARTITION BY vid ORDER BY time) AS lane_before,
       LAG(pos) OVER (PARTITION BY vid ORDER BY time) AS pos_before
FROM input WHERE type = 0
WITH (class = 'warnings');

CREATE STREAM standing AS
SELECT time, vid, xway, dir, seg, lane, pos
FROM (SELECT time, vid, xway, dir, seg, lane, pos,
             COUNT(*) OVER (PARTITION BY vid ORDER BY time RANGE 60 PRECEDING) AS repeated
      FROM sighting
      WHERE xway = xway_before AND dir = dir_before AND lane = lane_before AND pos = pos_before)
WHERE repeated = 3
WITH (class = 'warnings');

CREATE QUERY accident_notification AS
SELECT 1 AS type, time, xway, IF(dir = 0, seg + ahead, seg - ahead) AS seg, dir, vid
FROM (SELECT s.time, s.vid, s.xway, s.dir, s.seg, s.lane, s.minute, d.minute AS since, d.ahead
      FROM (SELECT time, minute, vid, xway, dir, seg, lane FROM sighting
            WHERE lane_before IS NULL OR lane_before = 4 OR seg <> seg_before OR dir <> dir_before OR xway <> xway_before) s
           ASOF JOIN danger d ON d.xway = s.xway AND d.dir = s.dir AND d.seg = s.seg)
WHERE since = minute AND lane <> 4
WITH (class = 'warnings');

-- Which reports the class of the tolls saw, and how many rows it lost in each second: what answers can be judged by.
CREATE QUERY seen AS
SELECT time, vid FROM input WHERE type = 0;

CREATE QUERY receipts AS
SELECT window_start, COUNT(*) AS seen FROM input [RANGE 1 SECOND SLIDE 1 SECOND];
