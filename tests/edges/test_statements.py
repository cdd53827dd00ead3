"""CREATE SOURCE and CREATE SINK: the catalogue, what is shown, secrets, and reports."""

from __future__ import annotations

import ast
import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from millstream.client.edges import runs
from millstream.client.edges.contract import ConnectorOptions, Lag, Message, MessageBatch
from millstream.client.errors import MillstreamError
from millstream.client.publisher import Acknowledgement
from millstream.engine.data.errors import EngineError
from millstream.engine.language.parse import parse_statement
from millstream.engine.language.statements import ConnectorDefinition, ConnectorKind, EnvironmentName
from millstream.protocol.connectors import SINKS, SOURCES
from millstream.protocol.types import parse_schema
from millstream.server.errors import TooMany
from millstream.server.host.connectors import CONNECTORS_MAX, REPORT_BYTES_MAX, Connector, Connectors, checked_report
from millstream.server.net.metrics import ServerCollector, pages

from tests.support.live_server import Harness, run, running

SOURCE = "CREATE SOURCE plant INTO s WITH (connector = 'mqtt', url = 'mqtt://broker:1883', topic = 'a/+', password = ENV('PLANT_PASSWORD'))"
SINK = "CREATE SINK alerts FROM hot WITH (connector = 'postgres', url = 'postgresql://db/x', table = 'alerts')"


async def made(harness: Harness) -> Any:
    client = await harness.client()
    for text in ("CREATE STREAM s (v BIGINT)", "CREATE QUERY hot AS SELECT v FROM s", SOURCE, SINK):
        await client.execute(text)
    return client


def test_definitions_and_wanted_states_survive_a_restart_and_secrets_are_names(tmp_path: Path) -> None:
    async def test() -> None:
        for life in range(3):
            async with running(data_dir=str(tmp_path), connectors=False) as harness:
                client = await (made(harness) if life == 0 else harness.client())
                (source,), (sink,) = (await client.execute("SHOW SOURCES")).rows, (await client.execute("SHOW SINKS")).rows
                assert source["options"].endswith("password = ENV('PLANT_PASSWORD')")
                assert json.loads(source["options_json"])["password"] == {"env": "PLANT_PASSWORD"}
                assert (source["stream"], sink["query"]) == ("s", "hot")
                assert (source["state"], sink["state"], sink["token"]) == (
                    ("waiting", "waiting", None)
                    if life == 0
                    else ("paused", "waiting", "t1")
                    if life == 1
                    else ("waiting", "waiting", "t1")
                )
                if life == 0:
                    await client.execute("PAUSE SOURCE plant")
                    await client.execute(
                        """REPORT SINK alerts '{"token": "t1", "state": "running", "rows": 3, "promise": "exactly once: x"}'"""
                    )
                    told = [row["explanation"] for row in (await client.execute("EXPLAIN SINK alerts")).rows]
                    assert "promise: exactly once: x" in told
                if life == 1:
                    await client.execute("RESUME SOURCE plant")
                if life == 2:
                    assert (await client.execute("CREATE SOURCE IF NOT EXISTS plant INTO s WITH (connector = 'files')")).notices
                    await client.execute("DROP SINK alerts")
                    await client.execute("DROP SOURCE plant")
                    await client.execute("DROP SOURCE IF EXISTS plant")
                    await client.execute(SINK)
                    assert (await client.execute("SHOW SINKS")).rows[0]["token"] is None

    asyncio.run(test())


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (SOURCE, "exists", "source plant exists"),
        (SOURCE.replace("INTO s", "INTO nothing"), "unknown_name", "nothing"),
        (SINK.replace("FROM hot", "FROM nothing"), "unknown_name", "nothing"),
        ("DROP SINK nothing", "unknown_name", "there is no sink nothing"),
        ("PAUSE SOURCE nothing", "unknown_name", "there is no source nothing"),
        ("EXPLAIN SINK nothing", "unknown_name", "there is no sink nothing"),
        ("DROP STREAM s CASCADE", "in_use", "stream s is filled by source plant"),
        ("DROP QUERY hot", "in_use", "query hot is read by sink alerts"),
        ("REPORT SOURCE plant 'x'", "invalid", "no report"),
        ("REPORT SOURCE plant '{\"other\": 1}'", "invalid", "no report"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(text: str, code: str, said: str) -> None:
    async def test(harness: Harness) -> None:
        client = await made(harness)
        with pytest.raises(MillstreamError, match=said) as refused:
            await client.execute(text)
        assert refused.value.code == code

    run(test, connectors=False)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("password = 'x'", r"password = ENV\('NAME'\)"),
        ("api_token = 'x'", r"api_token = ENV\('NAME'\)"),
        ("url = 'mqtt://me:x@broker'", r"password = ENV\('NAME'\)"),
        ("a = 1, a = 2", "a is given twice"),
        ("url = 'x'", "does not say its connector"),
        ("url = ENV(x)", "the name of an environment variable"),
    ],
)
def test_a_secret_in_a_statement_and_other_wrong_options_are_refused(options: str, said: str) -> None:
    with pytest.raises(EngineError, match=said) as refused:
        parse_statement(f"CREATE SOURCE a INTO s WITH ({options})")
    assert "me:x" not in str(refused.value)


