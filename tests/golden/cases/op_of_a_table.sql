-- must fail: table t: published rows carry op, where '-' deletes, so no column may be called op
CREATE TABLE t (k INT, op TEXT, PRIMARY KEY (k));
