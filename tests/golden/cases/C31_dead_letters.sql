-- case: C31
-- says: s: 2 of 5 rows refused
CREATE STREAM s (t BIGINT, w INT) TIMESTAMP BY t UNIT s ON ERROR INTO dead;
SELECT * FROM s;
SELECT position, raw, reason FROM dead;
