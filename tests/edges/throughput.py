"""How fast sources and sinks are beside the library of their other side, in messages a second: `python -m tests.edges.throughput`.

`library` reads or writes the messages in the library's own best way. `connector` is `read` or `write` of ours. `whole` is a source with a
server behind it: rows accepted a second. Nothing is judged here: on a machine with other work the figures say little.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from millstream.client.edges.contract import ConnectorOptions, find

from tests.edges.test_kills import daemon
from tests.support import services

MESSAGES = 20_000
PAYLOADS = [json.dumps({"v": v}).encode() for v in range(MESSAGES)]
BATCH = 1_000


def timed(work: Callable[[], object]) -> float:
    """Return messages a second."""
    began = time.perf_counter()
    work()
    return MESSAGES / (time.perf_counter() - began)


def read_all(source: Any) -> None:
    left = MESSAGES
    while left > 0:
        batch = source.read(0.2)
        if batch is not None:
            left -= len(batch.messages)
            source.settled(batch.position)


def source_rate(connector: str, values: dict[str, Any]) -> float:
    source = find("source", connector)()
    source.open(ConnectorOptions("rate", values), None)
    try:
        return timed(lambda: read_all(source))
    finally:
        source.close()


def sink_rate(connector: str, values: dict[str, Any]) -> float:
    sink = find("sink", connector)()
    sink.open(ConnectorOptions("rate", values), None)

    def write() -> None:
        for start in range(0, MESSAGES, BATCH):
            sink.write(pa.record_batch({"v": pa.array(range(start, start + BATCH), pa.int64())}), f"t{start}")
        sink.flush()

    try:
        return timed(write)
    finally:
        sink.close()


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


def show(name: str, **rates: float) -> None:
    print(name, *(f"{what} {rate:,.0f}/s" for what, rate in rates.items()), sep="  ", flush=True)


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

        library_in = timed(fill)
        whole = whole_rate(f"connector = 'redis', url = '{url}', key = 'whole', field = 'data'", folder / "d", lambda: fill("whole"))
        show("redis source", library=timed(read), connector=source_rate("redis", {"url": url, "key": "in", "field": "data"}), whole=whole)
        show("redis sink", library=library_in, connector=sink_rate("redis", {"url": url, "key": "out"}))


def nats_rates(folder: Path) -> None:
    import nats

    with services.nats_server(folder) as server:
        url = f"nats://127.0.0.1:{server.port}"

        async def fill(subject: str = "in") -> None:
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
            for name, subject in (("PLANT", "in"), ("RESULTS", "out"), ("WHOLE", "whole")):
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
        library_in = timed(lambda: asyncio.run(fill()))
        whole = whole_rate(f"connector = 'nats', url = '{url}', stream = 'WHOLE'", folder / "d", lambda: asyncio.run(fill("whole")))
        source = source_rate("nats", {"url": url, "stream": "PLANT"})
        show("nats source", library=timed(lambda: asyncio.run(read())), connector=source, whole=whole)
        show("nats sink", library=library_in, connector=sink_rate("nats", {"url": url, "stream": "RESULTS", "subject": "out"}))


def rabbitmq_rates(folder: Path) -> None:
    import pika

    with services.rabbitmq(folder) as server:
        url = f"amqp://127.0.0.1:{server.port}"
        connection = pika.BlockingConnection(pika.URLParameters(f"{url}/%2F?heartbeat=0"))
        channel = connection.channel()
        for queue in ("in", "in2", "whole", "out", "out2"):
            channel.queue_declare(queue, durable=True)

        def fill(queue: str) -> None:
            for payload in PAYLOADS:
                channel.basic_publish("", queue, payload, pika.BasicProperties(delivery_mode=2))

        def read() -> None:
            reader = connection.channel()
            reader.basic_qos(prefetch_count=2_000)
            for number, (method, _, _) in enumerate(reader.consume("in2"), 1):
                if number % 500 == 0:
                    reader.basic_ack(method.delivery_tag, multiple=True)
                if number == MESSAGES:
                    break
            reader.cancel()
            reader.close()

        def confirmed() -> None:
            sender = connection.channel()
            sender.confirm_delivery()
            for payload in PAYLOADS[: MESSAGES // 10]:
                sender.basic_publish("", "out2", payload, pika.BasicProperties(delivery_mode=2), mandatory=True)

        for queue in ("in", "in2"):
            fill(queue)
        whole = whole_rate(f"connector = 'rabbitmq', url = '{url}', queue = 'whole'", folder / "d", lambda: fill("whole"))
        show("rabbitmq source", library=timed(read), connector=source_rate("rabbitmq", {"url": url, "queue": "in"}), whole=whole)
        show("rabbitmq sink", library=timed(confirmed) / 10, connector=sink_rate("rabbitmq", {"url": url, "routing_key": "out"}))
        connection.close()


def mqtt_rates(folder: Path) -> None:
    import paho.mqtt.client as paho

    with services.mosquitto(folder) as broker:
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
            reader = paho.Client(paho.CallbackAPIVersion.VERSION2, "kept", clean_session=False)
            reader.on_message = lambda *_: left.__setitem__(0, left[0] - 1)
            reader.connect("127.0.0.1", broker.port)
            reader.loop_start()
            while left[0] > 0:
                time.sleep(0.005)
            reader.disconnect()
            reader.loop_stop()

        keeper = paho.Client(paho.CallbackAPIVersion.VERSION2, "kept", clean_session=False)
        keeper.on_connect = lambda client, *_: client.subscribe("in", 1)
        keeper.on_subscribe = lambda client, *_: client.disconnect()
        keeper.connect("127.0.0.1", broker.port)
        keeper.loop_forever()
        options = {"url": url, "topic": "in", "client_id": "rate"}
        source = find("source", "mqtt")()
        source.open(ConnectorOptions("rate", options), None)
        source.close()  # its session keeps what comes
        library_in = timed(lambda: fill("in"))
        whole = whole_rate(f"connector = 'mqtt', url = '{url}', topic = 'whole'", folder / "d", lambda: fill("whole"))
        show("mqtt source", library=timed(read), connector=source_rate("mqtt", options), whole=whole)
        show("mqtt sink", library=library_in, connector=sink_rate("mqtt", {"url": url, "topic": "out"}))


RATES = {"redis": redis_rates, "nats": nats_rates, "rabbitmq": rabbitmq_rates, "mqtt": mqtt_rates}

if __name__ == "__main__":
    for name in sys.argv[1:] or RATES:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o755)
            RATES[name](Path(folder) / "x")
