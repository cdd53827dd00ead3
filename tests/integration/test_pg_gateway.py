"""PostgreSQL's protocol before a live server: what is answered, what is bounded, and what a hostile peer cannot do."""

from __future__ import annotations

import asyncio
import ssl
import struct
from pathlib import Path
from typing import Any

import pytest
from millstream.client.errors import MillstreamError
from millstream.client.gateway.access import Access, Settings, check
from millstream.client.gateway.postgres import limits, messages
from millstream.client.gateway.postgres.listener import Peer as Served
from millstream.client.gateway.postgres.messages import Bind, Close, Describe, Execute, Parse, SimpleQuery, Startup, Sync, written

from tests.support.gateways import Gateway, Peer, fields_of, run, tags, values
from tests.support.live_server import until

TLS = Path(__file__).parents[1] / "support" / "tls"
TOKENS = {"admin": "a-token", "writer": "w-token", "reader": "r-token"}
SERVER_TOKENS = {f"{role}_token": token for role, token in TOKENS.items()}
TABLE = "CREATE TABLE t (k TEXT, v INT, PRIMARY KEY (k)); INSERT INTO t VALUES ('a', 1), ('b', 2), ('c', 3)"
STREAM = "CREATE STREAM s (ts BIGINT, v INT) TIMESTAMP BY ts UNIT s; CREATE QUERY q AS SELECT v FROM s"


def test_statements_are_carried_out_in_order_and_an_error_ends_the_rest() -> None:
    async def test(gateway: Gateway) -> None:
        peer = await gateway.peer()
        heard = await peer.ask(SimpleQuery(TABLE + "; SELECT k, v FROM t ORDER BY k LIMIT 2; SHOW TABLES"))
        assert tags(heard) == ["CREATE TABLE", "INSERT 0 3", "SELECT 2", "SHOW"]
        assert values(heard)[:2] == [["a", "1"], ["b", "2"]]
        heard = await peer.ask(SimpleQuery("INSERT INTO t VALUES ('d', 4); SELECT nope FROM t; INSERT INTO t VALUES ('e', 5)"))
        assert (tags(heard), [fields_of(body)["C"] for kind, body in heard if kind == b"E"]) == (["INSERT 0 1"], ["42703"])
        assert tags(await peer.ask(SimpleQuery(" ; "))) == []
        await peer.close()

    run(test)


def test_an_error_has_code_place_and_hint_in_what_the_peer_wrote() -> None:
    async def test(gateway: Gateway) -> None:
        peer = await gateway.peer()
        await peer.ask(SimpleQuery(TABLE))
        text = "SELECT 1; SELECT k,\n nope FROM t"
        error = await peer.error(SimpleQuery(text))
        assert (error["C"], text[int(error["P"]) - 1 :][:4]) == ("42703", "nope")
        await peer.until(b"Z")
        assert (await peer.error(SimpleQuery("SELEC k FROM t")))["H"] == "did you mean SELECT?"
        await peer.close()

    run(test)


def test_transactions_are_in_name_and_say_so() -> None:
    async def test(gateway: Gateway) -> None:
        peer = await gateway.peer()
        await peer.ask(SimpleQuery(TABLE))
        assert (await peer.ask(SimpleQuery("BEGIN")))[-1] == (b"Z", b"T")
        await peer.ask(SimpleQuery("INSERT INTO t VALUES ('d', 4)"))
        heard = await peer.ask(SimpleQuery("ROLLBACK"))
        assert "nothing was undone" in next(fields_of(body)["M"] for kind, body in heard if kind == b"N")
        assert values(await peer.ask(SimpleQuery("SELECT COUNT(*) FROM t"))) == [["4"]]
        await peer.ask(SimpleQuery("BEGIN"))
        assert (await peer.ask(SimpleQuery("SELECT nope FROM t")))[-1] == (b"Z", b"E")
        assert (await peer.error(SimpleQuery("SELECT k FROM t")))["C"] == "25P02"
        await peer.until(b"Z")
        heard = await peer.ask(SimpleQuery("COMMIT"))
        assert (tags(heard), heard[-1]) == (["ROLLBACK"], (b"Z", b"I"))
        await peer.close()

    run(test)


