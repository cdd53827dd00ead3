"""A policy of the user's own, from a file of a few lines, and what happens when it misbehaves."""

from pathlib import Path

import pytest
from millstream.scheduler.catalog import build
from millstream.scheduler.errors import PolicyError
from millstream.scheduler.simulation.networks import Box, NetworkBuilder
from millstream.scheduler.simulation.world import World
from millstream.scheduler.spec import PolicySpec
from millstream.scheduler.trains import TrainShape

GOOD = '''
class CheapestFirst:
    """The cheapest way to the end first."""

    def rank(self, unit, now_ns):
        return -unit.cost_to_end_ns
'''

BAD = """
class Broken:
    def rank(self, unit, now_ns):
        if unit.rows > 1:
            return 1.0 / 0
        return 1.0
"""


def run(policy: str) -> World:
    builder = NetworkBuilder()
    source = builder.source("s")
    deltas = [builder.query(f"q{cost}", Box(cost, 1.0, source, label=f"q{cost}")) for cost in (3, 1, 2)]
    world = World(policy, deltas, builder=builder)
    world.arrive(source, 0)
    world.arrive(source, 100, rows=2)
    world.run()
    return world


def test_a_file_ranks_the_units(tmp_path: Path) -> None:
    file = tmp_path / "cheapest.py"
    file.write_text(GOOD)
    assert run(f"user:file={file}").steps() == ["q1", "q2", "q3", "q1", "q1", "q2", "q2", "q3", "q3"]


def test_one_that_raises_is_replaced_by_round_robin_and_everybody_is_told(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text(BAD)
    world = run(f"user:file={file}")
    assert sorted(world.steps()) == ["q1"] * 3 + ["q2"] * 3 + ["q3"] * 3
    failed = [report for report in world.reports if report.kind == "policy_failed"]
    assert len(failed) == 1
    assert "ZeroDivisionError" in failed[0].message
    assert "round-robin goes on" in failed[0].message
    assert world.core.policy.name == "round-robin"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("import sys; sys.exit(3)", "bad.py, line 3: SystemExit: 3"),
        ("raise GeneratorExit", "bad.py, line 3: GeneratorExit"),
        ("raise MemoryError", "bad.py, line 3: MemoryError"),
        ("return self.rank(unit, now_ns)", "line 3: RecursionError"),
        ("return None", "TypeError"),
        ("return '7'", "'7', which is not a number"),
        ("return float('nan')", "'nan', which is not a number"),
        ("return 10**400", "OverflowError"),
        ("return [1.0]", "TypeError"),
        ("unit.rows = 0", "line 3: FrozenInstanceError"),
    ],
)
def test_whatever_comes_of_a_file_it_is_replaced_and_its_line_named(tmp_path: Path, body: str, message: str) -> None:
    file = tmp_path / "bad.py"
    file.write_text(f"class Bad:\n    def rank(self, unit, now_ns):\n        {body}\n")
    world = run(f"user:file={file}")
    assert sorted(world.steps()) == ["q1"] * 3 + ["q2"] * 3 + ["q3"] * 3
    (failed,) = [report for report in world.reports if report.kind == "policy_failed"]
    assert message in failed.message
    assert world.core.policy.name == "round-robin"


DERIVED = """
from millstream.scheduler.contracts import RankingBase

class Scaled(RankingBase):
    def rank(self, unit, now_ns):
        return self.factor() * unit.cost_to_end_ns

class CheapestFirst(Scaled):
    def factor(self):
        return -1.0

Policy = CheapestFirst
"""

DATA = """
from __future__ import annotations
from dataclasses import dataclass

@dataclass
class CheapestFirst:
    factor: float = -1.0

    def rank(self, unit, now_ns):
        return self.factor * unit.cost_to_end_ns
"""


@pytest.mark.parametrize("text", [DERIVED, DATA])
def test_a_file_may_be_written_as_any_module(tmp_path: Path, text: str) -> None:
    file = tmp_path / "cheapest.py"
    file.write_text(text)
    assert run(f"user:file={file}").steps() == ["q1", "q2", "q3", "q1", "q1", "q2", "q2", "q3", "q3"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", r"defines no class with a method rank\(self, unit, now_ns\); a policy is one such class"),
        (GOOD + GOOD.replace("Cheapest", "Dearest"), "defines 2 classes with a method rank"),
        ("import nothing_of_this_name", "cannot be loaded: policy.py, line 1: ModuleNotFoundError"),
        ("class P:\n    def rank(self, unit, now_ns)\n        return 1", r"cannot be loaded: policy.py, line 2: SyntaxError: expected"),
        ("import sys\nsys.exit(3)", "cannot be loaded: policy.py, line 2: SystemExit: 3"),
        (f"{GOOD}\n    @property\n    def moves_with_time(self):\n        raise OSError('no')", "line 10: OSError: no"),
    ],
)
def test_a_file_that_is_no_policy_is_refused_with_the_reason(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "policy.py"
    file.write_text(text)
    with pytest.raises(PolicyError, match=message):
        build(PolicySpec.parse(f"user:file={file}"), default_train=TrainShape(count=1))


MUTE = """
from millstream.scheduler.errors import PolicyError

class Mute({base}):
    def __str__(self):
        raise Mute("again")

class Policy:
    def rank(self, unit, now_ns):
        raise Mute("no text")
"""


@pytest.mark.parametrize("base", ["Exception", "BaseException", "PolicyError"])
def test_an_exception_whose_text_raises_is_put_into_words_where_the_file_runs(tmp_path: Path, base: str) -> None:
    file = tmp_path / "mute.py"
    file.write_text(MUTE.format(base=base))
    world = run(f"user:file={file}")
    (failed,) = [report for report in world.reports if report.kind == "policy_failed"]
    assert "mute.py, line 10: an exception that has no text" in failed.message
    file.write_text(f"{MUTE.format(base=base)}\nraise Mute('no text')\n")
    with pytest.raises(PolicyError, match=r"mute.py, line 12: an exception that has no text"):
        build(PolicySpec.parse(f"user:file={file}"), default_train=TrainShape(count=1))


def test_a_missing_file_is_refused() -> None:
    with pytest.raises(PolicyError, match="there is no policy file"):
        build(PolicySpec.parse("user:file=nowhere.py"), default_train=TrainShape(count=1))
