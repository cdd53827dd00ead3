-- must fail: the name q is taken by a query; streams, tables and queries share their names
CREATE STREAM s (v INT);
CREATE QUERY q AS SELECT v FROM s;
CREATE STREAM q (v INT);