def test_after_an_error_extended_messages_are_passed_over_up_to_sync() -> None:
    async def test(gateway: Gateway) -> None:
        peer = await gateway.peer()
        await peer.ask(SimpleQuery(TABLE))
        said = [Parse("", "SELECT nope FROM t"), Bind("", ""), Execute(""), Parse("x", "SELECT k FROM t"), Sync()]
        kinds = [kind for kind, _ in await peer.ask(*said)]
        assert kinds == [b"1", b"2", b"E", b"Z"]
        assert (await peer.error(Bind("", "x"), Sync()))["C"] == "26000"
        await peer.close()

    run(test)


def test_parameters_and_formats_and_rows_at_a_time() -> None:
    async def test(gateway: Gateway) -> None:
        peer = await gateway.peer()
        await peer.ask(SimpleQuery(TABLE))
        heard = await peer.ask(Parse("p", "SELECT k, v FROM t WHERE v >= $1 ORDER BY v LIMIT 9"), Describe("S", "p"), Sync())
        assert struct.unpack(">hI", next(body for kind, body in heard if kind == b"t")) == (1, 23)
        bind = Bind("c", "p", (1,), (struct.pack(">i", 2),), (0, 1))
        heard = await peer.ask(SimpleQuery("BEGIN"))
        heard = await peer.ask(bind, Describe("P", "c"), Execute("c", 1), Execute("c", 5), Sync())
        rows = [body for kind, body in heard if kind == b"D"]
        assert [row[-4:] for row in rows] == [struct.pack(">i", 2), struct.pack(">i", 3)]
        assert [kind for kind, _ in heard if kind in b"sC"] == [b"s", b"C"]
        assert tags(await peer.ask(Close("P", "c"), Close("S", "p"), Sync(), SimpleQuery("COMMIT"))) == []
        await peer.close()

    run(test)


def test_results_stream_by_copy_and_by_cursor() -> None:
    async def test(gateway: Gateway) -> None:
        peer, other = await gateway.peer(), await gateway.peer()
        await peer.ask(SimpleQuery(STREAM))
        peer.say(SimpleQuery("COPY (SUBSCRIBE q) TO STDOUT"))
        await peer.until(b"H")
        await other.ask(SimpleQuery("DECLARE c CURSOR FOR SUBSCRIBE q FROM START"))
        await other.ask(SimpleQuery("INSERT INTO s VALUES (1, 10), (2, 20), (3, 30)"))
        lines = [(await peer.hear())[1] for _ in range(3)]
        assert lines == [b"10\n", b"20\n", b"30\n"]
        found: list[Any] = []
        while len(found) < 3:
            heard = await other.ask(SimpleQuery("FETCH 2 FROM c"))
            found += values(heard)
            assert len(values(heard)) in (1, 2)
        assert found == [["10"], ["20"], ["30"]]
        await (await gateway.harness.client()).finish("s")
        heard = await peer.until(b"Z")
        assert tags(heard) == ["COPY 3"]
        assert tags(await other.ask(SimpleQuery("FETCH 2 FROM c"))) == ["FETCH 0"]
        await peer.close()
        await other.close()

    run(test)


def test_a_request_to_cancel_ends_what_runs_if_its_key_is_right() -> None:
    async def test(gateway: Gateway) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.ports.pg)
        peer = Peer(reader, writer)
        peer.say(Startup(messages.VERSION_3_0, {"user": "admin"}))
        number, key = struct.unpack(">ii", next(body for kind, body in await peer.until(b"Z") if kind == b"K"))
        await peer.ask(SimpleQuery(STREAM))
        peer.say(SimpleQuery("COPY (SUBSCRIBE q) TO STDOUT"))
        await peer.until(b"H")
        for told in (key ^ 1, key):
            _, canceller = await asyncio.open_connection("127.0.0.1", gateway.ports.pg)
            canceller.write(written(messages.CancelRequest(number, told)))
            if told == key:
                assert fields_of((await peer.until(b"E"))[-1][1])["C"] == "57014"
            canceller.close()
        assert (await peer.until(b"Z"))[-1] == (b"Z", b"I")
        await peer.close()

    run(test)


