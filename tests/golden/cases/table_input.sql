-- Tables are loaded first, whatever the order of the options; INSERT changes them too.
CREATE TABLE names (k INT, name TEXT, PRIMARY KEY (k));
CREATE STREAM a (ts BIGINT, k INT) TIMESTAMP BY ts UNIT s;
INSERT INTO names VALUES (3, 'three'), (1, 'uno');
SELECT a.k AS k, n.name AS name FROM a JOIN names n ON a.k = n.k;
