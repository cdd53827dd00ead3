-- What did the last ten things of each seller go for, on average? Auctions are open for less than ten seconds, and count when they expire.
CREATE STREAM closed (id BIGINT, seller BIGINT, final BIGINT, expires TIMESTAMP) TIMESTAMP BY expires DELAY 10 SECONDS;
INSERT INTO closed
SELECT id, seller, MAX(price) AS final, expires
FROM (SELECT a.id, a.seller, a.expires, b.price, b.dateTime
      FROM auction a JOIN bid b ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires) [SESSION 10 SECONDS]
GROUP BY id, seller, expires;
SELECT seller, AVG(final) AS average FROM closed [PARTITION BY seller ROWS 10] GROUP BY seller;
