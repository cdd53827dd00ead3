"""HTTP's clients against a live server: rows in, results out and resumed, statements, rights, bounds."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import os
import ssl
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from millstream.client.errors import MillstreamError
from millstream.client.gateway.access import Access
from millstream.client.gateway.http import connections, limits
from millstream.client.gateway.http.connections import Held
from millstream.client.gateway.http.results import place_of

from tests.support import gateways
from tests.support.gateways import Gateway
from tests.support.live_server import running, until
from tests.support.tree import ROOT

TLS = ROOT / "tests" / "support" / "tls"
JSON_LINES, CSV, ARROW = "application/x-ndjson", "text/csv", "application/vnd.apache.arrow.stream"
TOKENS = {"admin": "admin-token-1234", "writer": "writer-token-1234", "reader": "reader-token-1234"}
SERVER_TOKENS = {f"{role}_token": token for role, token in TOKENS.items()}


def run(test: Callable[[Gateway, httpx.AsyncClient], Awaitable[None]], **settings: Any) -> None:
    async def whole(gateway: Gateway) -> None:
        address = f"http://127.0.0.1:{gateway.ports.http}"
        async with httpx.AsyncClient(base_url=address, timeout=30, headers={"Accept-Encoding": "identity"}) as client:
            await test(gateway, client)

    gateways.run(whole, http_port=0, pg_port=None, **settings)


async def sql(client: httpx.AsyncClient, statement: str, **headers: str) -> httpx.Response:
    return await client.post("/v1/sql", content=statement, headers={"Content-Type": "text/plain", **headers})


async def stream_and_query(client: httpx.AsyncClient, columns: str) -> None:
    """Make the stream `s`, and the query `q` that gives its rows."""
    for statement in (f"CREATE STREAM s ({columns})", "CREATE QUERY q AS SELECT * FROM s"):
        assert (await sql(client, statement)).status_code == 200


async def rows(client: httpx.AsyncClient, content: Any, kind: str = JSON_LINES, stream: str = "s", **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await client.post(f"/v1/streams/{stream}/rows", content=content, headers={"Content-Type": kind, **named})


def arrow_of(table: pa.Table, **options: Any) -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema, **options) as writer:
        writer.write_table(table)
    return out.getvalue()


async def events(client: httpx.AsyncClient, query: str, enough: int, **headers: str) -> list[dict[str, str]]:
    """Return the first events of a query's results."""
    found: list[dict[str, str]] = []
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with client.stream("GET", f"/v1/queries/{query}/results", params={"from_start": "true"}, headers=named) as answer:
        assert answer.status_code == 200, await answer.aread()
        event: dict[str, str] = {}
        async for line in answer.aiter_lines():
            if not line and event:
                found.append(event)
                event = {}
                if len(found) == enough:
                    break
            name, _, value = line.partition(": ")
            if name:
                event[name] = value
    return found


def test_rows_come_in_as_json_csv_and_arrow_and_each_refused_one_is_told() -> None:
    async def test(_: Gateway, client: httpx.AsyncClient) -> None:
        await stream_and_query(client, "k TEXT, v INT")
        answer = (await rows(client, b'{"k":"a","v":1}\n{"k":"b","v":"x"}\nno\n\n{"k":"c","v":2,"w":1}\n')).json()
        assert (answer["accepted"], answer["refused_rows"]) == (2, 2)
        assert [(one["line"], one["reason"][:8]) for one in answer["refused"]] == [(2, "column v"), (3, "not JSON")]
        assert len(answer["notes"]) == 1
        answer = (await rows(client, 'k,v\n"d,\n",3\ne,4,5\nf,y\n', CSV)).json()
        assert (answer["accepted"], [one["line"] for one in answer["refused"]]) == (1, [4, 5])
        answer = (await rows(client, arrow_of(pa.table({"k": ["g", "h"], "v": [5, 2**40]})), ARROW)).json()
        assert (answer["accepted"], [one["row"] for one in answer["refused"]]) == (1, [1])
        packed = gzip.compress(b'{"k":"i","v":6}')
        assert (await rows(client, packed, Content_Encoding="gzip")).json()["accepted"] == 1
        found = json.loads((await events(client, "q", 5))[-1]["data"])
        assert found[-1] == {"k": "i", "v": 6}

    run(test)


