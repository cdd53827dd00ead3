-- What are the ten highest bids for each auction?
SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS place FROM bid)
WHERE place <= 10;
