from __future__ import annotations

from typing import Any

import pytest
from millstream.client.cli import run
from millstream.feeder.errors import FeederError, RateError, SourceError
from millstream.feeder.options import Into, arrival_rule, feed_plan, parse_into, parse_map

PLAIN = {"rate": None, "profile": None, "kind": None, "seed": 0, "burst": 1, "speed": 1.0}


class Described:
    """A client that knows one stream."""

    def execute(self, sql: str) -> Any:
        self.sql = sql
        return type(
            "Answer",
            (),
            {
                "rows": [
                    {"column": "ts", "type": "BIGINT", "nullable": True, "note": "event time"},
                    {"column": "v", "type": "TEXT", "nullable": True, "note": None},
                ],
                "notices": ["TIMESTAMP BY ts UNIT ms ZONE 'Asia/Kolkata' LATE DROP"],
            },
        )()


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, "max"),
        ({"rate": "5/s"}, "poisson"),
        ({"profile": "5/s:1s"}, "poisson"),
        ({"rate": "5/s", "kind": "fixed"}, "fixed"),
        ({"kind": "original"}, "original"),
    ],
)
def test_arrivals_are_random_when_there_is_a_rate_and_at_once_when_there_is_none(changes: dict[str, Any], kind: str) -> None:
    assert arrival_rule(PLAIN | changes).kind == kind


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"rate": "5/s", "profile": "5/s:1s"}, "not both"),
        ({"rate": "5/s", "kind": "max"}, "--max does not go with a rate"),
        ({"rate": "5/s", "kind": "original"}, "--original does not go with a rate"),
        ({"kind": "fixed"}, "need a rate"),
        ({"rate": "5/s", "speed": 2.0}, "--speed goes with --original"),
        ({"burst": 3}, "--burst goes with"),
    ],
)
def test_options_that_contradict_each_other_are_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(RateError, match=complaint):
        arrival_rule(PLAIN | changes)


def test_a_stream_may_come_with_a_condition() -> None:
    assert parse_into(["s"], split=False) == [Into("s")]
    assert parse_into(["tcp where proto = 'a where b'", "udp WHERE x > 1"], split=False) == [
        Into("tcp", "proto = 'a where b'"),
        Into("udp", "x > 1"),
    ]


@pytest.mark.parametrize(
    ("texts", "split", "complaint"),
    [
        (["a b"], False, "cannot read --into"),
        (["a WHERE x", "a"], False, "names a twice"),
        (["a", "b"], True, "goes with one"),
        (["a WHERE x"], True, "goes with one"),
    ],
)
def test_streams_that_cannot_be_meant_are_refused(texts: list[str], split: bool, complaint: str) -> None:
    with pytest.raises(SourceError, match=complaint):
        parse_into(texts, split=split)


def test_a_mapping_is_read_up_to_the_first_equals_sign() -> None:
    assert parse_map(["ts=to_timestamp(a)", "ok = x = 1"]) == {"ts": "to_timestamp(a)", "ok": "x = 1"}


@pytest.mark.parametrize("text", ["ts", "=x", "ts="])
def test_a_mapping_without_both_sides_is_refused(text: str) -> None:
    with pytest.raises(SourceError, match="cannot read --map"):
        parse_map([text])


def test_the_plan_takes_columns_zone_and_unit_from_the_daemon() -> None:
    options = PLAIN | {
        "paths": ("x.csv",),
        "file_format": None,
        "null": "",
        "delimiter": None,
        "one_line": False,
        "mapped": (),
        "time_formats": ("%d.%m.%Y", "seen=ms"),
        "zone": None,
        "split_by": None,
        "publishers": None,
        "in_order": True,
    }
    client = Described()
    plan = feed_plan(client, options, [Into("s")], arrival_rule(PLAIN))
    assert client.sql == "DESCRIBE s"
    (target,) = plan.targets
    assert [(column.name, column.type, column.nullable) for column in target.columns] == [("ts", "BIGINT", False), ("v", "TEXT", True)]
    assert (target.event_time, target.unit, plan.mapped.zone) == ("ts", "ms", "Asia/Kolkata")
    assert {column: format.text for column, format in plan.mapped.formats.items()} == {None: "%d.%m.%Y", "seen": "ms"}
    with pytest.raises(SourceError, match="--time-format: the time format 'x' does not tell a day"):
        feed_plan(client, options | {"time_formats": ("x",)}, [Into("s")], arrival_rule(PLAIN))
    with pytest.raises(SourceError, match="--any-order goes with --publishers"):
        feed_plan(client, options | {"in_order": False}, [Into("s")], arrival_rule(PLAIN))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["x.csv", "--into", "s", "--rate", "fast"], "cannot read the rate 'fast'; write it as 500/s"),
        (["x.csv", "--into", "s", "--server", "127.0.0.1:1"], "127.0.0.1:1"),
    ],
)
def test_the_command_fails_with_one_sentence(arguments: list[str], complaint: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["feed", *arguments]) == 1
    said = capfd.readouterr()
    assert complaint in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_wrong_usage_exits_with_two(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["feed", "x.csv"]) == 2
    assert "--into" in capfd.readouterr().err


def test_every_error_of_the_feeder_is_of_one_family() -> None:
    assert issubclass(RateError, FeederError)
    assert issubclass(SourceError, FeederError)
