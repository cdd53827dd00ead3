-- must fail: lenght
CREATE STREAM packets (ts TIMESTAMP, length INT) TIMESTAMP BY ts;
SELECT lenght FROM packets;
