-- An aggregate over another follows its changes, also where it reads no column of it.
CREATE STREAM s (ts BIGINT, k TEXT) TIMESTAMP BY ts UNIT s;
SELECT COUNT(*) AS n FROM (SELECT k, COUNT(*) AS c FROM s GROUP BY k) x EMIT FINAL;
SELECT c, COUNT(*) AS n FROM (SELECT k, COUNT(*) AS c FROM s GROUP BY k) x GROUP BY c EMIT FINAL;
