-- must fail: line 3
CREATE STREAM packets (ts TIMESTAMP, length INT) TIMESTAMP BY ts;
SELECT length FRM packets;