MQTT = "connector = 'mqtt', url = 'mqtt://b', topic = 'a'"


@pytest.mark.parametrize(
    ("kind", "options", "said", "hint"),
    [
        (
            "SOURCE plant INTO s",
            f"{MQTT}, topik = 'x'",
            "there is no option topik; mqtt sources have url, topic, version",
            "did you mean topic?",
        ),
        ("SOURCE plant INTO s", "connector = 'mqtt', url = 'mqtt://b'", "option topic is missing; add topic = ", ""),
        (
            "SOURCE plant INTO s",
            "connector = 'mqtt', topic = 'a', url = 'http://b'",
            "url must be mqtt://host:port or mqtts://host:port",
            "",
        ),
        ("SOURCE plant INTO s", "connector = 'mqtt', topic = true, url = 'mqtt://b'", "topic must be text", ""),
        ("SOURCE plant INTO s", f"{MQTT}, version = 4", "version must be one of 5, 3.1.1, not 4", ""),
        ("SOURCE plant INTO s", f"{MQTT}, format = 'jsn'", "format must be one of json, csv, text, avro, protobuf, not 'jsn'", ""),
        ("SOURCE plant INTO s", f"{MQTT}, header = 'a'", "option header is for format = 'csv', and the format is json", ""),
        ("SOURCE plant INTO s", f"{MQTT}, format = 'text'", "format = 'text' needs pattern = ", ""),
        ("SOURCE plant INTO s", "connector = 'files', path = '/x', format = 'avro'", "format must be one of json, csv, text", ""),
        ("SOURCE plant INTO s", "connector = 'http', url = 'http://b', poll = 'often'", "poll must be a number of at least 0.01", ""),
        ("SINK out FROM hot", f"{MQTT}, retain = 'yes'", "retain must be true or false", ""),
        ("SINK out FROM hot", "connector = 'files', path = '/x', roll_bytes = 0", "roll_bytes must be a number of at least 1, not 0", ""),
        ("SINK out FROM hot", "connector = 'postgres', url = 'x', table = 't', format = 'json'", "there is no option format", ""),
    ],
)
def test_options_of_own_connectors_are_checked_by_create(kind: str, options: str, said: str, hint: str) -> None:
    async def test(harness: Harness) -> None:
        client = await made(harness)
        await client.execute("DROP SOURCE plant")
        with pytest.raises(MillstreamError) as refused:
            await client.execute(f"CREATE {kind} WITH ({options})")
        assert refused.value.code == "invalid"
        assert said in refused.value.message
        assert hint in (refused.value.hint or "")

    run(test, connectors=False)


def test_a_secret_is_not_looked_at_and_a_connector_of_ones_own_is_checked_later() -> None:
    async def test(harness: Harness) -> None:
        client = await made(harness)
        fine = f"{MQTT}, url = ENV('BROKER'), retain = TRUE, format = ENV('FORM')".replace("url = 'mqtt://b', ", "")
        await client.execute(f"CREATE SINK fine FROM hot WITH ({fine})")
        told = (await client.execute("CREATE SINK own FROM hot WITH (connector = 'file', anything = 1)")).notices
        assert "file is none of Millstream's own connectors" in str(told)
        assert "did you mean files?" in str(told)

    run(test, connectors=False)


def test_what_is_declared_is_what_the_connectors_ask_for() -> None:
    """Read from their text, as a connector asks for its options only where its other side is at hand."""
    asked = {
        path.stem: {
            node.args[0].value
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("text", "maybe", "number")
            if isinstance(node.args[0] if node.args else None, ast.Constant)
        }
        for path in Path(runs.__file__).parent.glob("*.py")
    }
    of_formats = asked["formats"] | asked["schema_files"] | asked["protobuf"] | asked["avro"]
    files = {"nats": "nats_jetstream", "redis": "redis_streams"}
    for connector in SOURCES.keys() | SINKS.keys():
        declared = SOURCES[connector].keys() | SINKS[connector].keys()
        own = asked[files.get(connector, connector)] | ({"url"} if connector != "files" else set())
        assert own <= declared, connector
        assert declared - own <= of_formats, connector


