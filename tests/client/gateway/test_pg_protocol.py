"""PostgreSQL's messages: whole, byte by byte, and whatever else a hostile peer may send: refused, within bounds."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.client.gateway.postgres import limits, messages
from millstream.client.gateway.postgres.connection import PgConnection
from millstream.client.gateway.postgres.messages import Message, Startup, written
from millstream.client.gateway.postgres.scram import ScramServer, verifier_of
from millstream.client.gateway.postgres.sqlstates import OF_CODE, PgError

from tests.support.tree import ROOT

GREETING = written(Startup(messages.VERSION_3_0, {"user": "admin"}))
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
OID = st.integers(0, 2**32 - 1)
FORMATS = st.sampled_from([(), (0,), (1,)])
SAID = st.one_of(
    st.builds(messages.SimpleQuery, TEXT),
    st.builds(messages.Parse, TEXT, TEXT, st.lists(OID, max_size=4).map(tuple)),
    st.builds(messages.Bind, TEXT, TEXT, FORMATS, st.lists(st.none() | st.binary(max_size=9), max_size=4).map(tuple), FORMATS),
    st.builds(messages.Describe, st.sampled_from("SP"), TEXT),
    st.builds(messages.Execute, TEXT, st.integers(0, 2**31 - 1)),
    st.builds(messages.Close, st.sampled_from("SP"), TEXT),
    st.builds(messages.CopyData, st.binary(max_size=30)),
    st.builds(messages.CopyFail, TEXT),
    st.sampled_from([messages.Sync(), messages.Flush(), messages.CopyDone(), messages.Terminate(), messages.FunctionCall()]),
)


def greeted() -> PgConnection:
    connection = PgConnection()
    assert len(list(connection.receive(GREETING))) == 1
    connection.is_ready = True
    return connection


def heard(connection: PgConnection, pieces: list[bytes]) -> list[Message | str]:
    """Return the messages, and at the end the code of what broke the protocol."""
    found: list[Message | str] = []
    try:
        for piece in pieces:
            found.extend(connection.receive(piece))
    except PgError as problem:
        found.append(problem.sqlstate if problem.fatal else f"{problem.sqlstate}, but not fatal")
    return found


@given(st.lists(SAID, max_size=6))
def test_what_is_said_arrives_whole_and_byte_by_byte(said: list[Message]) -> None:
    data = b"".join(map(written, said))
    assert heard(greeted(), [data]) == said
    connection = greeted()
    assert heard(connection, [data[i : i + 1] for i in range(len(data))]) == said
    assert connection.buffered_bytes == 0


@pytest.mark.parametrize(
    "first", [messages.SslRequest(), messages.GssRequest(), messages.CancelRequest(7, -3), Startup(196_610, {"user": "a", "_pq_.x": "1"})]
)
def test_what_comes_before_the_greeting_arrives(first: Message) -> None:
    assert heard(PgConnection(), [written(first)]) == [first]


@settings(max_examples=150)
@given(st.binary(max_size=200), st.booleans(), st.integers(1, 50))
def test_random_bytes_are_refused_or_wait_and_the_cut_makes_no_difference(data: bytes, ready: bool, cut: int) -> None:
    made = greeted if ready else PgConnection
    whole = heard(made(), [data])
    assert heard(made(), [data[i : i + cut] for i in range(0, len(data), cut)]) == whole


@settings(max_examples=150)
@given(st.sampled_from(b"QPBDECSHdcfFX"), st.binary(max_size=60))
def test_random_bodies_are_read_or_refused(kind: int, body: bytes) -> None:
    data = bytes((kind,)) + struct.pack(">i", len(body) + 4) + body
    found = heard(greeted(), [data])
    assert len(found) == 1
    if not isinstance(found[0], str) and kind != ord("F"):
        assert heard(greeted(), [written(found[0])]) == found


@pytest.mark.parametrize("kind", b"pQPBDECSHdcfFX")
def test_a_length_beyond_its_bound_is_refused_before_it_is_waited_for(kind: int) -> None:
    most = messages.bytes_max(bytes((kind,)))
    assert heard(greeted(), [bytes((kind,)) + struct.pack(">i", most)]) == []
    tracemalloc.start()
    found = heard(greeted(), [bytes((kind,)) + struct.pack(">i", most + 1)])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (found, peak < 100_000) == (["54000"], True)


def test_a_greeting_is_short() -> None:
    assert heard(PgConnection(), [struct.pack(">i", limits.STARTUP_BYTES_MAX + 1)]) == ["54000"]
    assert heard(PgConnection(), [struct.pack(">i", 3)]) == ["08P01"]


def test_before_the_password_nothing_else_is_heard() -> None:
    connection = PgConnection()
    assert heard(connection, [GREETING + b"Q"])[1:] == ["08P01"]


def test_bytes_in_the_clear_behind_a_request_for_tls_are_refused() -> None:
    assert heard(PgConnection(), [written(messages.SslRequest()) + GREETING]) == ["08P01"]


def test_encryption_is_not_asked_for_for_ever() -> None:
    connection = PgConnection()
    asked = written(messages.SslRequest())
    assert heard(connection, [asked] * 3) == [messages.SslRequest()] * limits.NEGOTIATIONS_MAX + ["08P01"]


def test_a_statement_has_a_bounded_number_of_parameters() -> None:
    body = b"\0\0" + struct.pack(">H", limits.PARAMETERS_MAX + 1)
    assert heard(greeted(), [b"P" + struct.pack(">i", len(body) + 4) + body]) == ["54000"]


def test_another_protocol_is_named() -> None:
    for data, code in (
        (struct.pack(">ii", 8, 2 << 16), "0A000"),
        (b"\x16\x03\x01\x02\x00\x01\xfc", "0A000"),
        (b"GET / HTTP/1.1\r\n", "54000"),
    ):
        assert heard(PgConnection(), [data]) == [code]


def test_each_error_code_has_an_sqlstate() -> None:
    codes = {line.split("`")[1] for line in (ROOT / "docs" / "errors.md").read_text().splitlines() if line.startswith("| `")}
    assert codes == set(OF_CODE)


# --- SCRAM ---

SALT, NONCE = b"[m\x99h\x9d\x125\x8e\xec\xa0K\x14\x126\xfa\x81", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"  # of RFC 7677, section 3
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
LAST = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="


def test_scram_goes_as_the_example_of_its_standard() -> None:
    server = ScramServer(verifier_of("pencil", SALT), NONCE)
    assert server.first(FIRST) == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert server.last(LAST) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize(("password", "known"), [("pencils", True), ("pencil", False)])
def test_a_wrong_password_and_an_unknown_name_are_told_alike(password: str, known: bool) -> None:
    server = ScramServer(verifier_of(password, SALT), NONCE, known=known)
    server.first(FIRST)
    with pytest.raises(PgError, match="the password is wrong") as caught:
        server.last(LAST)
    assert caught.value.sqlstate == "28P01"


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_any_other_words_of_scram_are_refused(first: bytes, last: bytes) -> None:
    server = ScramServer(verifier_of("", SALT), NONCE)

    def exchange() -> None:
        server.first(b"n,," + first if first[:1] == b"," else first)
        server.last(last)

    with pytest.raises(PgError):
        exchange()