def test_a_numbered_request_counts_once() -> None:
    async def test(_: Gateway, client: httpx.AsyncClient) -> None:
        await sql(client, "CREATE STREAM s (v INT)")
        for number, accepted in ((1, 1), (1, 0), (2, 1), (1, 0)):
            answer = (await rows(client, b'{"v":1}', Idempotency_Key=f"plant-7/{number}")).json()
            assert answer["accepted"] == accepted
        assert answer["last"] == 2
        table = arrow_of(pa.table({"v": pa.array([1, 2], pa.int32())}))
        assert [(await rows(client, table, ARROW, Idempotency_Key="plant-7/3")).json()["accepted"] for _ in range(2)] == [2, 0]
        refused = await rows(client, b'{"v":1}', Idempotency_Key="plant-7")
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid")
        (shown,) = (await client.get("/v1/streams")).json()["rows"]
        assert shown["accepted"] == 4

    run(test)


def test_events_go_on_exactly_behind_any_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ROWS_AT_ONCE", 3)

    async def test(gateway: Gateway, client: httpx.AsyncClient) -> None:
        await stream_and_query(client, "v INT")
        publisher = await gateway.harness.client()
        for start in (0, 7, 11):
            await publisher.publish("s", [{"v": start + n} for n in range(7 if start == 0 else 4)])
        await publisher.finish("s")
        whole = await events(client, "q", 0)
        assert whole[-1]["event"] == "end"
        assert json.loads(whole[-1]["data"])["reason"] == "finished"
        assert "~" in whole[1]["id"], "a batch was cut"
        told = [json.loads(event["data"]) if "event" not in event and "data" in event else [] for event in whole]
        assert [row["v"] for part in told for row in part] == list(range(15))
        for place, event in enumerate(whole[:-1]):
            rest = await events(client, "q", 0, Last_Event_ID=event["id"])
            again = [json.loads(one["data"]) for one in rest if "event" not in one and "data" in one]
            assert [row for part in again for row in part] == [row for part in told[place + 1 :] for row in part]
            assert rest[-1] == whole[-1]
        over = await client.get("/v1/queries/q/results", headers={"Last-Event-ID": whole[-1]["id"]})
        assert over.status_code == 204, "a browser's EventSource comes no more"

    run(test)


def test_results_that_were_lost_are_counted_in_events_and_break_the_others_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ROWS_AT_ONCE", 3)
    total, pad = 400, "x" * 500

    async def test(gateway: Gateway, client: httpx.AsyncClient) -> None:
        await stream_and_query(client, "v INT, pad TEXT")
        publisher = await gateway.harness.client()
        await publisher.publish("s", [{"v": v, "pad": pad} for v in range(10)])
        begun = await events(client, "q", 3)
        assert [row["v"] for event in begun[1:] for row in json.loads(event["data"])] == list(range(6))
        assert begun[-1]["id"].endswith("~6")
        for start in range(10, total, 10):
            await publisher.publish("s", [{"v": v, "pad": pad} for v in range(start, start + 10)])
        await publisher.finish("s")
        rest = await events(client, "q", 0, Last_Event_ID=begun[-1]["id"])
        lost = sum(json.loads(event["data"])["rows"] for event in rest if event.get("event") == "gap")
        came = [row["v"] for event in rest if "event" not in event and "data" in event for row in json.loads(event["data"])]
        assert (lost > 0, came) == (True, list(range(6 + lost, total))), "those that came before the gap are not lost"
        for form in (JSON_LINES, ARROW):
            with pytest.raises(httpx.RemoteProtocolError):
                await client.get("/v1/queries/q/results", headers={"Accept": form, "Last-Event-ID": begun[0]["id"]})

    run(test, server={"results_kept_bytes_max": 64 << 10})


