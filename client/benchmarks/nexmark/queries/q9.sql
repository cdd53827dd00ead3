-- Which bid won each auction? The highest one while it was open, the first of several. Auctions are open for less than ten seconds.
SELECT id, FIRST(itemName) AS itemName, FIRST(description) AS description, FIRST(initialBid) AS initialBid, FIRST(reserve) AS reserve,
       FIRST(opens) AS dateTime, FIRST(expires) AS expires, FIRST(seller) AS seller, FIRST(category) AS category, FIRST(extra) AS extra,
       id AS auction, ARG_MAX(bidder, price) AS bidder, MAX(price) AS price, ARG_MAX(at, price) AS bid_time, ARG_MAX(bid_extra, price) AS bid_extra
FROM (SELECT a.id, a.itemName, a.description, a.initialBid, a.reserve, a.dateTime AS opens, a.expires, a.seller, a.category, a.extra,
             b.bidder, b.price, b.dateTime AS at, b.extra AS bid_extra
      FROM auction a JOIN bid b ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires) [SESSION 10 SECONDS]
GROUP BY id;
