"""The reference and the test vectors say what the code does, and the vectors can be read without our code."""

from __future__ import annotations

import json
import struct
from typing import Any

import msgpack
import pytest
from millstream.protocol.connection import RowsChunk
from millstream.protocol.messages import KIND_OF, KINDS

from tests.support import reference
from tests.support.pairs import Pair

VECTORS: list[dict[str, Any]] = json.loads(reference.VECTORS.read_text())
for _vector in VECTORS:  # JSON has no bytes
    _vector["fields"] = {n: bytes.fromhex(v["hex"]) if isinstance(v, dict) and "hex" in v else v for n, v in _vector["fields"].items()}


def test_the_vectors_are_what_is_sent() -> None:
    assert reference.VECTORS.read_text() == reference.vectors_text(), "run: python -m tests.support.reference"
    assert {vector["kind"] for vector in VECTORS} == set(KINDS)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["kind"])
def test_a_vector_can_be_read_with_the_reference_alone(vector: dict[str, Any]) -> None:
    frame = bytes.fromhex(vector["frame"])
    length, header_length = struct.unpack("<II", frame[:8])
    assert length == len(frame) - 4
    fields = msgpack.unpackb(frame[8 : 8 + header_length])
    assert fields.pop("kind") == vector["kind"]
    assert fields.items() <= vector["fields"].items()
    start = -(-(8 + header_length) // 64) * 64
    assert frame[start:].hex() == vector.get("payload", "")


def test_the_vectors_are_a_whole_conversation() -> None:
    pair = Pair(greeted=False)
    for vector in VECTORS:
        receiver = pair.server if vector["speaker"] == "client" else pair.client
        sender = pair.client if receiver is pair.server else pair.server
        (event,) = receiver.receive_data(bytes.fromhex(vector["frame"]))
        kind = "row" if isinstance(event, RowsChunk) else KIND_OF[type(event)]
        assert kind == vector["kind"]
        message = KINDS[kind](**vector["fields"], **({"payload": bytes.fromhex(vector["payload"])} if "payload" in vector else {}))
        assert b"".join(bytes(buffer) for buffer in sender.send(message)).hex() == vector["frame"]


def test_the_reference_is_up_to_date() -> None:
    text = reference.PROTOCOL.read_text()
    assert text == reference.protocol_text(text), "run: python -m tests.support.reference"
    assert reference.ERRORS.read_text() == reference.errors_text(), "run: python -m tests.support.reference"


def test_the_example_frame_in_the_reference_is_true() -> None:
    text = reference.PROTOCOL.read_text()
    example = text.partition("byte by byte:\n\n```\n")[2].partition("```")[0]
    data = bytes.fromhex("".join(line[:29].strip() for line in example.splitlines()).replace(" ", ""))
    length, header_length = struct.unpack("<II", data[:8])
    assert (length, header_length) == (len(data) - 4, len(data) - 8)
    assert msgpack.unpackb(data[8:]) == {"kind": "hello", "versions": [1, 2]}
