-- A car that drives on into the next segment pays what it was told on entering the last one.
CREATE STREAM charge AS
SELECT time, vid, CASE WHEN drives_on THEN toll_before ELSE 0 END AS paid
FROM (SELECT time, vid, drives_on, LAG(toll) OVER (PARTITION BY vid ORDER BY time) AS toll_before FROM toll);

-- Type 2: an account is the sum of all charges so far, and a question a charge of nothing.
CREATE QUERY account_balance AS
SELECT 2 AS type, time, time AS result_time, qid, balance
FROM (SELECT time, qid, SUM(paid) OVER (PARTITION BY vid ORDER BY time) AS balance
      FROM (SELECT time, vid, paid, -1 AS qid FROM charge
            UNION ALL
            SELECT time, vid, 0 AS paid, qid FROM input WHERE type = 2))
WHERE qid >= 0;

-- Type 3: what a car paid on an expressway on one of the last 69 days.
CREATE TABLE history (vid BIGINT, day INT, xway INT, toll INT, PRIMARY KEY (vid, day, xway));

CREATE QUERY daily_expenditure AS
SELECT 3 AS type, q.time, q.qid, COALESCE(h.toll, 0) AS toll
FROM input q LEFT JOIN history h ON h.vid = q.vid AND h.day = q.day AND h.xway = q.xway
WHERE q.type = 3;
