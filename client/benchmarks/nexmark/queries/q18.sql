-- What was the last bid of each person for each auction?
SELECT auction, bidder, LAST(price) AS price, LAST(channel) AS channel, LAST(url) AS url, LAST(dateTime) AS last_time, LAST(extra) AS extra
FROM bid GROUP BY bidder, auction;
