-- NEXMark for Flink SQL 2.3, told anew from the benchmark's definitions. q6 is missing: OVER over rows that are taken back is not supported.
-- name: q0
SELECT auction, bidder, price, `dateTime`, extra FROM bid;
-- name: q1
SELECT auction, bidder, 0.908 * price AS price, `dateTime`, extra FROM bid;
-- name: q2
SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0;
-- name: q3
SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA');
-- name: q4
SELECT category, AVG(final) AS average
FROM (SELECT a.id, a.category, MAX(b.price) AS final
      FROM auction a JOIN bid b ON a.id = b.auction AND b.`dateTime` BETWEEN a.`dateTime` AND a.expires GROUP BY a.id, a.category)
GROUP BY category;
-- name: q5
WITH counts AS (SELECT auction, COUNT(*) AS num, window_start, window_end
                FROM TABLE(HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
                GROUP BY auction, window_start, window_end)
SELECT c.auction, c.num
FROM counts c JOIN (SELECT MAX(num) AS most, window_start, window_end FROM counts GROUP BY window_start, window_end) m
     ON c.window_start = m.window_start AND c.window_end = m.window_end AND c.num >= m.most;
-- name: q7
SELECT b.auction, b.price, b.bidder, b.`dateTime`, b.extra
FROM bid b JOIN (SELECT MAX(price) AS most, window_end AS ended
                 FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND)) GROUP BY window_start, window_end) m
     ON b.price = m.most
WHERE b.`dateTime` BETWEEN m.ended - INTERVAL '10' SECOND AND m.ended;
-- name: q8
SELECT p.id, p.name, p.window_start AS starts
FROM (SELECT id, name, window_start, window_end FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
      GROUP BY id, name, window_start, window_end) p
JOIN (SELECT seller, window_start, window_end FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
      GROUP BY seller, window_start, window_end) a
ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end;
-- name: q9
SELECT id, itemName, description, initialBid, reserve, opens, expires, seller, category, extra, auction, bidder, price, bid_time, bid_extra
FROM (SELECT a.id, a.itemName, a.description, a.initialBid, a.reserve, a.`dateTime` AS opens, a.expires, a.seller, a.category, a.extra,
             b.auction, b.bidder, b.price, b.`dateTime` AS bid_time, b.extra AS bid_extra,
             ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.`dateTime` ASC) AS place
      FROM auction a JOIN bid b ON a.id = b.auction AND b.`dateTime` BETWEEN a.`dateTime` AND a.expires)
WHERE place <= 1;
-- name: q10
SELECT auction, bidder, price, `dateTime`, extra, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd') AS dt, DATE_FORMAT(`dateTime`, 'HH:mm') AS hm FROM bid;
-- name: q11
SELECT bidder, COUNT(*) AS bid_count, window_start AS starts, window_end AS ends
FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end;
-- name: q12
SELECT bidder, COUNT(*) AS bid_count, window_start AS starts, window_end AS ends
FROM TABLE(TUMBLE(TABLE bid_now, DESCRIPTOR(arrived), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end;
-- name: q13
SELECT b.auction, b.bidder, b.price, b.`dateTime`, s.val FROM bid b JOIN side_input s ON MOD(b.auction, 10000) = s.`key`;
-- name: q14
SELECT auction, bidder, 0.908 * price AS price,
       CASE WHEN HOUR(`dateTime`) BETWEEN 8 AND 18 THEN 'dayTime'
            WHEN HOUR(`dateTime`) <= 6 OR HOUR(`dateTime`) >= 20 THEN 'nightTime'
            ELSE 'otherTime' END AS bidTimeType,
       `dateTime`, extra, CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS c_counts
FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000;
-- name: q15
SELECT DATE_FORMAT(`dateTime`, 'yyyy-MM-dd') AS dt, {ranks} FROM bid GROUP BY DATE_FORMAT(`dateTime`, 'yyyy-MM-dd');
-- name: q16
SELECT channel, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd') AS dt, MAX(DATE_FORMAT(`dateTime`, 'HH:mm')) AS hm, {ranks}
FROM bid GROUP BY channel, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd');
-- name: q17
SELECT auction, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd') AS dt, COUNT(*) AS total_bids,
       COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
       COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
       COUNT(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
       MIN(price) AS min_price, MAX(price) AS max_price, AVG(price) AS avg_price, SUM(price) AS sum_price
FROM bid GROUP BY auction, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd');
-- name: q18
SELECT auction, bidder, price, channel, url, `dateTime`, extra
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY `dateTime` DESC) AS place FROM bid) WHERE place <= 1;
-- name: q19
SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS place FROM bid) WHERE place <= 10;
-- name: q20
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.`dateTime` AS bid_time, b.extra AS bid_extra, a.itemName, a.description,
       a.initialBid, a.reserve, a.`dateTime` AS auction_time, a.expires, a.seller, a.category, a.extra AS auction_extra
FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10;
-- name: q21
SELECT auction, bidder, price, channel,
       CASE LOWER(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
            ELSE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
FROM bid
WHERE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) IS NOT NULL OR LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu');
-- name: q22
SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3) AS dir1, SPLIT_INDEX(url, '/', 4) AS dir2, SPLIT_INDEX(url, '/', 5) AS dir3
FROM bid;
