CREATE TABLE rates (currency TEXT, rate DECIMAL(10, 2), PRIMARY KEY (currency));
CREATE STREAM orders (ts BIGINT, id INT, currency TEXT) TIMESTAMP BY ts UNIT s;
SELECT o.id AS id, r.rate AS rate FROM orders o JOIN rates r ON o.currency = r.currency;
SELECT o.id AS id, r.rate AS rate FROM orders o LEFT JOIN rates r ON o.currency = r.currency;
