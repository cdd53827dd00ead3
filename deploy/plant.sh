#!/usr/bin/env bash
# The example of docs/connect.md: sensors on MQTT, windows that tell of heat, a table of PostgreSQL, psql. All of it as processes of its own
# in a folder that goes at the end. Wants mosquitto, PostgreSQL and its psql, and millstream[mqtt,postgres] on the path.
#   WINDOW_S=10 deploy/plant.sh
set -euo pipefail
window=${WINDOW_S:-10}
folder=$(mktemp -d /tmp/millstream-plant.XXXXXX)
started=()

fail() { echo "plant: $*" >&2; exit 1; }
end() {
    for ((i = ${#started[@]} - 1; i >= 0; i--)); do
        kill -TERM "${started[i]}" 2>/dev/null || true
        wait "${started[i]}" 2>/dev/null || true
    done
    rm -rf "$folder"
}
trap end EXIT

# A program on the path, or where Debian keeps it.
program() {
    command -v "$1" || compgen -G "/usr/sbin/$1" || compgen -G "/usr/lib/postgresql/*/bin/$1" | tail -1 || fail "$1 is not installed"
}
free_ports() { python3 -c 'import socket; s = [socket.socket() for _ in range(3)]; [x.bind(("127.0.0.1", 0)) for x in s]; print(*[x.getsockname()[1] for x in s])'; }
until_it_listens() {
    for _ in $(seq 300); do
        (: <"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return
        sleep 0.1
    done
    fail "nothing listens on port $1 after 30 s"
}
as_postgres=()
if [ "$(id -u)" = 0 ]; then as_postgres=(runuser -u postgres --); fi # PostgreSQL refuses to run as root

mosquitto=$(program mosquitto) initdb=$(program initdb) postgres=$(program postgres) psql=$(program psql)
read -r mqtt_port pg_port port < <(free_ports)
url=postgresql://plant@127.0.0.1:$pg_port/postgres
ask() { PGCONNECT_TIMEOUT=5 "$psql" "$url" -X -v ON_ERROR_STOP=1 "$@"; }

printf 'listener %s 127.0.0.1\nallow_anonymous true\n' "$mqtt_port" >"$folder/mosquitto.conf"
chmod 755 "$folder"
"$mosquitto" -c "$folder/mosquitto.conf" >"$folder/mosquitto.log" 2>&1 &
started+=($!)
mkdir "$folder/postgres"
[ ${#as_postgres[@]} -eq 0 ] || chown postgres "$folder/postgres"
cd /
"${as_postgres[@]}" "$initdb" -D "$folder/postgres" -U plant --auth=trust --no-sync --locale=C -E UTF8 >"$folder/initdb.log"
"${as_postgres[@]}" "$postgres" -D "$folder/postgres" -p "$pg_port" -h 127.0.0.1 -k "$folder/postgres" >"$folder/postgres.log" 2>&1 &
started+=($!)
millstream serve --port "$port" --data-dir "$folder/millstream" >"$folder/millstream.log" 2>&1 &
started+=($!)
for one in "$mqtt_port" "$pg_port" "$port"; do until_it_listens "$one"; done
for _ in $(seq 100); do ask -qc 'SELECT 1' >/dev/null 2>&1 && break || sleep 0.1; done

ask -qc 'CREATE TABLE alerts (window_end TIMESTAMPTZ, sensor TEXT, mean DOUBLE PRECISION, PRIMARY KEY (sensor, window_end))'
millstream sql --server "127.0.0.1:$port" <<SQL
CREATE STREAM readings (sensor TEXT, value DOUBLE) ON ERROR INTO bad_readings DURABILITY journal;
CREATE QUERY hot AS SELECT window_end, sensor, AVG(value) AS mean FROM readings [RANGE $window SECONDS SLIDE $window SECONDS] GROUP BY sensor HAVING AVG(value) > 30;
CREATE SOURCE plant INTO readings WITH (connector = 'mqtt', url = 'mqtt://127.0.0.1:$mqtt_port', topic = 'plant/+/temp', columns = 'sensor = topic[1], value = payload.v');
CREATE SINK alerts FROM hot WITH (connector = 'postgres', url = '$url', table = 'alerts', key = 'sensor, window_end');
SQL

# Two sensors, ten readings a second each, one of them hot. They go on until an alert is in the table.
python3 - "$mqtt_port" <<'PYTHON' &
import json, sys, time
import paho.mqtt.client as mqtt

client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "sensors")
client.connect("127.0.0.1", int(sys.argv[1]))
client.loop_start()
for _ in range(3_000):
    for sensor, value in (("7", 35.0), ("8", 20.0)):
        client.publish(f"plant/{sensor}/temp", json.dumps({"v": value}), qos=1)
    client.publish("plant/9/temp", "no JSON", qos=1)
    time.sleep(0.1)
PYTHON
started+=($!)
echo "plant: the first alert comes when a window of $window s has closed"
for _ in $(seq $((10 * (60 + 2 * window)))); do
    [ "$(ask -Atc 'SELECT COUNT(*) FROM alerts')" = 0 ] || break
    sleep 0.1
done
ask -c 'SELECT sensor, window_end, round(mean::numeric, 1) AS mean FROM alerts ORDER BY window_end LIMIT 5'
millstream sql --server "127.0.0.1:$port" --format csv <<<'SHOW SOURCES; SHOW SINKS;'
[ "$(ask -Atc 'SELECT COUNT(*) FROM alerts')" != 0 ] || { cat "$folder/millstream.log" >&2; fail "no alert came"; }