def test_with_a_certificate_the_port_speaks_tls_only_and_a_port_that_is_taken_is_told() -> None:
    async def test(gateway: Gateway, client: httpx.AsyncClient) -> None:
        with pytest.raises(httpx.RemoteProtocolError):
            await client.get("/v1/streams")
        trust = ssl.create_default_context(cafile=str(TLS / "cert.pem"))
        async with httpx.AsyncClient(base_url=f"https://localhost:{gateway.ports.http}", verify=trust, timeout=30) as safe:
            assert (await safe.get("/v1/streams")).json() == {"rows": []}
        with pytest.raises(MillstreamError, match=r"cannot listen on .* choose another --http-port"):
            async with gateways.gateway(gateway.harness, http_port=gateway.ports.http, pg_port=None):
                """It does not come so far."""

    run(test, tls_cert=str(TLS / "cert.pem"), tls_key=str(TLS / "key.pem"))


def test_json_lines_and_arrow_have_the_same_results_and_go_on_behind_a_token() -> None:
    async def test(gateway: Gateway, client: httpx.AsyncClient) -> None:
        await sql(client, "CREATE STREAM s (v INT)")
        await sql(client, "CREATE QUERY q AS SELECT v, v + 1 AS more FROM s")
        publisher = await gateway.harness.client()
        await publisher.publish("s", [{"v": 1}, {"v": 2}])
        await publisher.publish("s", [{"v": 3}])
        await publisher.finish("s")
        wanted = [{"v": v, "more": v + 1} for v in (1, 2, 3)]

        async def read(kind: str, **more: str) -> bytes:
            headers = {"Accept": kind, **({"Last-Event-ID": more["after"]} if "after" in more else {})}
            answer = await client.get("/v1/queries/q/results?from_start=true&tokens=true", headers=headers)
            assert answer.headers["content-type"].startswith(kind)
            return answer.content

        lines = [json.loads(line) for line in (await read(JSON_LINES)).splitlines()]
        assert [{"v": line["v"], "more": line["more"]} for line in lines] == wanted
        table = pa.ipc.open_stream(await read(ARROW)).read_all()
        assert table.select(["v", "more"]).to_pylist() == wanted
        place, token = next((i, t) for i, t in enumerate(table["resume_token"].to_pylist()) if t is not None)
        rest = [json.loads(line)["v"] for line in (await read(JSON_LINES, after=token)).splitlines()]
        assert rest == [1, 2, 3][place + 1 :]
        refused = await client.get("/v1/queries/q/results", headers={"Accept": "image/png"})
        assert refused.status_code == 406

    run(test)


def test_statements_answer_and_their_errors_name_the_place() -> None:
    async def test(gateway: Gateway, client: httpx.AsyncClient) -> None:
        await sql(client, "CREATE TABLE t (k TEXT, at TIMESTAMP, d DECIMAL(9, 2), PRIMARY KEY (k))")
        assert (await rows(client, b'{"k":"\\"a\\n","at":"2024-01-01T00:00:00Z","d":1.50}', stream="t")).json()["accepted"] == 1
        whole = await client.post("/v1/sql", json={"sql": "-- one\nSELECT * FROM t"})
        assert whole.json()["rows"] == [{"k": '"a\n', "at": "2024-01-01T00:00:00Z", "d": "1.50"}]
        assert [column["type"] for column in whole.json()["columns"]] == ["TEXT", "TIMESTAMP", "DECIMAL(9, 2)"]
        assert (await sql(client, "SELECT k, d FROM t", Accept=CSV)).text == 'k,d\n"""a\n",1.50\n'
        assert pa.ipc.open_stream((await sql(client, "SELECT k FROM t", Accept=ARROW)).content).read_all().num_rows == 1
        refused = await sql(client, "SELECT nothing FROM t")
        assert (refused.status_code, refused.json()["column"]) == (404, 8)
        for content, kind, status in (
            (b"{", "application/json", 400),
            (b"SHOW", "text/html", 415),
            (b'{"sql":1}', "application/json", 400),
        ):
            assert (await client.post("/v1/sql", content=content, headers={"Content-Type": kind})).status_code == status
        described = (await client.get("/v1/tables/t")).json()
        assert [column["column"] for column in described["columns"]] == ["k", "at", "d"]
        assert (await client.get("/v1/tables/none")).json()["code"] == "unknown_name"
        missing = await client.get("/v1/nothing")
        assert (missing.status_code, missing.json()["code"]) == (404, "unknown_name")
        assert missing.json()["hint"] == "/v1/openapi.json describes what can be asked"
        wrong = await client.delete("/v1/sql")
        assert (wrong.status_code, "POST" in wrong.headers["allow"]) == (405, True)

    run(test)


