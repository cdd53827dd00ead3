-- Pass every bid through.
SELECT auction, bidder, price, dateTime, extra FROM bid;
