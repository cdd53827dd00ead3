-- What do the auctions of each category close at, on average? Auctions are open for less than ten seconds.
SELECT category, AVG(final) AS average
FROM (SELECT id, category, MAX(price) AS final, window_time
      FROM (SELECT a.id, a.category, b.price, b.dateTime
            FROM auction a JOIN bid b ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires) [SESSION 10 SECONDS]
      GROUP BY id, category)
GROUP BY category;
