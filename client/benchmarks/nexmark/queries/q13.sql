-- Add a value of a table to each bid.
CREATE TABLE side_input (key BIGINT, value TEXT, PRIMARY KEY (key));
SELECT b.auction, b.bidder, b.price, b.dateTime, s.value FROM bid b JOIN side_input s ON b.auction % 10000 = s.key;