def test_refused_rows_of_copy_are_told_and_the_others_are_accepted() -> None:
    async def test(gateway: Gateway) -> None:
        peer = await gateway.peer()
        await peer.ask(SimpleQuery(TABLE))
        peer.say(SimpleQuery("COPY t FROM STDIN (FORMAT csv)"))
        await peer.until(b"G")
        peer.say(messages.CopyData(b"x,1\ny,many\nz,"), messages.CopyData(b"3\n"), messages.CopyDone())
        heard = await peer.until(b"Z")
        error = fields_of(next(body for kind, body in heard if kind == b"E"))
        assert error["M"].startswith("1 of 3 rows were refused: row 2")
        assert values(await peer.ask(SimpleQuery("SELECT COUNT(*) FROM t"))) == [["5"]]
        peer.say(SimpleQuery("COPY t FROM STDIN"), messages.CopyData(b"w\t1\n"), messages.CopyFail("changed my mind"))
        error = fields_of((await peer.until(b"E"))[-1][1])
        assert "changed my mind" in error["M"]
        await peer.close()

    run(test)


def test_without_postgresql_the_catalogue_says_what_to_install() -> None:
    async def test(gateway: Gateway) -> None:
        peer = await gateway.peer()
        assert values(await peer.ask(SimpleQuery("SELECT 1"))) == [["1"]]
        error = await peer.error(SimpleQuery("SELECT relname FROM pg_catalog.pg_class"))
        assert (error["C"], "apt-get install postgresql" in error["H"]) == ("0A000", True)
        await peer.until(b"Z")
        assert (await peer.error(Parse("", "SELECT version()"), Sync()))["C"] == "0A000"
        await peer.close()

    run(test)


def test_settings_are_answered_and_not_promised_where_they_are_not_kept() -> None:
    async def test(gateway: Gateway) -> None:
        peer = await gateway.peer()
        assert values(await peer.ask(SimpleQuery("SET application_name TO 'mine'; SHOW application_name"))) == [["mine"]]
        for refused in ("SET client_encoding TO latin1", "SET datestyle TO german", "SET server_version TO '99'", "SHOW nonsense"):
            assert (await peer.error(SimpleQuery(refused)))["C"] in ("22023", "55P02", "42704")
            await peer.until(b"Z")
        await peer.ask(SimpleQuery(STREAM))
        assert (await peer.error(SimpleQuery("SET statement_timeout = 20; COPY (SUBSCRIBE q) TO STDOUT")))["C"] == "57014"
        await peer.until(b"Z")
        await peer.close()

    run(test)


# --- who may come in ---


async def let_in(port: int, user: str, password: str, *, encrypted: bool = False) -> str:
    """Return the role that libpq's own client gets, or the code of its refusal."""
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")

    def connect() -> str:
        mode = "require" if encrypted else "disable"
        text = f"host=127.0.0.1 port={port} user={user} password={password} dbname=x sslmode={mode} gssencmode=disable"
        try:
            with psycopg.connect(text, autocommit=True) as connection:
                return str(connection.execute("SHOW is_superuser").fetchone()[0])
        except psycopg.OperationalError as error:
            return "refused" if "password is wrong" in str(error) or "token" in str(error) else str(error)

    return await asyncio.to_thread(connect)


def test_user_is_a_role_and_password_its_token() -> None:
    async def test(gateway: Gateway) -> None:
        port = gateway.ports.pg
        assert port is not None
        assert [await let_in(port, role, token) for role, token in TOKENS.items()] == ["on", "off", "off"]
        assert [await let_in(port, *wrong) for wrong in (("admin", "w-token"), ("nobody", "a-token"))] == ["refused"] * 2

    run(test, server=SERVER_TOKENS, tokens=TOKENS)


