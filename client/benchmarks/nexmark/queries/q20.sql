-- Add the auction to the bids for things of category 10.
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.dateTime AS bid_time, b.extra AS bid_extra,
       a.itemName, a.description, a.initialBid, a.reserve, a.dateTime AS auction_time, a.expires, a.seller, a.category, a.extra AS auction_extra
FROM bid [UNBOUNDED] b JOIN auction [UNBOUNDED] a ON b.auction = a.id
WHERE a.category = 10;
