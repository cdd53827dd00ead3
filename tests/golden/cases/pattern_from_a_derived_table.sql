-- A pattern that is a column is judged row by row, even where a rewrite finds that the column is a constant.
CREATE STREAM s (ts BIGINT, k TEXT) TIMESTAMP BY ts UNIT s;
SELECT k, k ~ p AS found FROM (SELECT k, '(' AS p FROM s);
SELECT k FROM (SELECT k, 'a!' AS p FROM s) WHERE NOT k LIKE p ESCAPE '!';
