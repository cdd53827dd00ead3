"""How fast sources and sinks are beside the library of their other side, in messages a second: `make edges`.

`library` reads or writes the messages in the library's own best way, `connector` is `read` or `write` of ours. Both take turns. The first
ratio is that of the medians. The second is that of the processor time of this process for a message, which other work on the machine
and a slow broker disturb less. `whole` is a source with a server behind it: rows accepted a second. Nothing is judged here.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from millstream.client.edges.contract import ConnectorOptions, find
from millstream.client.edges.runs import KEPT_ROWS

from tests.edges.test_kills import daemon
from tests.support import services

MESSAGES = 10_000
PAYLOADS = [json.dumps({"v": v}).encode() for v in range(MESSAGES)]
BATCH = 1_000
ROUNDS = 3
BATCHES = [pa.record_batch({"v": pa.array(range(start, start + BATCH), pa.int64())}) for start in range(0, MESSAGES, BATCH)]


Rates = tuple[float, float]


def timed(work: Callable[[], object]) -> Rates:
    """Return messages a second, and messages a second of this process's processor time."""
    began, used = time.perf_counter(), time.process_time()
    work()
    return MESSAGES / (time.perf_counter() - began), MESSAGES / (time.process_time() - used)


@contextmanager
def opened(kind: str, connector: str, values: dict[str, Any]) -> Iterator[Any]:
    made = find(kind, connector)()
    made.open(ConnectorOptions("rate", values), None)
    try:
        yield made
    finally:
        made.close()


def source_rate(connector: str, values: dict[str, Any]) -> Rates:
    with opened("source", connector, values) as source:

        def read() -> None:
            left = MESSAGES
            while left > 0:
                batch = source.read(0.2)
                if batch is not None:
                    left -= len(batch.messages)
                    source.settled(batch.position)

        return timed(read)