def test_a_large_answer_is_written_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ROWS_AT_ONCE", 100)

    async def test(gateway: Gateway, client: httpx.AsyncClient) -> None:
        await sql(client, "CREATE TABLE t (k INT, PRIMARY KEY (k))")
        await (await gateway.harness.client()).publish("t", [{"k": k} for k in range(1_000)])
        for accept, read in (
            ("application/json", lambda a: a.json()["rows"]),
            (CSV, lambda a: [{"k": int(k)} for k in a.text.split()[1:]]),
            (ARROW, lambda a: pa.ipc.open_stream(a.content).read_all().to_pylist()),
        ):
            answer = await sql(client, "SELECT k FROM t ORDER BY k LIMIT 1000", Accept=accept)
            assert "content-length" not in answer.headers
            assert sorted(row["k"] for row in read(answer)) == list(range(1_000))

    run(test)


def test_a_token_has_the_rights_of_its_role() -> None:
    async def test(_: Gateway, client: httpx.AsyncClient) -> None:
        def bearer(role: str) -> dict[str, str]:
            return {"Authorization": f"Bearer {TOKENS[role]}"}

        for headers in ({}, {"Authorization": "Bearer nobody"}, {"Authorization": f"Basic {TOKENS['admin']}"}):
            refused = await client.get("/v1/streams", headers=headers)
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert (await sql(client, "CREATE STREAM s (v INT)", **bearer("admin"))).status_code == 200
        assert (await rows(client, b'{"v":1}', **bearer("writer"))).status_code == 200
        assert (await rows(client, b'{"v":1}', **bearer("reader"))).status_code == 403
        assert (await client.get("/v1/streams", headers=bearer("reader"))).status_code == 200
        assert (await client.get("/v1/openapi.json")).status_code == 200

    run(test, server=SERVER_TOKENS, tokens=TOKENS)


def test_a_gateway_without_tokens_leaves_the_judgement_to_the_server() -> None:
    async def test(_: Gateway, client: httpx.AsyncClient) -> None:
        assert (await client.get("/v1/streams")).status_code == 401
        assert (await client.get("/v1/streams", headers={"Authorization": f"Bearer {TOKENS['reader']}"})).status_code == 200

    run(test, server=SERVER_TOKENS)


def test_guesses_at_tokens_reach_the_server_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GUESS_S", 0.0)
    at_once: list[int] = [0]
    seen: list[int] = []

    async def connect(*_: object) -> None:
        at_once[0] += 1
        seen.append(at_once[0])
        await asyncio.sleep(0)
        at_once[0] -= 1
        raise MillstreamError("unauthorized", "no")

    monkeypatch.setattr(connections, "connect_async", connect)

    async def guess(made: connections.Connections, token: str) -> str:
        try:
            async with made.one(token):
                return ""
        except MillstreamError as error:
            return error.code

    async def test() -> None:
        made = connections.Connections(Access("", None, {}), 100)
        codes = await asyncio.gather(*(guess(made, str(n)) for n in range(30)))
        assert (set(codes), len(seen), max(seen)) == ({"unauthorized"}, 30, limits.CONNECTING_MAX)

    asyncio.run(test())


