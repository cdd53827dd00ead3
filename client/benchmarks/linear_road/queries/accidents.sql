-- Which cars stand? Those with four reports in a row from one place: three reports within a minute that repeat the one before.
CREATE STREAM standing AS
SELECT time, vid, xway, dir, seg, lane, pos
FROM (SELECT time, vid, xway, dir, seg, lane, pos,
             COUNT(*) OVER (PARTITION BY vid ORDER BY time RANGE 60 PRECEDING) AS repeated
      FROM report
      WHERE xway = xway_before AND dir = dir_before AND lane = lane_before AND pos = pos_before)
WHERE repeated = 3;

-- An accident is two cars that stand at one place. Every car reports once in the last half of a minute, so this half tells what there is at
-- the minute's end, it holds for the whole minute after it.
CREATE STREAM accident AS
SELECT xway, dir, seg, lane, pos
FROM standing [RANGE 30 SECONDS SLIDE 1 MINUTE OFFSET 30 SECONDS]
GROUP BY xway, dir, seg, lane, pos
HAVING COUNT(DISTINCT vid) >= 2;

-- Which segments lead to an accident: its own and the four before it. Of several accidents ahead the nearest counts.
CREATE STREAM danger AS
SELECT CAST(EXTRACT(EPOCH FROM window_end) AS BIGINT) / 60 + 1 AS minute, xway, dir, seg, MIN(ahead) AS ahead
FROM (SELECT a.xway, a.dir, CASE WHEN a.dir = 0 THEN a.seg - b.ahead ELSE a.seg + b.ahead END AS seg, b.ahead
      FROM (SELECT xway, dir, seg, ARRAY[0, 1, 2, 3, 4] AS reach FROM accident) a CROSS JOIN UNNEST(a.reach) AS b(ahead))
     [RANGE 1 MINUTE SLIDE 1 MINUTE]
GROUP BY xway, dir, seg;