def test_what_is_read() -> None:
    statement: Any = parse_statement(
        "CREATE SINK IF NOT EXISTS a FROM q WITH (connector = files, roll_s = 5, retain = true, key = ENV('K'))"
    )
    definition = statement.definition
    assert (definition.kind, definition.name, definition.target) == (ConnectorKind.SINK, "a", "q")
    assert definition.options == (("connector", "files"), ("roll_s", 5), ("retain", True), ("key", EnvironmentName("K")))


def test_so_many_sources_and_sinks_and_no_more() -> None:
    connectors = Connectors()
    for number in range(CONNECTORS_MAX):
        connectors.add(Connector(ConnectorDefinition(list(ConnectorKind)[number % 2], f"c{number}", "s", ())))
    with pytest.raises(TooMany, match="at most 256 sources and sinks"):
        connectors.add(Connector(ConnectorDefinition(ConnectorKind.SINK, "more", "s", ())))


def test_a_report_is_bounded_and_only_known_keys_are_taken() -> None:
    assert checked_report('{"state": "running", "rows": 3, "lag_s": null}') == {"state": "running", "rows": 3, "lag_s": None}
    assert len(checked_report(json.dumps({"last_error": "x" * 5_000}))["last_error"]) == 500
    for bad in ("[]", '{"rows": "x"}', '{"rows": true}', '{"x": 1}', '{"state": 1}', " " * (REPORT_BYTES_MAX + 1)):
        with pytest.raises(ValueError, match=r"."):
            checked_report(bad)


def test_metrics_tell_how_far_behind_sources_are() -> None:
    async def test(harness: Harness) -> None:
        await made(harness)
        client = harness.clients[0]
        report = {"state": "running", "rows": 7, "refused": 2, "restarts": 1, "lag_messages": 40, "lag_s": 2.5}
        await client.execute(f"REPORT SOURCE plant '{json.dumps(report)}'")
        text = pages(ServerCollector(harness.server.application))["/metrics"]()[2].decode()
        label = '{kind="source",name="plant"}'
        wanted = {"running": 1, "rows_total": 7, "refused_total": 2, "restarts_total": 1, "lag_messages": 40, "lag_seconds": 2.5}
        for name, value in wanted.items():
            assert f"millstream_connector_{name}{label} {float(value)}" in text
        assert 'millstream_connector_running{kind="sink",name="alerts"} 0.0' in text

    run(test, connectors=False)


def test_a_source_that_is_never_idle_tells_its_lag_and_how_old_what_waits_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "LAG_S", 0.0)
    now = 1_000.0
    monkeypatch.setattr(runs.time, "time", lambda: now)

    class Busy:
        def __init__(self) -> None:
            self.left = [3, 2, 1, 0]
            self.told: list[Any] = []

        def open(self, options: Any, position: Any) -> None: ...

        def read(self, wait_s: float) -> MessageBatch:
            if len(self.left) == 1:
                source.stop()
            return MessageBatch([Message({"v": 1}, time_us=int((now - 2.5) * 1e6))], b"p")

        def settled(self, position: bytes) -> None: ...

        def lag(self) -> Lag:
            self.told.append(source.report().get("lag_s"))
            return Lag(self.left.pop(0))

    publisher = MagicMock()
    publisher.__enter__().columns = parse_schema([["v", "BIGINT", True]])
    publisher.__enter__().flush.return_value = Acknowledgement(1)
    source = runs.SourceRun("x", "s", "{}", None, MagicMock())
    busy = Busy()
    source._move(SimpleNamespace(publisher=lambda *_, **__: publisher), busy, ConnectorOptions("x", {}))  # type: ignore[arg-type]
    assert busy.told == [None, 2.5, 2.5, 2.5]
    assert (source.report()["lag_messages"], source.report()["lag_s"]) == (0, 0.0)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            SOURCE.replace("password", "columns = 'v = payload.v, w = topic[1]', password"),
            "source plant: s has no column w; the columns are v",
        ),
        (SINK.replace("'alerts')", "'alerts', key = 'v, vv')"), "sink alerts: hot has no column vv; did you mean v"),
        (
            "CREATE SINK alerts FROM hot WITH (connector = 'kafka', url = 'kafka://a:1', topic = 't', key = 'room')",
            "sink alerts: hot has no column room; the columns are v",
        ),
    ],
)
def test_a_column_that_the_stream_or_query_has_not_is_refused_at_create(statement: str, message: str) -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        for text in ("CREATE STREAM s (v BIGINT)", "CREATE QUERY hot AS SELECT v FROM s"):
            await client.execute(text)
        with pytest.raises(MillstreamError, match=message):
            await client.execute(statement)
        await client.execute(SINK.replace("'alerts')", "'alerts', key = 'v')"))

    run(test, connectors=False)