def test_what_is_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BODY_BYTES_MAX", 200_000)
    monkeypatch.setattr(limits, "ROW_BYTES_MAX", 70_000)
    monkeypatch.setattr(limits, "BODY_ROWS_MAX", 1_000)
    monkeypatch.setattr(limits, "STATEMENT_BYTES_MAX", 1_000)

    async def test(gateway: Gateway, client: httpx.AsyncClient) -> None:
        await sql(client, "CREATE STREAM s (k TEXT)")
        line = b'{"k":"%s"}\n' % (b"x" * 1_000)

        async def unknown_length() -> Any:
            for _ in range(300):
                yield line

        bomb = gzip.compress(b" " * 300_000 + b"\n")
        assert len(bomb) < 1_000
        for content, kind, more in (
            (line * 300, JSON_LINES, {}),
            (unknown_length(), JSON_LINES, {}),
            (b'{"k":"' + b"x" * 150_000, JSON_LINES, {}),
            (b'k\n"' + b"x" * 150_000, CSV, {}),
            (b"{}\n" * 1_001, JSON_LINES, {}),
            (arrow_of(pa.table({"k": ["a"] * 1_001})), ARROW, {}),
            (bomb, JSON_LINES, {"Content_Encoding": "gzip"}),
        ):
            refused = await rows(client, content, kind, **more)
            assert (refused.status_code, refused.json()["code"]) == (413, "limit"), (kind, refused.text)
        for content, kind, more in (
            (b"not gzip", JSON_LINES, {"Content_Encoding": "gzip"}),
            (gzip.compress(line)[:-9], JSON_LINES, {"Content_Encoding": "gzip"}),
            (gzip.compress(line) + line, JSON_LINES, {"Content_Encoding": "gzip"}),
            (b"no arrow", ARROW, {}),
            (b"", ARROW, {}),
            (arrow_of(pa.table({"k": ["a"]}))[:-40], ARROW, {}),
            (arrow_of(pa.table({"k": ["a" * 999]}), options=pa.ipc.IpcWriteOptions(compression="zstd")), ARROW, {}),
            (arrow_of(pa.table({"k": pa.array(["a"]).dictionary_encode()})), ARROW, {}),
            (b"other\n1\n", CSV, {}),
        ):
            refused = await rows(client, content, kind, **more)
            assert (refused.status_code, refused.json()["code"]) == (400, "data"), (kind, content[:40], refused.text)
        assert (await rows(client, line, "image/png")).status_code == 415
        assert (await rows(client, line, Content_Encoding="br")).status_code == 415
        assert (await sql(client, "SELECT " + "1" * 1_000)).status_code == 413
        assert (await rows(client, line)).json()["accepted"] == 1

    run(test)


def test_what_all_peers_hold_together_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Held] = []

    def held() -> Held:
        made.append(Held(100))
        return made[0]

    monkeypatch.setattr(connections, "Held", held)

    async def test(_: Gateway, client: httpx.AsyncClient) -> None:
        await sql(client, "CREATE STREAM s (v INT)")
        lines, table = b'{"v":1}\n' * 20, arrow_of(pa.table({"v": pa.array([1], pa.int32())}))
        for content, kind, more in ((lines, JSON_LINES, {"Idempotency_Key": "p/1"}), (table, ARROW, {})):
            refused = await rows(client, content, kind, **more)
            assert (refused.status_code, refused.json()["code"], refused.headers["retry-after"]) == (503, "overloaded", "1")
            assert made[0].bytes == 0
        assert (await rows(client, lines)).json()["accepted"] == 20, "rows that go on as they come are not held"
        await sql(client, "CREATE TABLE t (k TEXT, PRIMARY KEY (k))")
        await rows(client, b'{"k":"%s"}' % (b"x" * limits.ANSWER_BYTES_WHOLE), stream="t")
        assert (await sql(client, "SELECT * FROM t")).status_code == 503
        for _ in range(2):
            assert (await rows(client, lines[:80], Idempotency_Key="p/1")).status_code == 200
        assert made[0].bytes == 0

    run(test)


