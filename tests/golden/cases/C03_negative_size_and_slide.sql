-- case: C03
-- must fail: RANGE must be positive, not -1 SECOND
CREATE STREAM s (ts BIGINT) TIMESTAMP BY ts UNIT s;
SELECT COUNT(*) AS n FROM s [RANGE -1 SECOND SLIDE -1 SECOND];
