-- must fail: there is a query q already, and streams and tables share its names
CREATE STREAM s (v INT);
CREATE QUERY q AS SELECT v FROM s;
CREATE STREAM q (v INT);
