"""Kafka: messages of a topic as a source, whose place Millstream keeps; results as messages as a sink."""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from millstream.client.edges.contract import ConnectorError, ConnectorOptions, Lag, Message, MessageBatch, fitting
from millstream.client.edges.formats import encoder
from millstream.protocol.connectors import MECHANISMS
from millstream.protocol.values.text import display_columns

BATCH_MAX = 1_000
ANSWER_S = 10.0
FLUSH_S = 30.0
LOOK_S = 30.0  # between two looks for partitions that are new
WAITING_KIB_MAX = 16_384  # what the library reads ahead
PARTITIONS_MAX = 128  # of a source's topic: 8 bytes each in a position


def _settings(options: ConnectorOptions) -> dict[str, Any]:
    url = options.url(("kafka", "kafkas"), "kafka://host:port,host:port or kafkas://host:port")
    is_tls, user, authority = url.scheme == "kafkas", options.maybe("user"), options.maybe("tls_ca")
    found: dict[str, Any] = {"bootstrap.servers": url.netloc, "socket.timeout.ms": int(ANSWER_S * 1000), "log_level": 0}
    found["security.protocol"] = ("SASL_" if user else "") + ("SSL" if is_tls else "PLAINTEXT")
    if authority is not None:
        found["ssl.ca.location"] = authority
    mechanism, password = options.text("mechanism", MECHANISMS[0]), options.maybe("password")
    if user is not None:
        if mechanism not in MECHANISMS:
            raise ConnectorError(f"{options.name}: mechanism must be one of {', '.join(MECHANISMS)}")
        found |= {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password or ""}
    return found


def position_of(offsets: Mapping[int, int]) -> bytes:
    """Return offsets by partition as a position: those of partitions 0, 1, … in 8 bytes each, -1 where nothing was read."""
    return struct.pack(f"<{max(offsets) + 1}q", *(offsets.get(number, -1) for number in range(max(offsets) + 1)))


def offsets_of(position: bytes) -> dict[int, int]:
    """Return the offsets of a position."""
    return {number: offset for number, (offset,) in enumerate(struct.iter_unpack("<q", position)) if offset >= 0}


def _message(found: Any, topic: str) -> Message:
    _, time_ms = found.timestamp()
    return Message(found.value() or b"null", topic, found.key(), time_ms * 1_000 if time_ms > 0 else None)


class KafkaSource:
    """Messages of all partitions of `topic`, from the first that Kafka keeps. It joins no consumer group."""

    promise = "exactly once: the offsets of all partitions are kept with the rows"

    def __init__(self) -> None:
        self._consumer: Any = None

    def open(self, options: ConnectorOptions, position: bytes | None) -> None:
        """Assign all partitions, each behind its offset in the position."""
        self._topic = options.text("topic")
        self._offsets: dict[int, int] = offsets_of(position or b"")
        self._read_to = dict(self._offsets)
        self._growth = options.growth
        self._ahead: list[tuple[Message, Any]] = []  # read and not given yet, with the library's own
        self._partitions: set[int] = set()
        self._looked = time.monotonic()
        group = {"group.id": f"millstream-{options.name}", "enable.auto.commit": False, "enable.auto.offset.store": False}
        ahead = {"queued.max.messages.kbytes": WAITING_KIB_MAX, "auto.offset.reset": "error", "enable.partition.eof": False}
        self._consumer = _made(Consumer, {**_settings(options), **group, **ahead})
        self._assign()

    def _assign(self) -> None:
        found = _partitions(self._consumer, self._topic)
        if max(found) >= PARTITIONS_MAX:
            raise ConnectorError(
                f"Kafka, topic {self._topic}: it has {len(found)} partitions, and a source keeps at most {PARTITIONS_MAX} offsets"
            )
        if found != self._partitions:
            self._partitions = found
            places = [TopicPartition(self._topic, one, self._read_to.get(one, OFFSET_BEGINNING)) for one in sorted(found)]
            self._consumer.assign(places)

    def read(self, wait_s: float) -> MessageBatch | None:
        """Return the next messages of any partition."""
        if not self._ahead:
            first = self._consumer.poll(max(wait_s, 0.001))
            found = [] if first is None else [first, *self._consumer.consume(BATCH_MAX - 1, 0.0)]
            for error in [error for one in found if (error := one.error()) is not None]:
                raise ConnectorError(f"Kafka, topic {self._topic}: {error.str()}")
            self._ahead = [(_message(one, self._topic), one) for one in found]
            self._read_to |= {one.partition(): one.offset() + 1 for one in found}
        if not self._ahead:
            return None
        messages = [message for message, _ in self._ahead]
        count = fitting(messages, self._growth)
        batch, self._ahead = self._ahead[:count], self._ahead[count:]
        self._offsets |= {one.partition(): one.offset() + 1 for _, one in batch}
        return MessageBatch(messages[:count], position_of(self._offsets))

    def settled(self, position: bytes) -> None:
        """The messages stay; how long is the topic's own affair."""

    def lag(self) -> Lag:
        """Return how many messages wait in all partitions; look for new partitions now and then."""
        if time.monotonic() - self._looked > LOOK_S:
            self._looked = time.monotonic()
            self._assign()
        waiting = 0
        for one in self._partitions:
            low, high = self._consumer.get_watermark_offsets(TopicPartition(self._topic, one), timeout=ANSWER_S)
            waiting += max(0, high - max(low, self._offsets.get(one, low)))
        return Lag(waiting)

    def close(self) -> None:
        """Leave."""
        if self._consumer is not None:
            self._consumer.close()