def test_over_tls_a_gateway_that_knows_no_tokens_passes_them_on() -> None:
    async def test(gateway: Gateway) -> None:
        port = gateway.ports.pg
        assert port is not None
        assert await let_in(port, "anybody", "a-token", encrypted=True) == "on"
        assert await let_in(port, "anybody", "wrong", encrypted=True) == "refused"
        assert await let_in(port, "anybody", "a-token") == "refused"

    run(test, server=SERVER_TOKENS, tls_cert=str(TLS / "cert.pem"), tls_key=str(TLS / "key.pem"))


def test_encryption_is_negotiated() -> None:
    async def test(gateway: Gateway) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.ports.pg)
        writer.write(written(messages.GssRequest()))
        assert await reader.readexactly(1) == b"N"
        writer.write(written(messages.SslRequest()))
        assert await reader.readexactly(1) == b"S"
        trust = ssl.create_default_context(cafile=str(TLS / "cert.pem"))
        await writer.start_tls(trust, server_hostname="localhost")
        peer = Peer(reader, writer)
        peer.say(Startup(messages.VERSION_3_0 + 2, {"user": "admin", "_pq_.more": "1"}))
        heard = await peer.until(b"Z")
        assert heard[0] == (b"v", struct.pack(">ii", messages.VERSION_3_0, 1) + b"_pq_.more\0")
        assert values(await peer.ask(SimpleQuery("SELECT 1"))) == [["1"]]
        await peer.close()

    run(test, tls_cert=str(TLS / "cert.pem"), tls_key=str(TLS / "key.pem"))


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"host": "0.0.0.0"}, "no token is set"),
        ({"pg_port": None}, "nothing to serve"),
        ({"tls_cert": "x"}, "needs both"),
        ({"access": Access("x", None, {"admin": "a", "reader": "a"})}, "the same token"),
    ],
)
def test_settings_that_would_let_strangers_in_are_refused(changed: dict[str, Any], match: str) -> None:
    with pytest.raises(MillstreamError, match=match):
        check(Settings(**{"access": Access("127.0.0.1:1", None, {}), "pg_port": 0, **changed}))


# --- bounds ---


def test_each_thing_a_session_holds_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(gateway: Gateway) -> None:
        peer = await gateway.peer()
        await peer.ask(SimpleQuery(TABLE))
        monkeypatch.setattr(limits, "STATEMENTS_MAX", 3)
        heard = await peer.ask(*(Parse(f"p{i}", "SELECT k FROM t") for i in range(4)), Sync())
        assert [kind for kind, _ in heard] == [b"1", b"1", b"1", b"E", b"Z"]
        monkeypatch.setattr(limits, "STATEMENTS_BYTES_MAX", 60)
        assert (await peer.error(Close("S", "p0"), Parse("x", "SELECT k FROM t WHERE k = 'long enough'"), Sync()))["C"] == "54000"
        await peer.until(b"Z")
        monkeypatch.setattr(limits, "PORTALS_MAX", 2)
        said = (
            SimpleQuery("BEGIN"),
            SimpleQuery("DECLARE a CURSOR FOR SELECT k FROM t"),
            SimpleQuery("DECLARE b CURSOR FOR SELECT k FROM t"),
        )
        for one in said:
            await peer.ask(one)
        assert (await peer.error(SimpleQuery("DECLARE d CURSOR FOR SELECT k FROM t")))["C"] == "54000"
        await peer.until(b"Z")
        await peer.ask(SimpleQuery("ROLLBACK"))
        monkeypatch.setattr(limits, "RESULTS_BYTES_MAX", 1)
        await peer.ask(SimpleQuery("DECLARE a CURSOR FOR SELECT k FROM t"))
        assert (await peer.error(SimpleQuery("DECLARE b CURSOR FOR SELECT k FROM t")))["C"] == "54000"
        await peer.until(b"Z")
        monkeypatch.setattr(limits, "SETTINGS_MAX", 2)
        heard = await peer.ask(SimpleQuery("SET a.a = 1; SET a.b = 1; SET a.c = 1"))
        assert (len(tags(heard)), heard[-2][0]) == (2, b"E")
        await peer.close()

    run(test)


