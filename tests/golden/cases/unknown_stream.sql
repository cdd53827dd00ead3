-- must fail: there is no stream or table packts
CREATE STREAM packets (ts TIMESTAMP) TIMESTAMP BY ts;
SELECT ts FROM packts;
