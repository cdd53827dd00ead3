-- says: q1: 1 late
-- says: q2: 2 late
-- A row of a waits 3 s for its partner, one of b 2 s: by so much W is behind after the outer join, for z too (K2, K19).
CREATE STREAM a (ts BIGINT, n INT) TIMESTAMP BY ts UNIT s;
CREATE STREAM b (ts BIGINT, n INT) TIMESTAMP BY ts UNIT s;
CREATE STREAM z (ts BIGINT, n INT) TIMESTAMP BY ts UNIT s;
SELECT a.n AS a, b.n AS b, z.n AS z FROM a FULL JOIN b ON b.ts BETWEEN a.ts - 2 AND a.ts + 3 JOIN z ON TRUE WITHIN 9 SECONDS;
SELECT a.n AS a, b.n AS b, z.n AS z FROM a RIGHT JOIN b ON b.ts BETWEEN a.ts - 2 AND a.ts + 3 JOIN z ON TRUE WITHIN 9 SECONDS;
