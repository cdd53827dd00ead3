-- How many bids of each person come in every ten seconds of the server's clock?
CREATE STREAM bid_now (bidder BIGINT) TIMESTAMP BY ARRIVAL;
INSERT INTO bid_now SELECT bidder FROM bid;
SELECT bidder, COUNT(*) AS bid_count, window_start AS starts, window_end AS ends
FROM bid_now [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY bidder;
