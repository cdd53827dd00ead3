-- Label bids of a middling price by the time of day, and count a letter.
SELECT auction, bidder, 0.908 * price AS price,
       CASE WHEN EXTRACT(HOUR FROM dateTime) BETWEEN 8 AND 18 THEN 'dayTime'
            WHEN EXTRACT(HOUR FROM dateTime) <= 6 OR EXTRACT(HOUR FROM dateTime) >= 20 THEN 'nightTime'
            ELSE 'otherTime' END AS bidTimeType,
       dateTime, extra, LENGTH(extra) - LENGTH(REPLACE(extra, 'c', '')) AS c_counts
FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000;
