"""Messages to rows: paths, CSV, text with a pattern; what cannot be read goes the stream's ON ERROR way."""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import uuid
from contextlib import suppress
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.client.edges.contract import BATCH_BYTES_MAX, ConnectorError, ConnectorOptions, Message, Records, fitting
from millstream.client.edges.formats import MESSAGE_BYTES_MAX, RowReader, json_lines, parse_columns
from millstream.client.edges.runs import KEPT_BYTES, KEPT_ROWS, TOKEN, SinkRun, filled_in, one_line
from millstream.client.errors import MillstreamError
from millstream.protocol.types import parse_schema

COLUMNS = parse_schema([["sensor", "TEXT", True], ["v", "DOUBLE", True], ["n", "BIGINT", True], ["ts", "TIMESTAMP", True]])


def rows(messages: list[Message], **options: Any) -> list[dict[str, Any]]:
    return RowReader(ConnectorOptions("x", options), COLUMNS).rows(messages)


def test_a_path_says_which_part_of_a_message_fills_a_column() -> None:
    message = Message(b'{"p": {"v": 1.5, "list": [7, 8]}, "ts": 1700000000.25}', "plant/7/temp", b"k1", 1_000_000)
    said = "sensor = topic[1], v = payload.p.v, n = payload.p.list[1], ts = payload.ts"
    at = dt.datetime(2023, 11, 14, 22, 13, 20, 250_000, dt.UTC)
    assert rows([message], columns=said, time_unit="s") == [{"sensor": "7", "v": 1.5, "n": 8, "ts": at}]
    assert rows([message], columns="sensor = key, ts = time") == [{"sensor": "k1", "ts": dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)}]
    assert rows([message], columns="sensor = topic, v = payload.no.such, n = topic[9]") == [
        {"sensor": "plant/7/temp", "v": None, "n": None}
    ]


def test_a_batch_and_a_message_with_values_are_bounded_by_their_bytes() -> None:
    messages = [Message(b"x" * 1_000_000), Message({"v": 1, "sensor": "y" * 1_000_000})] * 4
    assert fitting(messages) == BATCH_BYTES_MAX // 1_000_000
    assert (fitting(messages[:2]), fitting([]), fitting([Message(b"x" * (BATCH_BYTES_MAX + 1))] * 2)) == (2, 0, 1)
    ((name,),) = rows([Message({"sensor": "y" * (MESSAGE_BYTES_MAX + 1)})])
    assert "are the most" in name


FLOATS = st.floats(allow_nan=False)
VALUES = st.none() | st.booleans() | st.integers() | FLOATS | st.text(max_size=5) | st.binary(max_size=5) | st.decimals(allow_nan=False)
TABLES = st.lists(st.tuples(VALUES, VALUES), max_size=6) | st.lists(st.tuples(st.integers(), FLOATS), max_size=6)


@given(TABLES, st.data())
def test_rows_of_a_table_are_messages(table: list[tuple[Any, Any]], data: st.DataObject) -> None:
    records = Records(("n", "v"), table)
    messages = [Message({"n": n, "v": v}) for n, v in table]
    assert list(records) == messages
    assert records.sizes() == [message.size for message in messages]
    part = data.draw(st.slices(len(table)))
    assert list(records[part]) == messages[part]


def test_without_columns_names_are_columns_and_others_are_left_out() -> None:
    assert rows([Message(b'{"v": 1, "other": 2}'), Message({"n": 3})]) == [{"v": 1}, {"n": 3}]


def test_csv_and_text_give_values_the_types_of_their_columns() -> None:
    assert rows([Message(b'"a,b",1.5,7,')], format="csv") == [{"sensor": "a,b", "v": 1.5, "n": 7, "ts": None}]
    assert rows([Message(b"7;x")], format="csv", header="n") == [{"n": "7;x"}]
    of_file = [Message(b"9,p,1.5", header=b"\xef\xbb\xbfother,sensor,v"), Message(b"q", header=b"sensor"), Message(b"r", header=b"sensor")]
    assert rows(of_file, format="csv") == [{"sensor": "p", "v": 1.5}, {"sensor": "q"}, {"sensor": "r"}]
    assert rows(of_file[:1], format="csv", columns="n = payload.other") == [{"n": 9}]
    assert rows(of_file[:1], format="csv", header="n, sensor, v") == [{"n": 9, "sensor": "p", "v": 1.5}]
    of_sheet = [Message(b"p;1.5;3.6.2024 14:05", header=b"sensor;v;ts"), Message(b"p;1.5;14:05", header=b"sensor;v;ts")]
    read, refused = rows(of_sheet, format="csv", time_format="%d.%m.%Y %H:%M")
    assert read == {"sensor": "p", "v": 1.5, "ts": "2024-06-03T14:05"}
    assert [name for name in refused if "column ts: '14:05' does not have the time format" in name]
    assert rows([Message(b"temp plant-7=21.5C")], format="text", pattern=r"(?P<sensor>[\w-]+)=(?P<v>[0-9.]+)C") == [
        {"sensor": "plant-7", "v": 21.5}
    ]


