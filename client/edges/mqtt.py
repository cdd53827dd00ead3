"""MQTT 5 and 3.1.1: messages of topics as a source, results as messages as a sink; both with quality of service 1."""

from __future__ import annotations

import json
import queue
import ssl
import threading
import time
from typing import Any

import paho.mqtt.client as paho
from millstream.client.edges.contract import DECODED_BYTES_MAX, ConnectorError, ConnectorOptions, Growth, Lag, Message, MessageBatch
from millstream.client.edges.formats import encoder
from millstream.protocol.connectors import VERSIONS
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

QOS = 1
WAITING_MAX = 2_000  # messages the broker sends before it is told that some are in the stream
BATCH_MAX = 500
SESSION_S = 7 * 86_400
CONNECT_S = 10.0
KEEPALIVE_S = 30
ANSWER_S = 30.0
LEAVE_S = 2.0
NOTHING = "millstream/nothing"  # a topic that nobody subscribes to


class _Link:
    """A connection to a broker, with paho's thread; a session of its own by the connector's name."""

    def __init__(self, options: ConnectorOptions, role: str) -> None:
        url = options.url(("mqtt", "mqtts"), "mqtt://host:port or mqtts://host:port")
        version = options.text("version", "5")
        if version not in VERSIONS:
            raise ConnectorError(f"{options.name}: version must be '5' or '3.1.1'")
        self.is_5 = version == "5"
        name = options.text("client_id", f"millstream-{role}-{options.name}")
        clean: dict[str, Any] = {} if self.is_5 else {"clean_session": False}
        protocol = paho.MQTTv5 if self.is_5 else paho.MQTTv311
        self.client = paho.Client(CallbackAPIVersion.VERSION2, name, protocol=protocol, manual_ack=True, **clean)
        user, password = options.maybe("user"), options.maybe("password")
        if user is not None:
            self.client.username_pw_set(user, password)
        if url.scheme == "mqtts":
            self.client.tls_set_context(ssl.create_default_context(cafile=options.maybe("tls_ca")))
        self.client.max_inflight_messages_set(WAITING_MAX)
        self._host, self._port = str(url.hostname), url.port or (8883 if url.scheme == "mqtts" else 1883)
        self._connected = threading.Event()
        self._answered = threading.Event()
        self.trouble: str | None = None
        self.topics: list[str] = []
        self.client.on_connect = self._on_connect
        self.client.on_subscribe = self._on_subscribe
        self.client.on_unsubscribe = self._on_unsubscribe
        self.client.on_disconnect = self._on_disconnect

    def start(self) -> None:
        """Connect, and return once that is done. ConnectorError if it cannot be."""
        properties = None
        if self.is_5:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = SESSION_S
            properties.ReceiveMaximum = WAITING_MAX
        clean: dict[str, Any] = {"clean_start": False, "properties": properties} if self.is_5 else {}
        try:
            self.client.connect(self._host, self._port, KEEPALIVE_S, **clean)
        except OSError as error:
            raise ConnectorError(f"no broker answers at {self._host}:{self._port} ({error.strerror or error})") from None
        self.client.loop_start()
        if not self._connected.wait(CONNECT_S):
            raise ConnectorError(f"the broker at {self._host}:{self._port} did not accept the connection: {self.trouble or 'no answer'}")

    def check(self) -> None:
        """ConnectorError once the connection is lost: a new one begins with what the broker still has."""
        if self.trouble is not None:
            raise ConnectorError(f"the connection to the broker was lost: {self.trouble}")

    def _on_connect(self, client: Any, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self.trouble = str(reason)
            return
        if self.topics:
            client.subscribe([(topic, QOS) for topic in self.topics])  # ready once the broker has said so
        else:
            self._connected.set()

    def _on_subscribe(self, client: Any, userdata: Any, number: int, reasons: Any, properties: Any) -> None:
        failed = [str(reason) for reason in reasons if reason.is_failure]
        if failed:
            self.trouble = f"the broker refuses the subscription: {failed[0]}"
            return
        self._connected.set()

    def _on_disconnect(self, client: Any, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        self.trouble = self.trouble or str(reason)
        self._answered.set()

    def _on_unsubscribe(self, client: Any, userdata: Any, number: int, reasons: Any, properties: Any) -> None:
        self._answered.set()

    def close(self) -> None:
        """Leave; the session stays at the broker."""
        if self._connected.is_set() and self.trouble is None:
            # A broker works in order: once it answers this, it has taken the acknowledgements that were sent before.
            self.client.unsubscribe(NOTHING)
            self._answered.wait(LEAVE_S)
        self.trouble = self.trouble or "closed"
        self.client.disconnect()
        self.client.loop_stop()


class MqttSource:
    """Messages of `topic` (a filter, several with spaces between). The broker keeps what is not in the stream yet, for its session."""

    promise = "at least once: a broker sends again what it has no acknowledgement of, and says nothing by which that could be told"

    def __init__(self) -> None:
        self._link: _Link | None = None
        self._arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._unsettled: list[tuple[int, int]] = []
        self._growth = Growth()
        self._count = 0

    def open(self, options: ConnectorOptions, position: bytes | None) -> None:
        """Subscribe."""
        link = self._link = _Link(options, "source")
        self._growth = options.growth
        link.topics = options.text("topic").split()
        link.client.on_message = lambda client, userdata, message: self._arrived.put(message)
        options.maybe("tls_ca")
        link.start()
        self._count = 0 if position is None else json.loads(position)

    def read(self, wait_s: float) -> MessageBatch | None:
        """Return what has come."""
        assert self._link is not None
        found = []
        try:
            found.append(self._arrived.get(timeout=wait_s) if wait_s else self._arrived.get_nowait())
            size = self._growth.of(len(found[0].payload))
            while len(found) < BATCH_MAX and size < DECODED_BYTES_MAX:
                found.append(self._arrived.get_nowait())
                size += self._growth.of(len(found[-1].payload))
        except queue.Empty:
            pass
        if not found:
            self._link.check()
            return None
        self._count += len(found)
        self._unsettled += [(message.mid, message.qos) for message in found]
        now_us = time.time_ns() // 1000
        messages = [Message(message.payload, message.topic, time_us=now_us) for message in found]
        return MessageBatch(messages, json.dumps(self._count).encode())

    def settled(self, position: bytes) -> None:
        """Acknowledge to the broker what is in the stream."""
        assert self._link is not None
        for number, qos in self._unsettled:
            self._link.client.ack(number, qos)
        self._unsettled.clear()

    def lag(self) -> Lag:
        """Return how many messages have come and wait here; what waits at the broker, it does not say."""
        return Lag(self._arrived.qsize())

    def close(self) -> None:
        """Leave."""
        if self._link is not None:
            self._link.close()


class MqttSink:
    """Each result as a JSON message to `topic`, in which `{column}` stands for a value."""

    promise = "at least once: what was sent and not acknowledged is sent again after a fault"

    def __init__(self) -> None:
        self._link: _Link | None = None
        self._sent: list[Any] = []

    def open(self, options: ConnectorOptions, token: str | None) -> str | None:
        """Connect."""
        self._topic = options.text("topic")
        self._messages = encoder(options)
        self._retain = options.text("retain", "false").lower() == "true"
        self._link = _Link(options, "sink")
        options.maybe("tls_ca")
        self._link.start()
        return token

    def write(self, batch: Any, token: str) -> None:
        """Send a message a row."""
        assert self._link is not None
        self._link.check()
        for line in self._messages(batch):
            topic = self._topic
            if "{" in topic:
                for name, value in json.loads(line).items():
                    topic = topic.replace(f"{{{name}}}", str(value).replace("/", "_").replace("+", "_").replace("#", "_"))
            self._sent.append(self._link.client.publish(topic, line, QOS, self._retain))

    def flush(self) -> None:
        """Wait for the broker's acknowledgements."""
        assert self._link is not None
        for info in self._sent:
            info.wait_for_publish(ANSWER_S)
            if not info.is_published():
                self._link.check()
                raise ConnectorError(f"the broker did not acknowledge a message within {ANSWER_S:g} s")
        self._sent.clear()

    def close(self) -> None:
        """Leave."""
        if self._link is not None:
            self._link.close()
