"""NATS JetStream, RabbitMQ, Kafka and HTTP against their real other side (Kafka: the mock cluster of its C library), by the kit."""

from __future__ import annotations

import asyncio
import http.server
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from millstream.client.edges.conformance import POSITION_BYTES_MAX, check_sink, check_source
from millstream.client.edges.contract import BATCH_BYTES_MAX, ConnectorError, ConnectorOptions, find

from tests.support import services

pytestmark = [pytest.mark.process, pytest.mark.slow]


def options_of(values: dict[str, Any], name: str = "kit") -> ConnectorOptions:
    return ConnectorOptions(name, values)


def rows(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"v": pa.array(values, pa.int64())})


def check_refused(connector: Any, values: dict[str, Any], match: str) -> None:
    with closing(connector), pytest.raises(ConnectorError, match=match):
        connector.open(options_of(values), None)


def read_until_it_fails(source: Any) -> None:
    deadline = time.monotonic() + services.START_S
    while time.monotonic() < deadline:
        source.read(services.STEP_S)


def test_nats(tmp_path: Path) -> None:
    nats = pytest.importorskip("nats", reason="nats-py is not installed")
    with services.nats_server(tmp_path / "nats") as server:
        url = f"nats://127.0.0.1:{server.port}"

        async def do(*published: tuple[str, bytes], stream: str = "", subjects: tuple[str, ...] = ()) -> None:
            client = await nats.connect(url)
            if stream:
                await client.jetstream().add_stream(name=stream, subjects=list(subjects))
            for subject, data in published:
                await client.jetstream().publish(subject, data)
            await client.close()

        async def values(subject: str) -> list[int]:
            client = await nats.connect(url)
            jetstream = client.jetstream()
            count = (await jetstream.stream_info("RESULTS")).state.messages
            found = [await jetstream.get_msg("RESULTS", number) for number in range(1, count + 1)]
            await client.close()
            return [json.loads(message.data)["v"] for message in found if message.subject == subject]

        asyncio.run(do(stream="PLANT", subjects=("plant.>",)))
        asyncio.run(do(stream="RESULTS", subjects=("out.>",)))
        numbers = iter(range(1_000))

        def fill(count: int) -> None:
            # What goes to other subjects leaves holes in the numbers, and is not for this source.
            wanted = [("plant.7.temp", json.dumps({"v": next(numbers)}).encode()) for _ in range(count)]
            asyncio.run(do(*(one for message in wanted for one in (("plant.7.noise", b"x"), message))))

        check_source(find("source", "nats"), {"url": url, "stream": "PLANT", "subject": "plant.*.temp"}, fill)
        out = {"url": url, "stream": "RESULTS", "subject": "out.kit"}
        check_sink(find("sink", "nats"), out, lambda: asyncio.run(values("out.kit")))
        _check_batch_that_was_cut(find("sink", "nats"), {**out, "subject": "out.cut"}, lambda: asyncio.run(values("out.cut")))
        asyncio.run(do(("out.other", b"1")))
        check_refused(find("sink", "nats")(), {**out, "subject": "out.other"}, "another program writes")
        check_refused(find("source", "nats")(), {"url": url, "stream": "NONE"}, "no JetStream stream")
    check_refused(find("source", "nats")(), {"url": url, "stream": "PLANT"}, "cannot be reached")


def _check_batch_that_was_cut(make: Any, options: dict[str, Any], kept: Any) -> None:
    """A sink that ended within a batch goes on behind the row that was kept last, however the rest is cut."""
    sink = make()
    assert sink.open(options_of(options), None) is None
    sink.write(rows(0, 1), "token 1")
    sink.write(rows(2, 3, 4, 5), "token 2")
    sink.flush()
    sink.close()
    again = make()
    assert again.open(options_of(options), None) == "token 2"
    again._link.run(
        again._publish([(b'{"v": 6}', {"Millstream-Token": "token 2", "Millstream-Behind": "1", "Millstream-Number": f"{10**18}"})])
    )
    again.flush()
    again.close()  # as if it had been killed after the first row of a batch
    last = make()
    assert last.open(options_of(options), None) == "token 2"
    last.write(rows(6), "token 3")
    last.write(rows(7, 8), "token 4")
    last.flush()
    last.close()
    assert kept() == list(range(9))


