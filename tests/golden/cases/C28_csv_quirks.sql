-- case: C28
-- says: s: 1 of 6 rows refused
CREATE STREAM s (id INT, s TEXT);
SELECT id, s, s IS NULL AS missing FROM s;
