-- For deploy/compose.yaml with the profile `plant`: sensors, alerts, and their table, which psql makes first:
--   CREATE TABLE alerts (window_end TIMESTAMPTZ, sensor TEXT, mean DOUBLE PRECISION, PRIMARY KEY (sensor, window_end));
CREATE STREAM readings (sensor TEXT, value DOUBLE) ON ERROR INTO bad_readings DURABILITY journal;
CREATE QUERY hot AS SELECT window_end, sensor, AVG(value) AS mean FROM readings [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY sensor HAVING AVG(value) > 30;
CREATE SOURCE plant INTO readings WITH (connector = 'mqtt', url = 'mqtt://mosquitto', topic = 'plant/+/temp', columns = 'sensor = topic[1], value = payload.v');
CREATE SINK alerts FROM hot WITH (connector = 'postgres', url = 'postgresql://postgres@postgres/postgres', password = ENV('PG_PASSWORD'), table = 'alerts', key = 'sensor, window_end');