def test_rabbitmq(tmp_path: Path) -> None:
    pika = pytest.importorskip("pika", reason="pika is not installed")
    with services.rabbitmq(tmp_path / "rabbit") as broker:
        url = f"amqp://guest:guest@127.0.0.1:{broker.port}"
        connection = pika.BlockingConnection(pika.URLParameters(f"{url}/%2F?heartbeat=0"))
        channel = connection.channel()
        for queue in ("in", "out", "large"):
            channel.queue_declare(queue, durable=True)
        numbers = iter(range(1_000))

        def fill(count: int) -> None:
            for _ in range(count):
                channel.basic_publish("", "in", json.dumps({"v": next(numbers)}).encode())

        heard: list[int] = []

        def kept() -> list[int]:
            while (body := channel.basic_get("out", auto_ack=True)[2]) is not None:
                heard.append(json.loads(body)["v"])
            return heard

        check_source(find("source", "rabbitmq"), {"url": url, "queue": "in"}, fill)
        check_sink(find("sink", "rabbitmq"), {"url": url, "routing_key": "out"}, kept)
        for _ in range(10):
            channel.basic_publish("", "large", b"x" * (BATCH_BYTES_MAX // 4))
        source = find("source", "rabbitmq")()
        source.open(options_of({"url": url, "queue": "large"}), None)
        read = 0
        while read < 10:
            batch = source.read(services.START_S)
            assert len(batch.messages) <= 4
            read += len(batch.messages)
        source.close()  # nothing was settled, so all of it comes again
        source = find("source", "rabbitmq")()
        source.open(options_of({"url": url, "queue": "large"}), None)
        assert source.read(services.START_S) is not None
        source.close()
        sink = find("sink", "rabbitmq")()
        sink.open(options_of({"url": url, "routing_key": "nowhere"}), None)
        with pytest.raises(ConnectorError, match="no queue takes"):
            sink.write(rows(1), "token")
        sink.close()
        check_refused(find("source", "rabbitmq")(), {"url": url, "queue": "none"}, "no queue 'none'")
        wrong = f"amqp://127.0.0.1:{broker.port}"
        check_refused(find("sink", "rabbitmq")(), {"url": wrong, "routing_key": "out", "user": "x", "password": "x"}, "ACCESS_REFUSED")
        connection.close()


def test_kafka() -> None:
    kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
    cluster = kafka.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    brokers = cluster.list_topics(timeout=10).brokers.values()
    url = "kafka://" + ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    numbers = iter(range(1_000))

    def fill(count: int) -> None:
        for _ in range(count):
            cluster.produce("in", json.dumps({"v": next(numbers)}).encode(), partition=0)
        assert cluster.flush(30) == 0

    def kept() -> list[int]:
        reader = kafka.Consumer({"bootstrap.servers": url.removeprefix("kafka://"), "group.id": "reader", "log_level": 0})
        found: list[int] = []
        partitions = reader.list_topics("out", timeout=10).topics["out"].partitions
        reader.assign([kafka.TopicPartition("out", one, 0) for one in partitions])
        ends = sum(reader.get_watermark_offsets(kafka.TopicPartition("out", one), timeout=10)[1] for one in partitions)
        while len(found) < ends:
            found += [json.loads(message.value())["v"] for message in reader.consume(100, 1.0) if message.error() is None]
        reader.close()
        return sorted(found)  # between partitions there is no order

    for topic in ("in", "out"):
        cluster.produce(topic, b'{"v": -1}', partition=0) if topic == "in" else cluster.list_topics(topic, timeout=10)
    assert cluster.flush(30) == 0
    fill(0)
    source = find("source", "kafka")()
    source.open(options_of({"url": url, "topic": "in"}), None)
    first = source.read(services.START_S)
    assert [message.value for message in first.messages] == [b'{"v": -1}']
    assert source.lag().messages == 0
    source.close()

    def make() -> Any:
        class Behind(find("source", "kafka")):  # type: ignore[misc]
            def open(self, options: ConnectorOptions, position: bytes | None) -> None:
                super().open(options, position or first.position)

        return Behind()

    check_source(make, {"url": url, "topic": "in"}, fill)
    check_sink(find("sink", "kafka"), {"url": url, "topic": "out", "key": "v"}, kept)
    sink = find("sink", "kafka")()
    sink.open(options_of({"url": url, "topic": "keyed", "key": "k"}), None)
    sink.write(pa.record_batch({"v": [1, 2], "k": ["a", None]}), "token")
    sink.flush()
    with pytest.raises(ConnectorError, match="no column k, which key names; it has v"):
        sink.write(rows(1), "token")
    sink.close()
    reader = kafka.Consumer({"bootstrap.servers": url.removeprefix("kafka://"), "group.id": "keys", "log_level": 0})
    reader.assign([kafka.TopicPartition("keyed", one, 0) for one in reader.list_topics("keyed", timeout=10).topics["keyed"].partitions])
    keys: set[Any] = set()
    while len(keys) < 2:
        keys |= {message.key() for message in reader.consume(2, 1.0) if message.error() is None}
    reader.close()
    assert keys == {b"a", None}


@pytest.mark.parametrize("connector", ["http", "kafka", "nats", "rabbitmq", "redis", "mqtt"])
def test_where_nobody_listens_a_source_says_so_and_what_is_no_url_is_refused(monkeypatch: pytest.MonkeyPatch, connector: str) -> None:
    try:
        kind = find("source", connector)
    except ConnectorError as error:
        pytest.skip(str(error))
    if connector == "kafka":
        monkeypatch.setattr(sys.modules[kind.__module__], "ANSWER_S", 0.5)  # its library asks again and again until then
    scheme = {"rabbitmq": "amqp"}.get(connector, connector)
    others = {"topic": "t", "stream": "s", "queue": "q", "key": "k"}
    for url in ("pigeon://127.0.0.1", f"{scheme}://", f"{scheme}://[::1"):
        check_refused(kind(), {"url": url, **others}, f"^kit: url must be {scheme}://")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        values = {"url": f"{scheme}://127.0.0.1:{taken.getsockname()[1]}", **others}
        said = "Kafka cannot be reached" if connector == "kafka" else "[Cc]onnection refused"
        if connector != "http":
            check_refused(kind(), values, said)
            return
        for mode in ("events", "poll"):
            source = kind()
            source.open(options_of({**values, "mode": mode}), None)  # it asks when it reads
            with closing(source), pytest.raises(ConnectorError, match=said):
                read_until_it_fails(source)


def test_a_position_has_room_for_as_many_partitions_as_a_topic_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    connector = pytest.importorskip("millstream.client.edges.kafka", reason="confluent-kafka is not installed")
    offsets = {number: 2**63 - 1 - number for number in range(0, connector.PARTITIONS_MAX, 3)}
    assert connector.offsets_of(connector.position_of(offsets)) == offsets
    assert len(connector.position_of({connector.PARTITIONS_MAX - 1: 0})) <= POSITION_BYTES_MAX
    monkeypatch.setattr(connector, "_partitions", lambda *_: set(range(connector.PARTITIONS_MAX + 1)))
    check_refused(connector.KafkaSource(), {"url": "kafka://127.0.0.1:1", "topic": "t"}, "it has 129 partitions")


def test_an_authority_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for connector in ("http", "kafka"):
        try:
            kind = find("sink", connector)
        except ConnectorError as error:
            pytest.skip(str(error))
        values = {"url": f"{connector}s://127.0.0.1:1", "topic": "t", "tls_ca": str(tmp_path / "none.pem")}
        check_refused(kind(), values, r"none\.pem|ssl\.ca\.location")


class _Pages(http.server.BaseHTTPRequestHandler):
    """A page, an event stream that goes on behind an id, and a hook that has no time at first."""

    server: Any
    protocol_version = "HTTP/1.0"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged."""

    def do_GET(self) -> None:
        if self.path == "/events":
            self._events()
            return
        body = json.dumps([{"v": v} for v in self.server.values]).encode()
        etag = f'"{len(self.server.values)}"'
        is_same = self.headers.get("If-None-Match") == etag
        self.send_response(304 if is_same else 200)
        self.send_header("ETag", etag)
        self.end_headers()
        self.wfile.write(b"" if is_same else body)

    def _events(self) -> None:
        self.send_response(200)
        self.end_headers()
        sent = int(self.headers.get("Last-Event-ID", 0))
        while not self.server.is_over.is_set():
            with self.server.changed:
                if len(self.server.values) == sent:
                    self.server.changed.wait(0.1)
                new = self.server.values[sent:]
            for value in new:
                sent += 1
                self.wfile.write(f'id: {sent}\r\ndata: {{"v":\r\ndata: {value}}}\r\n\r\n'.encode())
            if not new:
                self.wfile.write(b": nothing\n\n")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.posts.append((self.headers["Idempotency-Key"], body))
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        if status == 200:
            self.server.kept += [json.loads(line)["v"] for line in body.splitlines()]
        self.send_response(status)
        self.end_headers()


@contextmanager
def web_server() -> Iterator[Any]:
    server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Pages)
    server.values, server.kept, server.posts, server.statuses = [], [], [], []
    server.is_over, server.changed = threading.Event(), threading.Condition()
    server.handle_error = lambda *_: None
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server
    finally:
        server.is_over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def test_http(monkeypatch: pytest.MonkeyPatch) -> None:
    connector = pytest.importorskip("millstream.client.edges.http", reason="httpx is not installed")
    monkeypatch.setattr(connector, "RETRY_S", (0.0, 0.0))
    with web_server() as server:
        url = f"http://127.0.0.1:{server.server_port}"

        def fill(count: int) -> None:
            with server.changed:
                server.values += range(len(server.values), len(server.values) + count)
                server.changed.notify_all()

        check_source(connector.HttpSource, {"url": f"{url}/events"}, fill)
        server.values.clear()
        source = connector.HttpSource()
        source.open(options_of({"url": f"{url}/page", "mode": "poll", "poll": 0.01}), None)
        positions = []
        for total in (2, 3):
            fill(1 if server.values else 2)
            batch = None
            while batch is None or not batch.messages:
                batch = source.read(0.02)
            assert [json.loads(m.value)["v"] for m in batch.messages] == list(range(total))
            positions.append(batch.position)
        assert source.read(0.05) is None, "a page that has not changed"
        source.close()
        again = connector.HttpSource()
        again.open(options_of({"url": f"{url}/page", "mode": "poll", "poll": 0.01}), positions[-1])
        assert again.read(0.05) is None, "nor has it since the last position"
        again.close()
        server.statuses = [503, 429]
        check_sink(connector.HttpSink, {"url": f"{url}/hook"}, lambda: server.kept)
        assert len(set(server.posts[:3])) == 1, "the same request has the same key"
        server.posts.clear()
        monkeypatch.setattr(connector, "BATCH_BYTES_MAX", 20)
        for cuts in ((4,), (1, 3), (2, 2)):  # the same results, as they may come again after a fault
            sink, at = connector.HttpSink(), 0
            sink.open(options_of({"url": f"{url}/hook"}), "token 0")
            for count in cuts:
                sink.write(rows(*range(at, at + count)), f"token {at + count}")
                at += count
            sink.close()
        assert len({key for key, _ in server.posts}) == len(set(server.posts)), "what has the same key is the same rows"
        sink = connector.HttpSink()
        sink.open(options_of({"url": f"{url}/hook"}), None)
        server.statuses = [400]
        with pytest.raises(ConnectorError, match="answers 400; it refuses"):
            sink.write(rows(1), "t")
        server.statuses = [500] * 3
        with pytest.raises(ConnectorError, match="3 times in a row"):
            sink.write(rows(1), "t")
        sink.close()


@pytest.mark.parametrize("says", [b"", b"HTTP/1.1 200 OK\r\n\r\nid: \xc3\xa9\ndata: 1\n\n"])
def test_a_silent_event_stream_can_be_left_and_gone_on_with(monkeypatch: pytest.MonkeyPatch, says: bytes) -> None:
    connector = pytest.importorskip("millstream.client.edges.http", reason="httpx is not installed")
    monkeypatch.setattr(connector, "LEAVE_S", services.START_S)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(services.START_S)
        position = None
        for _ in range(2):
            source = connector.HttpSource()
            with closing(source):
                source.open(options_of({"url": f"http://127.0.0.1:{listening.getsockname()[1]}/"}), position)
                peer, _ = listening.accept()
                asked = b""
                while b"\r\n\r\n" not in asked:
                    asked += peer.recv(9_999)
                assert (b"Last-Event-ID: \xc3\xa9" in asked) is (position is not None)
                peer.sendall(says)
                if says:
                    position = source.read(services.START_S).position
                thread = source._reader._thread
            assert not thread.is_alive(), "closed, it still waits for the other side"
            peer.close()


def test_events_are_read_wherever_they_are_cut() -> None:
    connector = pytest.importorskip("millstream.client.edges.http", reason="httpx is not installed")
    stream = b": hello\r\nid: 1\r\ndata: a\r\ndata: b\r\n\r\nevent: x\ndata:c\n\nid: 2\n\ndata: d\n\ndata: never ended\n"
    wanted = [(b"a\nb", "", "1"), (b"c", "x", "1"), (b"d", "", "2")]
    for size in range(1, len(stream)):
        chunks = iter([stream[at : at + size] for at in range(0, len(stream), size)])
        assert [(m.value, m.topic, last) for m, last in connector.events(chunks)] == wanted
    for large, said in ((b"data: " + b"x" * 2**20, "more than"), (b"id: " + b"x" * 513 + b"\n", "513 bytes, 512")):
        with pytest.raises(ConnectorError, match=said):
            list(connector.events(iter([large] * 3)))
