"""Connector, daemon and broker ended by SIGKILL in random order, messages of a broker in and results out to it: the promise is kept.

Those that say exactly once lose and repeat nothing, those that say at least once lose nothing. `make kills` ends them 20 times each, and
then also has the brokers that take long to start. The mock cluster of Kafka cannot be killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.edges.test_kills import KILLS, WAIT_S, Daemon, daemon, kill_one_of
from tests.support import services
from tests.support.services import Service

pytestmark = [pytest.mark.process, pytest.mark.slow]
ROWS = 100 * KILLS
REFUSED_S = 0.1


class Broker(ABC):
    """A broker as this test knows it: how a message is put in, and what has come out. Each call connects anew: it may have been killed."""

    source: str
    sink: str

    @abstractmethod
    def put(self, value: int) -> None:
        """Send a message; raises when that is not known to have worked. Sent again, it counts once where the broker can tell."""

    @abstractmethod
    def taken(self) -> list[int]:
        """Return the results that have come out so far, in order."""

    @contextmanager
    def ready(self, server: Daemon) -> Iterator[None]:
        """Make the broker ready to be killed: what it has acked must be what it has stored."""
        yield

    def close(self) -> None:
        """Leave."""


class Nats(Broker):
    def __init__(self, service: Service) -> None:
        self.url = f"nats://127.0.0.1:{service.port}"
        self.source = f"connector = 'nats', url = '{self.url}', stream = 'PLANT'"
        self.sink = f"connector = 'nats', url = '{self.url}', stream = 'RESULTS', subject = 'out'"
        self._run(lambda jetstream: jetstream.add_stream(name="PLANT", subjects=["in"]))
        self._run(lambda jetstream: jetstream.add_stream(name="RESULTS", subjects=["out"]))

    def _run(self, ask: Any) -> Any:
        import nats

        async def whole() -> Any:
            client = await nats.connect(self.url, allow_reconnect=False, max_reconnect_attempts=1, reconnect_time_wait=0)
            try:
                return await ask(client.jetstream(timeout=2))
            finally:
                await client.close()

        return asyncio.run(asyncio.wait_for(whole(), 30))

    def put(self, value: int) -> None:
        self._run(lambda jetstream: jetstream.publish("in", json.dumps({"v": value}).encode(), headers={"Nats-Msg-Id": str(value)}))

    def taken(self) -> list[int]:
        async def read(jetstream: Any) -> list[int]:
            count = (await jetstream.stream_info("RESULTS")).state.messages
            return [json.loads((await jetstream.get_msg("RESULTS", number)).data)["v"] for number in range(1, count + 1)]

        return list(self._run(read))


class Redis(Broker):
    def __init__(self, service: Service) -> None:
        self.url = f"redis://127.0.0.1:{service.port}/0"
        self.source = f"connector = 'redis', url = '{self.url}', key = 'in', field = 'data'"
        self.sink = f"connector = 'redis', url = '{self.url}', key = 'out'"

    def put(self, value: int) -> None:
        import redis

        with redis.Redis.from_url(self.url) as client:
            last = client.xrevrange("in", count=1)
            if not last or json.loads(last[0][1][b"data"])["v"] < value:
                client.xadd("in", {"data": json.dumps({"v": value})})

    def taken(self) -> list[int]:
        import redis

        with redis.Redis.from_url(self.url) as client:
            return [json.loads(fields[b"data"])["v"] for _, fields in client.xrange("out")]


class Rabbit(Broker):
    def __init__(self, service: Service) -> None:
        self.url = f"amqp://127.0.0.1:{service.port}"
        self.source = f"connector = 'rabbitmq', url = '{self.url}', queue = 'in'"
        self.sink = f"connector = 'rabbitmq', url = '{self.url}', routing_key = 'out'"
        self._heard: list[int] = []
        with self._channel() as channel:
            for queue in ("in", "out"):
                channel.queue_declare(queue, durable=True)

    @contextmanager
    def _channel(self) -> Iterator[Any]:
        import pika

        connection = pika.BlockingConnection(pika.URLParameters(f"{self.url}/%2F?heartbeat=0&socket_timeout=2"))
        try:
            yield connection.channel()
        finally:
            if connection.is_open:
                connection.close()

    def put(self, value: int) -> None:
        import pika

        with self._channel() as channel:
            channel.confirm_delivery()
            channel.basic_publish("", "in", json.dumps({"v": value}).encode(), pika.BasicProperties(delivery_mode=2), mandatory=True)

    def taken(self) -> list[int]:
        with self._channel() as channel:
            while True:
                method, _, body = channel.basic_get("out")
                if method is None:
                    return list(self._heard)
                self._heard.append(json.loads(body)["v"])
                channel.basic_ack(method.delivery_tag)


class Mqtt(Broker):
    """mosquitto acks a message and saves it a little later, so a kill in between loses what it has acked, which nobody can make good.

    It is killed when nobody sends and it has saved everything.
    """

    def __init__(self, service: Service) -> None:
        self._service, self._port = service, service.port
        self._sends = threading.Lock()
        self.source = f"connector = 'mqtt', url = 'mqtt://127.0.0.1:{service.port}', topic = 'in'"
        self.sink = f"connector = 'mqtt', url = 'mqtt://127.0.0.1:{service.port}', topic = 'out'"
        self._heard: list[int] = []
        self._sender = self._client("sender")
        self._reader = self._client("reader", topic="out")
        self._reader.on_message = lambda client, userdata, message: self._heard.append(json.loads(message.payload)["v"])

    def _client(self, name: str, topic: str | None = None) -> Any:
        """Return a client whose session the broker keeps, and which connects again by itself."""
        import paho.mqtt.client as paho

        client = paho.Client(paho.CallbackAPIVersion.VERSION2, name, clean_session=False)
        client.reconnect_delay_set(0.1, 1)
        subscribed = threading.Event()
        if topic is not None:
            client.on_connect = lambda client, *_: client.subscribe(topic, 1)
            client.on_subscribe = lambda *_: subscribed.set()
        client.connect("127.0.0.1", self._port)
        client.loop_start()
        assert topic is None or subscribed.wait(10)
        return client

    def put(self, value: int) -> None:
        if not self._sender.is_connected():
            raise ConnectionError
        with self._sends:
            sent = self._sender.publish("in", json.dumps({"v": value}), 1)
            sent.wait_for_publish(WAIT_S)
        assert sent.is_published()

    @contextmanager
    def ready(self, server: Daemon) -> Iterator[None]:
        """Have mosquitto save, which it does at SIGUSR1, while everybody who sends waits."""
        saved = Path(self._service.command[-1]).parent / "mosquitto.db"  # its configuration stands beside it
        with self._sends, server.stopped_connect():
            saved.unlink(missing_ok=True)
            assert self._service.process is not None
            self._service.process.send_signal(signal.SIGUSR1)
            while not saved.exists():  # pytest bounds the wait
                time.sleep(0.01)
            yield

    def taken(self) -> list[int]:
        return list(self._heard)

    def close(self) -> None:
        for client in (self._sender, self._reader):
            client.disconnect()
            client.loop_stop()


BROKERS: dict[str, tuple[type[Broker], Any, bool]] = {
    "nats": (Nats, services.nats_server, True),
    "redis": (Redis, services.redis_server, True),
    "mqtt": (Mqtt, services.mosquitto, False),
    "rabbitmq": (Rabbit, services.rabbitmq, False),
}
LONG = ("mqtt", "rabbitmq")
LIBRARIES = {"mqtt": "paho.mqtt", "nats": "nats", "redis": "redis", "rabbitmq": "pika"}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # libraries leave sockets of a broker that was killed
@pytest.mark.parametrize("name", BROKERS)
def test_messages_of_a_broker_come_out_as_promised_whoever_is_killed(tmp_path: Path, name: str) -> None:
    if name in LONG and "KILLS" not in os.environ:
        pytest.skip("it takes long to start; make kills has it")
    pytest.importorskip(LIBRARIES[name], reason="its library is not installed")
    kind, started, exactly = BROKERS[name]
    draw = random.Random(7)
    with started(tmp_path / "broker") as service, daemon(tmp_path / "data") as server:
        broker = kind(service)
        server.execute(
            "CREATE STREAM s (v BIGINT) DURABILITY journal",
            "CREATE QUERY q AS SELECT v FROM s",
            f"CREATE SOURCE feed INTO s WITH ({broker.source})",
            f"CREATE SINK results FROM q WITH ({broker.sink})",
        )
        while [server.execute(f"SHOW {kind}")[0]["state"] for kind in ("SOURCES", "SINKS")] != ["running"] * 2:
            time.sleep(0.1)  # a broker without queues keeps nothing for whom it does not know; pytest bounds the wait
        stop = threading.Event()
        writer = threading.Thread(target=_write, args=(broker, stop))
        writer.start()
        try:
            for _ in range(KILLS):
                kill_one_of(draw, server, service, partial(broker.ready, server))
            writer.join(WAIT_S)
            found = _all_taken(broker)
        finally:
            stop.set()
            writer.join(WAIT_S)
            broker.close()
        told = [server.execute("SHOW SOURCES"), server.execute("SHOW SINKS")]
    if exactly:
        assert found == list(range(ROWS)), (len(found), told)
    assert sorted(set(found)) == list(range(ROWS)), (len(found), told)


def _write(broker: Broker, stop: threading.Event) -> None:
    for value in range(ROWS):
        while not stop.wait(0.005):
            try:
                broker.put(value)
            except Exception:  # of whatever library: the broker was killed
                stop.wait(REFUSED_S)
            else:
                break


def _all_taken(broker: Broker) -> list[int]:
    """Return what came out, once all has, and a little later, so that a repeated one is seen too."""
    deadline = time.monotonic() + WAIT_S
    found: list[int] = []
    while time.monotonic() < deadline:
        time.sleep(0.3)
        try:
            now = broker.taken()
        except Exception:  # it comes up again
            continue
        if len(set(now)) >= ROWS and now == found:
            break
        found = now
    return found
