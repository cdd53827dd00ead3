-- must fail: table t cannot have a column op: in published rows, op = '-' deletes a row
CREATE TABLE t (k INT, op TEXT, PRIMARY KEY (k));
