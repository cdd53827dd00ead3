from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from millstream.feeder.arrivals import ArrivalRule
from millstream.feeder.errors import StateError
from millstream.feeder.job import FeedPlan
from millstream.feeder.position import Position, fingerprint_of, load_position
from millstream.feeder.rates import constant, parse_profile
from millstream.feeder.shaping import Mapped
from millstream.feeder.sources import ReadOptions

from tests.feeder.fakes import target

PLAN = FeedPlan(("x.csv",), (target("s"),), ArrivalRule("poisson", constant(5)))


def test_a_saved_position_is_read_back(tmp_path: Path) -> None:
    position = Position(("a", "b"))
    position.advance(1, 3)
    position.advance(1, 4)
    position.save(tmp_path / "state", "f")
    assert load_position(tmp_path / "state", "f", ("a", "b")).acked() == (0, 7)
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_without_a_file_a_feed_begins_at_the_beginning(tmp_path: Path) -> None:
    assert load_position(tmp_path / "none", "f", ("a",)).acked() == (0,)


@pytest.mark.parametrize(("fingerprint", "streams"), [("other", ("a",)), ("f", ("b",)), ("f", ("a", "b"))])
def test_a_position_of_another_feed_is_refused(tmp_path: Path, fingerprint: str, streams: tuple[str, ...]) -> None:
    Position(("a",)).save(tmp_path / "state", "f")
    with pytest.raises(StateError, match="belongs to a feed of other files"):
        load_position(tmp_path / "state", fingerprint, streams)


@pytest.mark.parametrize("text", ["", "[]", '{"version": 1}', "\x00"])
def test_a_file_that_is_no_state_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "state").write_text(text)
    with pytest.raises(StateError, match="is not a state file"):
        load_position(tmp_path / "state", "f", ("a",))


def test_a_state_of_a_later_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").write_text(json.dumps({"version": 2, "fingerprint": "f", "acked": {"a": 1}}))
    with pytest.raises(StateError, match="version 2"):
        load_position(tmp_path / "state", "f", ("a",))


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="cannot write the state file"):
        Position(("a",)).save(tmp_path / "missing" / "state", "f")


def test_the_fingerprint_changes_with_all_that_decides_rows_and_order() -> None:
    others = [
        replace(PLAN, paths=("y.csv",)),
        replace(PLAN, targets=(target("t"),)),
        replace(PLAN, rule=ArrivalRule("poisson", constant(6))),
        replace(PLAN, rule=ArrivalRule("poisson", parse_profile("5/s:1s"))),
        replace(PLAN, rule=ArrivalRule("fixed", constant(5))),
        replace(PLAN, rule=ArrivalRule("poisson", constant(5), seed=1)),
        replace(PLAN, rule=ArrivalRule("poisson", constant(5), burst=2)),
        replace(PLAN, read=ReadOptions(null="NA")),
        replace(PLAN, mapped=Mapped({"v": "w"})),
        replace(PLAN, mapped=Mapped(zone="UTC")),
        replace(PLAN, conditions=("v > 1",)),
        replace(PLAN, split_by="v"),
    ]
    prints = {fingerprint_of(plan) for plan in [PLAN, *others]}
    assert len(prints) == len(others) + 1
    assert fingerprint_of(replace(PLAN)) == fingerprint_of(PLAN)
