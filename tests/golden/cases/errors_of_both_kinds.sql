-- Rows refused at ingest and rows at which an expression failed, in one error output.
CREATE STREAM s (ts BIGINT, v INT) TIMESTAMP BY ts UNIT s ON ERROR INTO bad;
SELECT 8 / v AS w FROM s;
SELECT query, position FROM bad;
