-- A row all of whose parts are NULL keeps its place.
CREATE STREAM s (ts BIGINT, a TEXT, b TEXT) TIMESTAMP BY ts UNIT s;
SELECT ts, CONCAT(a, b) AS joined, CONCAT(a, a) AS twice, CONCAT_WS('-', a, b) AS with_dash, a || b AS strict FROM s;
SELECT ts FROM s WHERE CONCAT(a, b) IN (UPPER(a), b);