def test_when_the_server_is_gone_peers_are_told_and_when_it_is_back_they_are_served(caplog: pytest.LogCaptureFixture) -> None:
    async def test(gateway: Gateway, client: httpx.AsyncClient) -> None:
        await stream_and_query(client, "v INT")
        async with (
            client.stream("GET", "/v1/queries/q/results") as told,
            client.stream("GET", "/v1/queries/q/results", headers={"Accept": JSON_LINES}) as broken,
        ):
            assert (told.status_code, broken.status_code) == (200, 200)
            server = gateway.harness.server
            port = server.port
            await server.stop()
            lines = [line async for line in told.aiter_lines()]
            assert lines[-3:-1] == ["event: end", f"data: {lines[-2].removeprefix('data: ')}"]
            assert json.loads(lines[-2].removeprefix("data: "))["reason"] == "stopping"
            with pytest.raises(httpx.RemoteProtocolError):
                await broken.aread()
        (said,) = [record for record in caplog.records if record.name == "uvicorn.error"]
        assert (said.getMessage(), said.exc_info) == ("an answer was broken off: the results have ended: the server is about to stop", None)
        for _ in range(2):
            for refused in (await sql(client, "SHOW STREAMS"), await rows(client, b'{"v":1}'), await client.get("/v1/queries/q/results")):
                assert (refused.status_code, refused.json()["code"]) == (502, "unreachable")
        async with running(port=port):
            assert (await sql(client, "SHOW STREAMS")).json()["rows"] == []

    run(test)


def test_guesses_at_tokens_are_all_refused_and_others_come_in_beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GUESS_S", 0.01)

    async def test(_: Gateway, client: httpx.AsyncClient) -> None:
        tokens = [f"guess-{n}" for n in range(12)] + [TOKENS["reader"]]
        answers = await asyncio.gather(*(client.get("/v1/streams", headers={"Authorization": f"Bearer {token}"}) for token in tokens))
        assert [answer.status_code for answer in answers] == [401] * 12 + [200]

    run(test, server=SERVER_TOKENS)


def test_accept_says_which_form_is_liked_best() -> None:
    async def test(_: Gateway, client: httpx.AsyncClient) -> None:
        for accept, form in (
            ("", "application/json"),
            ("*/*", "application/json"),
            (f"{CSV};q=0.1, application/json", "application/json"),
            (f"text/html, {CSV};q=0.9, */*;q=0.1", CSV),
            ("Text/CSV", CSV),
        ):
            answer = await sql(client, "SHOW STREAMS", Accept=accept)
            assert answer.headers["content-type"].partition(";")[0] == form, accept

    run(test)


def test_too_many_readers_and_requests_are_told_to_come_again() -> None:
    async def test(gateway: Gateway, client: httpx.AsyncClient) -> None:
        await stream_and_query(client, "v INT")
        async with client.stream("GET", "/v1/queries/q/results") as first:
            assert first.status_code == 200
            refused = await client.get("/v1/queries/q/results")
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            assert (await rows(client, b'{"v":1}')).json()["accepted"] == 1
        for _ in range(3):  # a reader that has left makes room, and leaves nothing behind at the server
            while (answer := await client.send(client.build_request("GET", "/v1/queries/q/results"), stream=True)).status_code == 503:
                await answer.aclose()
            await answer.aclose()
        host = gateway.harness.server.application
        await until(lambda: sum(len(f.feed.subscriptions) for f in host.feeds) == 0, "no subscription is left")

    run(test, connections_max=2)


@pytest.mark.parametrize(
    "said", [b"", b"GET /v1/streams HTTP/1.1\r\nHost: x\r\n", b"POST /v1/nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\nx"]
)
def test_a_peer_that_never_ends_its_request_is_cut(monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    monkeypatch.setattr(limits, "REQUEST_S_MAX", 0.1)

    async def test(gateway: Gateway, _: httpx.AsyncClient) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.ports.http)
        writer.write(said)
        heard = b""
        with suppress(ConnectionResetError):
            heard = await reader.read()
        assert heard.startswith(b"HTTP/1.1 404") == said.startswith(b"POST")
        writer.close()

    run(test)


