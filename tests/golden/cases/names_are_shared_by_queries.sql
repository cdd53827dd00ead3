-- must fail: there is a table q already, and queries share its names
CREATE STREAM s (v INT);
CREATE TABLE q (k INT, PRIMARY KEY (k));
CREATE QUERY q AS SELECT v FROM s;
