"""Each connector that comes with Millstream against its real other side, by the kit that others run on theirs."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from millstream.client.edges.conformance import check_sink, check_source
from millstream.client.edges.contract import BATCH_BYTES_MAX, ConnectorError, ConnectorOptions, Message, MessageBatch, find
from millstream.client.edges.files import FilesSink, FilesSource

from tests.support import services
from tests.support.tree import ROOT

pytestmark = [pytest.mark.process, pytest.mark.slow]
LARGE, LARGE_BYTES = 40, 500_000  # messages that together do not fit one batch


def test_files_of_a_directory_and_rolled_files(tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    numbers = iter(range(1_000))

    def fill(count: int) -> None:
        lines = [json.dumps({"v": next(numbers)}) for _ in range(count)]
        (folder / f"{next(numbers):04}.jsonl").write_text("\n".join(lines) + "\n")

    check_source(FilesSource, {"path": str(folder)}, fill)

    def kept() -> list[int]:
        return [json.loads(line)["v"] for path in sorted(out.glob("kit-*.jsonl")) for line in path.read_text().splitlines()]

    check_sink(FilesSink, {"path": str(out), "roll_s": 0}, kept)


def test_a_log_that_grows_and_is_rotated(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.touch()
    count = 0

    def fill(lines: int) -> None:
        nonlocal count
        for n in range(lines):
            if n == lines // 2 and count:
                log.rename(tmp_path / f"app.log.{count}")
            with log.open("a") as file:
                file.write(f'{{"v": {count}}}\n')
            count += 1

    check_source(FilesSource, {"path": str(log)}, fill)


def test_csv_files_have_a_header_and_a_bad_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("v,w\n1,2\n3,4")  # its last line counts once another file follows
    (tmp_path / "b.csv").write_text("v,w\n")
    source = FilesSource()
    source.open(ConnectorOptions("x", {"path": str(tmp_path), "format": "csv"}), None)
    first, second = source.read(1.0), source.read(1.0)
    assert first is not None
    assert second is not None
    assert [(m.value, m.header) for m in (*first.messages, *second.messages)] == [(b"1,2", b"v,w"), (b"3,4", b"v,w")]
    source.close()
    source = FilesSource()  # in the midst of a file the names are still known
    source.open(ConnectorOptions("x", {"path": str(tmp_path), "format": "csv"}), first.position)
    again = source.read(1.0)
    assert again is not None
    assert [(m.value, m.header) for m in again.messages] == [(b"3,4", b"v,w")]
    source.close()
    with pytest.raises(ConnectorError, match="there is no file or directory"):
        FilesSource().open(ConnectorOptions("x", {"path": str(tmp_path / "no" / "such")}), None)


def test_a_file_that_is_not_there_yet_is_told_and_read_from_its_beginning_once_it_is(tmp_path: Path) -> None:
    options = ConnectorOptions("x", {"path": str(tmp_path / "app.log")})
    source = FilesSource()
    with pytest.raises(ConnectorError, match=r"no file or directory .*app\.log yet; it is read from its beginning"):
        source.open(options, None)
    (tmp_path / "app.log.1").write_text('{"v": 1}\n')  # it came, and was rotated at once
    source.open(options, None)
    assert (found := source.read(1.0)) is not None
    assert [message.value for message in found.messages] == [b'{"v": 1}']
    source.close()


def test_empty_files_are_passed_however_many_they_are(tmp_path: Path) -> None:
    for number in range(sys.getrecursionlimit()):
        (tmp_path / f"{number:05}").touch()
    (tmp_path / "last").write_text('{"v": 1}\n')
    source = FilesSource()
    source.open(ConnectorOptions("x", {"path": str(tmp_path)}), None)
    batch = source.read(0.0)
    source.close()
    assert batch is not None
    assert [m.value for m in batch.messages] == [b'{"v": 1}']


def test_mqtt(tmp_path: Path) -> None:
    paho = pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed")
    with services.mosquitto(tmp_path / "broker") as broker:
        url = f"mqtt://127.0.0.1:{broker.port}"
        sender = paho.Client(paho.CallbackAPIVersion.VERSION2, "sender")
        sender.connect("127.0.0.1", broker.port)
        sender.loop_start()
        heard: list[int] = []
        reader = paho.Client(paho.CallbackAPIVersion.VERSION2, "reader")
        reader.on_message = lambda client, userdata, message: heard.append(json.loads(message.payload)["v"])
        reader.connect("127.0.0.1", broker.port)
        reader.subscribe("out/#", 1)
        reader.loop_start()
        numbers = iter(range(1_000))

        def fill(count: int) -> None:
            for _ in range(count):
                sender.publish("plant/7/temp", json.dumps({"v": next(numbers)}), 1).wait_for_publish(services.START_S)

        def kept() -> list[int]:
            deadline = time.monotonic() + 5
            while len(heard) not in (6, 7) and time.monotonic() < deadline:
                time.sleep(0.02)
            time.sleep(0.1)
            return heard

        try:
            for version in ("5", "3.1.1"):
                options = {"url": url, "topic": "plant/+/temp", "version": version, "client_id": f"kit-{version}"}
                check_source(find("source", "mqtt"), options, fill)
            check_sink(find("sink", "mqtt"), {"url": url, "topic": "out/{v}"}, kept)
        finally:
            for client in (sender, reader):
                client.disconnect()
                client.loop_stop()
    with pytest.raises(ConnectorError, match="no broker answers"):
        find("source", "mqtt")().open(ConnectorOptions("x", {"url": url, "topic": "a"}), None)


def check_large(connector: str, options: dict[str, Any], number_of: Callable[[Message], int]) -> None:
    """Check that a source cuts what is read together into batches that the server takes, and goes on behind any."""
    position, found = None, []
    while len(found) < LARGE:
        source = find("source", connector)()
        source.open(ConnectorOptions("x", options), position)
        for _ in range(2):  # the second is of what the first was read with
            batch = source.read(services.START_S) if len(found) < LARGE else None
            if batch is not None:
                assert sum(message.size for message in batch.messages) <= BATCH_BYTES_MAX
                found += map(number_of, batch.messages)
                position = batch.position
        source.close()
    assert found == list(range(LARGE))


def test_large_messages_of_mqtt_come_in_batches_of_few() -> None:
    mqtt = pytest.importorskip("millstream.client.edges.mqtt", reason="paho-mqtt is not installed")
    source = mqtt.MqttSource()
    source._link = SimpleNamespace(check=lambda: None)
    for number in range(10):
        source._arrived.put(SimpleNamespace(payload=b"x" * (BATCH_BYTES_MAX // 4), topic="t", mid=number, qos=1))
    sizes = []
    while (batch := source.read(0.0)) is not None:
        sizes.append(len(batch.messages))
    assert sizes == [4, 4, 2]


def test_redis_streams(tmp_path: Path) -> None:
    redis = pytest.importorskip("redis", reason="redis is not installed")
    with services.redis_server(tmp_path / "redis") as server:
        url = f"redis://127.0.0.1:{server.port}/0"
        with redis.Redis.from_url(url) as client:
            numbers = iter(range(1_000))

            def fill(count: int) -> None:
                for _ in range(count):
                    client.xadd("in", {"data": json.dumps({"v": next(numbers)})})

            check_source(find("source", "redis"), {"url": url, "key": "in", "field": "data"}, fill)
            check_sink(
                find("sink", "redis"),
                {"url": url, "key": "out"},
                lambda: [json.loads(fields[b"data"])["v"] for _, fields in client.xrange("out")],
            )
            for number in range(LARGE):
                client.xadd("large", {"data": f"{number}," + "x" * LARGE_BYTES})
            check_large("redis", {"url": url, "key": "large", "field": "data"}, lambda message: int(message.value.split(b",")[0]))


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    with services.postgres(Path("/tmp")) as (_, url):
        yield url


def test_postgres(database: str) -> None:
    import psycopg

    with psycopg.connect(database, autocommit=True) as client:
        client.execute("CREATE TABLE readings (id BIGSERIAL, v BIGINT, note TEXT DEFAULT 'x')")
        client.execute("CREATE TABLE results (v BIGINT)")
        client.execute("CREATE TABLE upserted (v BIGINT PRIMARY KEY)")

        def fill(count: int) -> None:
            client.execute("INSERT INTO readings (v) SELECT generate_series(1, %s)", (count,))

        check_source(find("source", "postgres"), {"url": database, "table": "readings", "cursor": "id", "poll": 0.01}, fill)
        client.execute("CREATE TABLE large (id BIGINT, note TEXT)")
        client.execute("INSERT INTO large SELECT n, repeat('x', %s) FROM generate_series(0, %s) AS n", (LARGE_BYTES, LARGE - 1))
        check_large("postgres", {"url": database, "table": "large", "cursor": "id"}, lambda message: message.value["id"])
        for table, key in (("results", {}), ("upserted", {"key": "v"})):
            client.execute("DROP TABLE IF EXISTS millstream_sinks")
            check_sink(
                find("sink", "postgres"),
                {"url": database, "table": table, **key},
                lambda table=table: [v for (v,) in client.execute(f"SELECT v FROM {table} ORDER BY ctid").fetchall()],  # type: ignore[misc]
            )
        client.execute("CREATE TABLE nested (s JSONB, l DOUBLE PRECISION[], m JSONB)")
        sink = find("sink", "postgres")()
        sink.open(ConnectorOptions("nested", {"url": database, "table": "nested"}), None)
        parts = {
            "s": pa.array([{"x": float("nan"), "b": b"\x0a"}, None]),
            "l": pa.array([[1.0, float("nan")], None]),
            "m": pa.array([[{"y": 1}], []]),
        }
        sink.write(pa.record_batch(parts), "token")
        sink.flush()
        sink.close()
        client.execute("CREATE TABLE other (w BIGINT)")
        for table, key, said in (
            ("nothere", None, r"relation .* does not exist; table nothere must have the columns v$"),
            ("other", None, r"column .* does not exist; table other must have the columns v$"),
            ("results", "v", r"table results must have the columns v, and PRIMARY KEY or UNIQUE \(v\)$"),
        ):
            sink = find("sink", "postgres")()
            sink.open(ConnectorOptions("wrong", {"url": database, "table": table} | ({"key": key} if key else {})), None)
            sink.write(pa.record_batch({"v": [1]}), "token")
            with pytest.raises(ConnectorError, match=said):
                sink.flush()
            sink.close()
        wanted = [({"x": "NaN", "b": "\\x0a"}, "{1,NaN}", [{"y": 1}]), (None, None, [])]
        assert client.execute("SELECT s, l::text, m FROM nested").fetchall() == wanted
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"postgresql://tester@127.0.0.1:{taken.getsockname()[1]}/x"
        with pytest.raises(ConnectorError, match="PostgreSQL cannot be reached"):
            find("sink", "postgres")().open(ConnectorOptions("x", {"url": url, "table": "t"}), None)


def example() -> Any:
    """Return the class that docs/connect.md shows."""
    blocks = (ROOT / "docs" / "connect.md").read_text().split("```python\n")
    namespace: dict[str, Any] = {}
    exec(blocks[1].partition("```")[0], namespace)
    return namespace["Counting"]


def test_the_kit_passes_the_example_of_the_page_and_finds_what_is_wrong_with_others() -> None:
    counting, options = example(), {"last": 40}

    def fill(count: int) -> None:
        """It has them."""

    check_source(counting, options, fill)

    class Repeating(counting):  # type: ignore[misc, valid-type]
        def open(self, options: ConnectorOptions, position: bytes | None) -> None:
            super().open(options, position)
            self._next = max(0, self._next - 1)

    with pytest.raises(AssertionError, match="other messages come"):
        check_source(Repeating, options, fill)

    class Hasty(counting):  # type: ignore[misc, valid-type]
        def read(self, wait_s: float) -> MessageBatch | None:
            return super().read(0.0)

    with pytest.raises(AssertionError, match="comes back before its time"):
        check_source(Hasty, options, fill)

    class Silent(counting):  # type: ignore[misc, valid-type]
        promise = "perhaps"

    with pytest.raises(AssertionError, match="promise must begin"):
        check_source(Silent, options, fill)
    with pytest.raises(ConnectorError, match="there is no connector pigeons for a source; there are files, http, kafka"):
        find("source", "pigeons")