def test_the_connections_are_bounded_and_a_place_is_free_again() -> None:
    async def test(gateway: Gateway) -> None:
        peers = [await gateway.peer() for _ in range(2)]
        third = Peer(*await asyncio.open_connection("127.0.0.1", gateway.ports.pg))
        assert (await third.error(Startup(messages.VERSION_3_0, {"user": "admin"})))["C"] == "53300"
        peers[0].say(messages.Terminate())
        assert await peers[0].reader.read() == b""
        peers.append(await gateway.peer())
        for peer in [*peers, third]:
            await peer.close()

    run(test, connections_max=2)


def test_a_peer_that_does_not_greet_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STARTUP_S_MAX", 0.05)

    async def test(gateway: Gateway) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.ports.pg)
        writer.write(b"\0\0")
        assert (await reader.read())[:1] == b"E"
        writer.close()

    run(test)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Served]:
    """Return the gateway's sides of the connections, as they begin."""
    found: list[Served] = []
    made = Served.connection_made

    def connection_made(self: Served, transport: asyncio.BaseTransport) -> None:
        found.append(self)
        made(self, transport)

    monkeypatch.setattr(Served, "connection_made", connection_made)
    return found


def test_a_peer_that_sends_without_end_is_read_no_further_than_its_bound(served: list[Served]) -> None:
    async def test(gateway: Gateway) -> None:
        peer = await gateway.peer()
        await peer.ask(SimpleQuery(STREAM))
        peer.say(SimpleQuery("COPY (SUBSCRIBE q) TO STDOUT"))
        await peer.until(b"H")
        peer.say(*[SimpleQuery("SELECT 1")] * 20_000)
        await until(lambda: served[0]._is_paused, "the gateway reads no more")
        assert len(served[0]._waiting) <= limits.MESSAGES_WAITING_MAX + 65_536 // 14
        peer.writer.transport.abort()

    run(test)


def test_a_peer_that_takes_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch, served: list[Served]) -> None:
    monkeypatch.setattr(limits, "WRITE_S_MAX", 0.05)

    async def test(gateway: Gateway) -> None:
        peer = await gateway.peer()
        await peer.ask(SimpleQuery(TABLE))
        peer.say(SimpleQuery("COPY t FROM STDIN"), messages.CopyData(b"".join(b"%d%s\t1\n" % (i, b"x" * 50_000) for i in range(60))))
        await peer.ask(messages.CopyDone())
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(10):
            peer.say(SimpleQuery("SELECT k, v FROM t"))
        task = served[0].task
        assert task is not None
        await until(task.done, "the peer is let go")
        peer.writer.transport.abort()
        await asyncio.sleep(0)  # the transport closes its socket in the loop's next turn

    run(test)


def test_a_hostile_peer_leaves_the_server_and_the_other_peers_alone() -> None:
    async def test(gateway: Gateway) -> None:
        good = await gateway.peer()
        await good.ask(SimpleQuery(STREAM))
        hostile = [
            b"\xff" * 4_000,
            struct.pack(">i", 2**31 - 1),
            written(Startup(messages.VERSION_3_0, {"user": "admin"})) + b"Q\x7f\xff\xff\xff",
        ]
        hostile.append(written(Startup(messages.VERSION_3_0, {"user": "admin"})) + written(SimpleQuery("SELECT " + "(" * 100_000)))
        for data in hostile * 3:
            _, writer = await asyncio.open_connection("127.0.0.1", gateway.ports.pg)
            writer.write(data)
            await writer.drain()
            writer.transport.abort()
        assert tags(await good.ask(SimpleQuery("INSERT INTO s VALUES (1, 10)"))) == ["INSERT 0 1"]
        client = await gateway.harness.client()
        assert (await client.execute("SHOW STREAMS")).rows[0]["accepted"] == 1
        await good.close()

    run(test)


def test_when_the_server_stops_a_peer_is_told() -> None:
    async def test(gateway: Gateway) -> None:
        peer = await gateway.peer()
        await gateway.harness.server.stop()
        assert (await peer.error(SimpleQuery("SHOW STREAMS")))["C"] in ("57P01", "08006", "08003")
        assert await peer.reader.read() == b""
        await peer.close()

    run(test)
