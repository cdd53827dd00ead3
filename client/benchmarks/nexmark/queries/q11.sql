-- How many bids did each person make while he was active?
SELECT bidder, COUNT(*) AS bid_count, window_start AS starts, window_end AS ends
FROM bid [SESSION 10 SECONDS] GROUP BY bidder;
