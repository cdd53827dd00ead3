-- must fail: the name q is taken by a table; streams, tables and queries share their names
CREATE STREAM s (v INT);
CREATE TABLE q (k INT, PRIMARY KEY (k));
CREATE QUERY q AS SELECT v FROM s;
