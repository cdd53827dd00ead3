-- case: C31, C32
-- says: s: 3 of 6 rows refused
CREATE STREAM s (t BIGINT NOT NULL, w INT) TIMESTAMP BY t UNIT s;
SELECT t, w FROM s;
