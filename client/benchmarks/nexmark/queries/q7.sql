-- Which were the highest bids of every ten seconds?
SELECT auction, price, bidder, dateTime, extra
FROM bid [RANGE 10 SECONDS SLIDE 10 SECONDS]
ORDER BY price DESC LIMIT 1 WITH TIES;
