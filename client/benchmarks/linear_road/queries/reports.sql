-- What cars send, column for column as in the benchmark's files, -1 stands for nothing. A row of type 0 reports where a car is, type 2 asks
-- for the balance of its account, type 3 for the tolls of an earlier day. Lane 0 is an entry, lane 4 an exit, dir 0 leads east.
CREATE STREAM input (type INT, time BIGINT, vid BIGINT, speed INT, xway INT, lane INT, dir INT, seg INT, pos INT, qid INT,
    sinit INT, send INT, dow INT, tod INT, day INT) TIMESTAMP BY time UNIT s;

-- Where each car is, and where its report before this one came from: NULL in its first report.
CREATE STREAM report AS
SELECT time, time / 60 + 1 AS minute, vid, speed, xway, dir, seg, lane, pos,
       LAG(xway) OVER (PARTITION BY vid ORDER BY time) AS xway_before,
       LAG(dir) OVER (PARTITION BY vid ORDER BY time) AS dir_before,
       LAG(seg) OVER (PARTITION BY vid ORDER BY time) AS seg_before,
       LAG(lane) OVER (PARTITION BY vid ORDER BY time) AS lane_before,
       LAG(pos) OVER (PARTITION BY vid ORDER BY time) AS pos_before
FROM input WHERE type = 0;