def sink_rate(connector: str, values: dict[str, Any]) -> Rates:
    with opened("sink", connector, values) as sink:

        def write() -> None:
            for number, batch in enumerate(BATCHES, 1):
                sink.write(batch, f"t{number}")
                if number % (KEPT_ROWS // BATCH) == 0:
                    sink.flush()
            sink.flush()

        return timed(write)


def whole_rate(options: str, folder: Path, begin: Callable[[], object]) -> float:
    with daemon(folder) as server:
        server.execute("CREATE STREAM s (v BIGINT) DURABILITY journal", f"CREATE SOURCE feed INTO s WITH ({options})")
        while server.execute("SHOW SOURCES")[0]["state"] != "running":
            time.sleep(0.05)
        begin()
        first: tuple[float, int] | None = None
        while True:
            now, rows = time.perf_counter(), server.execute("SHOW STREAMS")[0]["accepted"]
            if rows and first is None:
                first = now, rows
            if rows >= MESSAGES and first is not None:
                return (rows - first[1]) / max(now - first[0], 1e-9)
            time.sleep(0.02)


def compare(name: str, library: Callable[[], Rates], connector: Callable[[], Rates], whole: float | None = None) -> None:
    """Let both take turns, and tell the medians and their ratios. The first turn of each is not counted: it loads what it needs."""
    library(), connector()
    turns = [(*library(), *connector()) for _ in range(ROUNDS)]
    best, best_used, ours, ours_used = (statistics.median(rates) for rates in zip(*turns, strict=True))
    behind = "" if whole is None else f"  whole {whole:,.0f}/s"
    ratios = f"ratio {ours / best:.2f}  of processor time {ours_used / best_used:.2f}"
    print(f"{name:16} library {best:9,.0f}/s  connector {ours:9,.0f}/s  {ratios}{behind}", flush=True)


def redis_rates(folder: Path) -> None:
    import redis

    with services.redis_server(folder) as server, redis.Redis(port=server.port) as client:
        url = f"redis://127.0.0.1:{server.port}/0"

        def fill(key: str = "in") -> None:
            for start in range(0, MESSAGES, BATCH):
                pipeline = client.pipeline(transaction=True)
                for payload in PAYLOADS[start : start + BATCH]:
                    pipeline.xadd(key, {"data": payload})
                pipeline.execute()

        def read() -> None:
            last: Any = b"0-0"
            while found := client.xread({"in": last}, count=BATCH):
                last = found[0][1][-1][0]

        fill()
        whole = whole_rate(f"connector = 'redis', url = '{url}', key = 'whole', field = 'data'", folder / "d", lambda: fill("whole"))
        compare("redis source", lambda: timed(read), lambda: source_rate("redis", {"url": url, "key": "in", "field": "data"}), whole)
        compare("redis sink", lambda: timed(lambda: fill("other")), lambda: sink_rate("redis", {"url": url, "key": "out"}))


def nats_rates(folder: Path) -> None:
    import nats

    with services.nats_server(folder) as server:
        url = f"nats://127.0.0.1:{server.port}"

        async def fill(subject: str) -> None:
            client = await nats.connect(url)
            jetstream = client.jetstream()
            sent = []
            for payload in PAYLOADS:
                sent.append(await jetstream.publish_async(subject, payload))
                if len(sent) == BATCH:
                    await asyncio.gather(*sent)
                    sent.clear()
            await asyncio.gather(*sent)
            await client.close()

        async def prepare() -> None:
            client = await nats.connect(url)
            for name, subject in (("PLANT", "in"), ("RESULTS", "out"), ("OTHER", "other"), ("WHOLE", "whole")):
                await client.jetstream().add_stream(name=name, subjects=[subject])
            await client.close()

        async def read() -> None:
            client = await nats.connect(url)
            config = nats.js.api.ConsumerConfig(ack_policy=nats.js.api.AckPolicy.NONE)
            messages = await client.jetstream().pull_subscribe("in", stream="PLANT", config=config)
            left = MESSAGES
            while left > 0:
                left -= len(await messages.fetch(500, timeout=5))
            await client.close()

        asyncio.run(prepare())
        asyncio.run(fill("in"))
        whole = whole_rate(f"connector = 'nats', url = '{url}', stream = 'WHOLE'", folder / "d", lambda: asyncio.run(fill("whole")))
        source = {"url": url, "stream": "PLANT"}
        compare("nats source", lambda: timed(lambda: asyncio.run(read())), lambda: source_rate("nats", source), whole)
        sink = {"url": url, "stream": "RESULTS", "subject": "out"}
        compare("nats sink", lambda: timed(lambda: asyncio.run(fill("other"))), lambda: sink_rate("nats", sink))


def rabbitmq_rates(folder: Path) -> None:
    import pika
    from pika.adapters.asyncio_connection import AsyncioConnection

    with services.rabbitmq(folder) as server:
        url = f"amqp://127.0.0.1:{server.port}"
        connection = pika.BlockingConnection(pika.URLParameters(f"{url}/%2F?heartbeat=0"))
        channel = connection.channel()
        for queue in ("in", "whole", "out", "other"):
            channel.queue_declare(queue, durable=True)

        def fill(queue: str) -> None:
            for payload in PAYLOADS:
                channel.basic_publish("", queue, payload, pika.BasicProperties(delivery_mode=2))

        def read() -> None:
            reader = connection.channel()
            reader.basic_qos(prefetch_count=2_000)
            for number, (method, _, _) in enumerate(reader.consume("in"), 1):
                if number % 500 == 0:
                    reader.basic_ack(method.delivery_tag, multiple=True)
                if number == MESSAGES:
                    break
            reader.cancel()
            reader.close()

        async def confirmed() -> None:
            ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

            def heard(frame: Any) -> None:
                if frame.method.delivery_tag == MESSAGES:
                    done.set_result(None)

            def begin(opened: Any) -> None:
                opened.confirm_delivery(heard, lambda frame: ready.set_result(opened))

            parameters = pika.URLParameters(f"{url}/%2F?heartbeat=0")
            sender = AsyncioConnection(parameters, lambda made: made.channel(on_open_callback=begin))
            opened = await ready
            for payload in PAYLOADS:
                opened.basic_publish("", "other", payload, pika.BasicProperties(delivery_mode=2), mandatory=True)
            await done
            sender.close()

        def filled(work: Callable[[], Rates]) -> Rates:
            fill("in")
            while channel.queue_declare("in", passive=True).method.message_count < MESSAGES:
                connection.sleep(0.05)
            return work()

        whole = whole_rate(f"connector = 'rabbitmq', url = '{url}', queue = 'whole'", folder / "d", lambda: fill("whole"))
        source, sink = {"url": url, "queue": "in"}, {"url": url, "routing_key": "out"}
        ours = lambda: filled(lambda: source_rate("rabbitmq", source))  # noqa: E731
        compare("rabbitmq source", lambda: filled(lambda: timed(read)), ours, whole)
        compare("rabbitmq sink", lambda: timed(lambda: asyncio.run(confirmed())), lambda: sink_rate("rabbitmq", sink))
        connection.close()


def mqtt_rates(folder: Path) -> None:
    import paho.mqtt.client as paho

    with services.mosquitto(folder, saves=False) as broker:
        url = f"mqtt://127.0.0.1:{broker.port}"

        def fill(topic: str, retained: int = 2_000) -> None:
            sender = paho.Client(paho.CallbackAPIVersion.VERSION2, f"sender-{topic}")
            sender.max_inflight_messages_set(retained)
            sender.connect("127.0.0.1", broker.port)
            sender.loop_start()
            sent = [sender.publish(topic, payload, 1) for payload in PAYLOADS]
            for one in sent:
                one.wait_for_publish(60)
            sender.disconnect()
            sender.loop_stop()

        def read() -> None:
            left = [MESSAGES]
            done = threading.Event()

            def take(*_: Any) -> None:
                left[0] -= 1
                if not left[0]:
                    done.set()

            reader = paho.Client(paho.CallbackAPIVersion.VERSION2, "kept", clean_session=False)
            reader.on_message = take
            reader.connect("127.0.0.1", broker.port)
            reader.loop_start()
            assert done.wait(120)
            reader.disconnect()
            reader.loop_stop()

        keeper = paho.Client(paho.CallbackAPIVersion.VERSION2, "kept", clean_session=False)
        keeper.on_connect = lambda client, *_: client.subscribe("lib", 1)
        keeper.on_subscribe = lambda client, *_: client.disconnect()
        keeper.connect("127.0.0.1", broker.port)
        keeper.loop_forever()
        options = {"url": url, "topic": "in", "client_id": "rate"}
        with opened("source", "mqtt", options):
            """Its session keeps what comes."""

        def filled(topic: str, work: Callable[[], Rates]) -> Rates:
            fill(topic)
            return work()

        whole = whole_rate(f"connector = 'mqtt', url = '{url}', topic = 'whole'", folder / "d", lambda: fill("whole"))
        ours = lambda: filled("in", lambda: source_rate("mqtt", options))  # noqa: E731
        compare("mqtt source", lambda: filled("lib", lambda: timed(read)), ours, whole)
        compare("mqtt sink", lambda: timed(lambda: fill("other")), lambda: sink_rate("mqtt", {"url": url, "topic": "out"}))


def postgres_rates(folder: Path) -> None:
    import psycopg

    folder.mkdir()
    folder.chmod(0o755)
    with services.postgres(folder) as (_, url), psycopg.connect(url) as client:
        for name in ("given", "out", "other"):
            client.execute(f"CREATE TABLE {name} (v BIGINT)")
        client.execute("CREATE UNIQUE INDEX ON given (v)")
        client.execute(f"INSERT INTO given SELECT generate_series(0, {MESSAGES - 1})")
        client.commit()

        def read() -> None:
            last, left = -1, MESSAGES
            while left > 0:
                rows = client.execute("SELECT * FROM given WHERE v > %s ORDER BY v LIMIT 1000", (last,)).fetchall()
                last, left = rows[-1][0], left - len(rows)
            client.commit()

        def write() -> None:
            for batch in BATCHES:
                with client.transaction(), client.cursor() as cursor:
                    cursor.executemany("INSERT INTO other VALUES (%s)", [(v,) for v in batch["v"].to_pylist()])

        source = {"url": url, "table": "given", "cursor": "v"}
        compare("postgres source", lambda: timed(read), lambda: source_rate("postgres", source))
        compare("postgres sink", lambda: timed(write), lambda: sink_rate("postgres", {"url": url, "table": "out"}))


def kafka_rates(folder: Path) -> None:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

    mock = Producer({"bootstrap.servers": "127.0.0.1:1", "test.mock.num.brokers": 1, "log_level": 0})
    found = mock.list_topics(timeout=10).brokers.values()
    address = ",".join(f"{one.host}:{one.port}" for one in found)
    for name in ("in", "out", "other"):
        mock.list_topics(name, timeout=10)  # it makes what is asked for

    def fill(topic: str) -> None:
        producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "acks": "all", "linger.ms": 5})
        for payload in PAYLOADS:
            producer.produce(topic, payload)
            producer.poll(0)
        assert producer.flush(60) == 0

    def read() -> None:
        consumer = Consumer({"bootstrap.servers": address, "group.id": "x", "enable.auto.commit": False})
        partitions = consumer.list_topics("in", timeout=10).topics["in"].partitions
        consumer.assign([TopicPartition("in", number, OFFSET_BEGINNING) for number in partitions])
        left = MESSAGES
        while left > 0:
            left -= len(consumer.consume(BATCH, 1.0))
        consumer.close()

    fill("in")
    url = f"kafka://{address}"
    compare("kafka source", lambda: timed(read), lambda: source_rate("kafka", {"url": url, "topic": "in"}))
    compare("kafka sink", lambda: timed(lambda: fill("other")), lambda: sink_rate("kafka", {"url": url, "topic": "out"}))
    del mock


RATES = {
    "redis": redis_rates,
    "nats": nats_rates,
    "mqtt": mqtt_rates,
    "rabbitmq": rabbitmq_rates,
    "postgres": postgres_rates,
    "kafka": kafka_rates,
}

if __name__ == "__main__":
    for name in sys.argv[1:] or RATES:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o755)
            try:
                RATES[name](Path(folder) / "x")
            except pytest.skip.Exception as missing:
                print(f"{name}: {missing}")
