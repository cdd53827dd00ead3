-- says: q1: 1 late
-- says: q2: 1 late
CREATE STREAM s (ts BIGINT, k TEXT) TIMESTAMP BY ts UNIT s LATE INTO l;
SELECT a.k FROM s a JOIN s b ON a.k = b.k WITHIN 2 SECONDS;
SELECT a.k, COUNT(*) AS n FROM s a JOIN s b ON a.k = b.k WITHIN 2 SECONDS JOIN s c ON c.k = b.k WITHIN 2 SECONDS GROUP BY a.k EMIT FINAL;
SELECT query, ts FROM l WHERE query = 'q1';
SELECT query, ts FROM l WHERE query = 'q2';
SELECT window_start, COUNT(*) AS n FROM (SELECT ts FROM s WHERE k <> 'z' UNION ALL SELECT ts FROM s WHERE k = 'a') [RANGE 2 SECONDS SLIDE 2 SECONDS] u;
SELECT query, ts FROM l WHERE query = 'q5';