def test_a_reader_that_takes_nothing_is_cut_and_the_query_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WRITE_S_MAX", 0.1)

    async def test(gateway: Gateway, client: httpx.AsyncClient) -> None:
        await stream_and_query(client, "k TEXT")
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.ports.http, limit=1)
        writer.write(b"GET /v1/queries/q/results HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readexactly(1)
        feeds = gateway.harness.server.application.feeds
        publisher = await gateway.harness.client()
        for _ in range(30):
            await publisher.publish("s", [{"k": "x" * 100_000}] * 10)
            if not sum(len(f.feed.subscriptions) for f in feeds):
                break
        await until(lambda: sum(len(f.feed.subscriptions) for f in feeds) == 0, "the reader is cut")
        assert (await client.get("/v1/streams")).status_code == 200
        writer.transport.abort()

    run(test)


def test_pages_of_listed_origins_may_ask_and_answers_are_packed() -> None:
    async def test(_: Gateway, client: httpx.AsyncClient) -> None:
        asked = {
            "Origin": "https://plant.example",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization",
        }
        allowed = await client.options("/v1/sql", headers=asked)
        assert allowed.headers["access-control-allow-origin"] == "https://plant.example"
        other = await client.options("/v1/sql", headers={**asked, "Origin": "https://other.example"})
        assert "access-control-allow-origin" not in other.headers
        await stream_and_query(client, "v INT")
        packed = await client.get("/v1/policies", headers={"Accept-Encoding": "gzip"})
        assert (packed.headers["content-encoding"], len(packed.json()["rows"]) > 3) == ("gzip", True)
        await rows(client, b'{"v":1}')
        assert json.loads((await events(client, "q", 2, Accept_Encoding="gzip"))[1]["data"]) == [{"v": 1}]

    run(test, cors_origins=("https://plant.example",))


@pytest.mark.parametrize("event_id", ["t~x", "t~-1", "t~1234567890", "t~"])
def test_an_id_that_is_none_of_ours_is_refused(event_id: str) -> None:
    with pytest.raises(Exception, match="Last-Event-ID"):
        place_of(event_id)


CONFIG = """
[[operations]]
include-path-regex = "/v1/sql|results|rows"
checks.positive_data_acceptance.expected-statuses = ["2xx", 400, 401, 403, 404, 409]
"""  # no schema says which texts are statements and which ids are places; and its coverage phase ignores the pattern of a header


@pytest.mark.slow
@pytest.mark.process
def test_schemathesis_finds_nothing(tmp_path: Path) -> None:
    (tmp_path / "schemathesis.toml").write_text(CONFIG)

    async def test(gateway: Gateway, client: httpx.AsyncClient) -> None:
        made = ["STREAM s (v INT)", "STREAM ended (v INT)", "QUERY q AS SELECT v FROM ended", "TABLE t (k TEXT, PRIMARY KEY (k))"]
        for statement in [f"CREATE {what}" for what in made]:
            assert (await sql(client, statement)).status_code == 200
        await (await gateway.harness.client()).finish("ended")
        url = f"http://127.0.0.1:{gateway.ports.http}/v1/openapi.json"
        command = [sys.executable, "-m", "schemathesis.cli", "run", url, "--max-examples=8", "--seed=7", "--request-timeout=10"]
        environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "200"}
        process = await asyncio.create_subprocess_exec(
            *command, cwd=tmp_path, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        try:
            said, _ = await asyncio.wait_for(process.communicate(), 120)
        finally:
            if process.returncode is None:
                process.kill()
        text = said.decode(errors="replace")
        assert process.returncode == 0, "\n".join(line[:300] for line in text.splitlines())
        assert "Tested: 15" in text

    run(test, server={"within_s": 150})