@pytest.mark.parametrize(
    ("value", "options", "reason"),
    [
        (b"{", {}, "not JSON"),
        (b"[" * 100_000, {}, "not JSON"),
        (b"[1]", {}, "not an object"),
        (b"\xff", {"format": "text", "pattern": "(?P<v>x)"}, "not UTF-8"),
        (b"y", {"format": "text", "pattern": "(?P<v>x)"}, "does not match"),
        (b"1,2", {"format": "csv"}, "2 fields where the header has 4; header = 'a, b' names the fields: sensor, v, n, ts"),
        (b'"', {"format": "csv"}, "not CSV"),
        (b"1" * (MESSAGE_BYTES_MAX + 1), {}, "are the most"),
    ],
)
def test_what_cannot_be_read_becomes_one_row_that_says_why_with_the_raw_bytes(value: bytes, options: dict[str, Any], reason: str) -> None:
    bad, good = rows([Message(value), Message({"n": 1})], **options)
    ((name, raw),) = bad.items()
    assert reason in name
    assert raw.startswith(value[:10].decode("utf-8", "backslashreplace"))
    assert good == {"n": 1}


def test_poison_of_other_formats_is_refused_and_stops_no_source() -> None:
    """What the client cannot send would otherwise fail the whole batch, again and again."""
    deep = [["list", "BIGINT[]", True], ["sensor", "TEXT", True]]
    reader = RowReader(ConnectorOptions("x", {"format": "csv"}), parse_schema(deep))
    for value, found in (
        (b'"' + b"[" * 70 + b"]" * 70 + b'",a', reader.rows),
        (b'{"sensor": ' + b"[" * 70 + b"]" * 70 + b"}", RowReader(ConnectorOptions("x", {}), COLUMNS).rows),
    ):
        ((said,),) = found([Message(value)])
        assert "nested deeper than 64 levels" in said
    ((said,),) = rows([Message(b'{"sensor": "\\ud800"}')])
    assert "half of a surrogate pair" in said
    assert rows([Message(b'{"sensor": "\\u00e9"}')]) == [{"sensor": "é"}]


def test_values_of_other_libraries_that_have_no_type_here_come_as_text() -> None:
    value = {"sensor": uuid.UUID(int=1), "n": 1, "v": [ipaddress.ip_address("127.0.0.1")]}
    assert rows([Message(value)]) == [{"sensor": "00000000-0000-0000-0000-000000000001", "n": 1, "v": ["127.0.0.1"]}]


def test_a_first_line_that_names_no_column_is_no_header() -> None:
    bad = Message(b"a,1.5", header=b"b,2.5")
    assert rows([bad], format="csv") == [
        {"unreadable message: the first line of the file names no column; header = 'sensor, v, n, ts' says what the fields are": "a,1.5"}
    ]
    assert rows([bad], format="csv", columns="v = payload.w") == [
        {"unreadable message: the first line of the file has no w, it has b, 2.5": "a,1.5"}
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"columns": "v"}, "is not 'column = path'"),
        ({"columns": "v = payload..x"}, "is not 'column = path'"),
        ({"columns": "v = elsewhere"}, "is not 'column = path'"),
        ({"columns": "v = payload, v = key"}, "named twice"),
        ({"columns": "w = payload"}, "the stream has no column w"),
        ({"format": "xml"}, "there is no format xml"),
        ({"format": "text"}, "needs pattern"),
        ({"format": "text", "pattern": "("}, "pattern: "),
        ({"format": "text", "pattern": "x"}, "name its groups"),
        ({"format": "text", "pattern": "(?P<v>x)" + "y" * 1_000}, "1000 are the most"),
        ({"time_unit": "h"}, "time_unit must be one of"),
    ],
)
def test_a_wrong_option_is_told_with_its_place(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConnectorError, match=said):
        rows([], **options)


@settings(max_examples=60)
@given(st.text(max_size=40))
def test_any_text_is_columns_or_is_refused(text: str) -> None:
    with suppress(ConnectorError):
        assert parse_columns(text)


@settings(max_examples=60)
@given(st.binary(max_size=60), st.sampled_from(["json", "csv", "text"]))
def test_any_bytes_give_one_row(value: bytes, form: str) -> None:
    assert len(rows([Message(value)], format=form, pattern="(?P<v>[0-9]+)")) == 1