def _made(kind: Any, settings: dict[str, Any]) -> Any:
    """Return a client. ConnectorError for settings that the library refuses, such as an authority that it cannot read."""
    try:
        return kind(settings)
    except KafkaException as error:
        raise ConnectorError(f"Kafka: {error.args[0].str()}") from None


def _partitions(client: Any, topic: str) -> set[int]:
    """Return the numbers of a topic's partitions. ConnectorError when there is no such topic, or nobody answers."""
    try:
        found = client.list_topics(topic, timeout=ANSWER_S).topics[topic]
    except KafkaException as error:
        raise ConnectorError(f"Kafka cannot be reached: {error.args[0].str()}") from None
    if found.error is not None or not found.partitions:
        raise ConnectorError(f"Kafka, topic {topic}: {found.error.str() if found.error else 'it has no partitions'}")
    return set(found.partitions)


class KafkaSink:
    """Each result as a JSON message to `topic`; the value of column `key` is its key."""

    promise = "at least once: what was sent and not acknowledged is sent again after a fault"

    def __init__(self) -> None:
        self._producer: Any = None
        self._failed: str | None = None

    def open(self, options: ConnectorOptions, token: str | None) -> str | None:
        """Connect."""
        self._topic, self._key = options.text("topic"), options.maybe("key")
        self._messages = encoder(options)
        order = {"enable.idempotence": True, "acks": "all", "linger.ms": 5, "message.timeout.ms": int(FLUSH_S * 1000)}
        self._producer = _made(Producer, {**_settings(options), **order})
        _partitions(self._producer, self._topic)
        return token

    def write(self, batch: Any, token: str) -> None:
        """Send a message a row."""
        for line, key in zip(self._messages(batch), self._keys_of(batch), strict=True):
            while True:
                try:
                    self._producer.produce(self._topic, line, key, on_delivery=self._delivered)
                    break
                except BufferError:
                    self._producer.poll(0.1)  # the library holds as much as it may
        self._producer.poll(0)

    def _keys_of(self, batch: Any) -> list[bytes | None]:
        if self._key is None:
            return [None] * int(batch.num_rows)
        if self._key not in batch.schema.names:
            raise ConnectorError(f"the query has no column {self._key}, which key names; it has {', '.join(batch.schema.names)}")
        (texts,) = display_columns(batch.select([self._key]))
        return [text.encode() if known else None for text, known in zip(texts, batch.column(self._key).is_valid().to_pylist(), strict=True)]

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed = self._failed or error.str()

    def flush(self) -> None:
        """Wait for the acknowledgements of all replicas."""
        left = self._producer.flush(FLUSH_S)
        if self._failed is not None or left:
            raise ConnectorError(f"Kafka, topic {self._topic}: {self._failed or f'{left} messages were not acknowledged'}")

    def close(self) -> None:
        """Leave, without what was not flushed."""
        if self._producer is not None:
            self._producer.purge()
            self._producer.flush(0)
