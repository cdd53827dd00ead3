-- case: C30
-- says: s: 1 of 6 rows refused
CREATE STREAM s (ts BIGINT, fooå TEXT, 字段1 TEXT) TIMESTAMP BY ts UNIT s;
SELECT fooå, COUNT(*) AS n, CHAR_LENGTH(fooå) AS length, OCTET_LENGTH(fooå) AS bytes FROM s [RANGE 100 SECONDS SLIDE 100 SECONDS] GROUP BY fooå;
SELECT 字段1 FROM s WHERE fooå LIKE '%测%';