def test_secrets_come_from_the_environment_and_unknown_options_are_told() -> None:
    options = filled_in("x", {"password": {"env": "PW"}, "url": "u", "typo": 1}, {"PW": "secret"})
    assert (options.text("password"), options.text("url"), options.number("wait", 2)) == ("secret", "u", 2)
    with pytest.raises(ConnectorError, match="there is no option typo"):
        options.check_all_known()
    with pytest.raises(ConnectorError, match=r"the environment variable PW \(password\) is not set"):
        filled_in("x", {"password": {"env": "PW"}}, {})
    with pytest.raises(ConnectorError, match="option topic is missing"):
        options.text("topic")
    with pytest.raises(ConnectorError, match="url must be a number"):
        options.number("url", 1)


def test_sinks_write_what_every_reader_of_json_takes() -> None:
    values = [float("nan"), float("inf"), -float("inf"), 1.0, None]
    columns = {
        "v": pa.array(values),
        "d": pa.array([Decimal("1.50")] * 5),
        "b": pa.array([b"\x0a"] * 5),
        "s": pa.array([{"x": v} for v in values]),
    }

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    found = [json.loads(line, parse_constant=refuse) for line in json_lines(pa.record_batch(columns))]
    told = ["NaN", "Infinity", "-Infinity", 1.0, None]
    assert found == [{"v": v, "d": "1.50", "b": "\\x0a", "s": {"x": v}} for v in told]


def test_a_sink_whose_query_was_made_anew_says_what_to_do() -> None:
    def subscribe(query: str, **how: Any) -> Any:
        assert how == {"resume_token": "m1.x"}
        raise MillstreamError("invalid", "the resume token is not of this run of the query", "subscribe without a token")

    connector: Any = SimpleNamespace(promise="exactly once: x", open=lambda options, token: "m1.x", close=lambda: None)
    client: Any = SimpleNamespace(subscribe=subscribe)
    sink = SinkRun("alerts", "hot", "{}", None, lambda: client)
    with pytest.raises(ConnectorError, match=r"hot was made or started anew .*; make a sink of another name") as told:
        sink._move(client, connector, ConnectorOptions("alerts", {}))
    assert one_line(told.value) == str(told.value)
    assert one_line(MillstreamError("x", "the reason", "the hint")).count("the hint") == 1


@pytest.mark.parametrize(("rows_each", "bytes_each", "kept"), [(2, 10, [3]), (KEPT_ROWS // 2, 1, [2, 1]), (1, KEPT_BYTES, [1, 1, 1])])
def test_a_sink_keeps_what_it_has_written_before_it_is_much(
    monkeypatch: pytest.MonkeyPatch, rows_each: int, bytes_each: int, kept: list[int]
) -> None:
    monkeypatch.setattr("millstream.client.edges.runs.KEPT_AFTER_S", 1_000.0)
    schema = pa.schema([("v", pa.string())], {TOKEN: b"t"})
    batch = pa.record_batch([pa.array(["x" * bytes_each] * rows_each)], schema)
    items = iter([batch, batch, batch, None])
    results = MagicMock()
    results.__enter__.return_value = SimpleNamespace(
        next_item=lambda timeout: next(items), end=SimpleNamespace(reason="finished", message=None)
    )
    calls: list[str] = []
    connector: Any = SimpleNamespace(
        promise="exactly once: x",
        open=lambda options, token: None,
        write=lambda batch, token: calls.append("w"),
        flush=lambda: calls.append("f"),
    )
    client: Any = SimpleNamespace(subscribe=lambda query, **options: results)
    SinkRun("alerts", "hot", "{}", None, lambda: client)._move(client, connector, ConnectorOptions("alerts", {}))
    assert [len(part) for part in "".join(calls).split("f") if part] == kept


def test_a_sink_that_failed_is_failing_until_the_other_side_has_taken_something() -> None:
    batch = pa.record_batch([pa.array(["x"])], pa.schema([("v", pa.string())], {TOKEN: b"t"}))
    states: list[str] = []
    is_reached = False

    def flush() -> None:
        states.append(sink.report()["state"])
        if not is_reached:
            raise ConnectorError("cannot be reached")

    def subscribe(query: str, **options: Any) -> Any:
        items = iter([batch, None])
        results = MagicMock()
        results.__enter__.return_value = SimpleNamespace(
            next_item=lambda timeout: next(items), end=SimpleNamespace(reason="finished", message=None)
        )
        return results

    connector: Any = SimpleNamespace(promise="exactly once: x", open=lambda o, t: None, write=lambda b, t: None, flush=flush)
    client: Any = SimpleNamespace(subscribe=subscribe)
    sink = SinkRun("alerts", "hot", "{}", None, lambda: client)
    sink._told["state"] = "failing"
    with pytest.raises(ConnectorError):
        sink._move(client, connector, ConnectorOptions("alerts", {}))
    is_reached = True
    sink._move(client, connector, ConnectorOptions("alerts", {}))
    assert states[:2] == ["failing", "failing"]
    assert sink.report()["state"] == "finished"
    assert sink.report()["rows"] == 1
