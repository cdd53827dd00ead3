-- case: C17
CREATE STREAM s (ts BIGINT, k BIGINT, v TEXT) TIMESTAMP BY ts UNIT s;
SELECT x.v AS a, y.v AS b FROM s x JOIN s y ON x.k = y.k WITHIN 10 SECONDS;
SELECT x.v AS a, y.v AS b FROM s x JOIN s y ON x.k = y.k AND x.ts < y.ts WITHIN 10 SECONDS;
