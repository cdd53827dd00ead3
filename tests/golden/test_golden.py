"""Runs every case of `cases/` through the embedded engine; see README.md beside this file."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from millstream.scheduler.catalog import CATALOG
from millstream.server.run.embedded import Replay, ReplayOutcome, run_replay
from millstream.server.run.output import write_results

CASES = Path(__file__).parent / "cases"
NAMES = sorted(p.stem for p in CASES.glob("*.sql"))
POLICIES = [name for name in CATALOG if name != "user"]  # that one is whatever its file says
WAYS = [(1, 1), (7, 1), (4096, 1), (7, 3)]  # rows of a train, orders at a time


@dataclass(frozen=True)
class Case:
    name: str
    script: str
    inputs: list[tuple[str, Path]]
    timeline: Path | None
    fails: str | None
    says: list[str]


def load(name: str) -> Case:
    script = (CASES / f"{name}.sql").read_text("utf-8")
    inputs = [(p.name.split(".")[2], p) for p in sorted(CASES.glob(f"{name}.input.*"))]
    timeline = CASES / f"{name}.timeline.jsonl"
    fails = re.search(r"^-- must fail: (.*)$", script, re.MULTILINE)
    says = re.findall(r"^-- says: (.*)$", script, re.MULTILINE)
    return Case(name, script, inputs, timeline if timeline.exists() else None, fails[1] if fails else None, says)


def run(case: Case, train: int | None = None, workers: int = 1, policy: str = "hnr") -> ReplayOutcome:
    return run_replay(Replay(case.script, case.inputs, case.timeline, policy, workers, train))


def text_of(outcomes: ReplayOutcome) -> str:
    out = io.BytesIO()
    write_results(outcomes.results, "json", out)
    return out.getvalue().decode()


def check(case: Case, outcomes: ReplayOutcome) -> None:
    if case.fails is not None:
        assert outcomes.failure is not None
        assert case.fails in outcomes.failure
        return
    assert outcomes.failure is None
    assert text_of(outcomes) == (CASES / f"{case.name}.expected").read_text("utf-8")
    for text in case.says:
        assert any(text in message for message in outcomes.messages), outcomes.messages


@pytest.mark.parametrize("name", NAMES)
def test_the_answer_is_the_expected_one_at_any_train_size(name: str, request: pytest.FixtureRequest) -> None:
    case = load(name)
    if request.config.getoption("--regenerate", default=False) and case.fails is None:
        outcomes = run(case)
        assert outcomes.failure is None, outcomes.failure
        (CASES / f"{name}.expected").write_text(text_of(outcomes), "utf-8")
    for train, workers in WAYS:
        check(case, run(case, train, workers))


@pytest.mark.parametrize("name", NAMES)
def test_the_answer_is_the_same_under_other_policies(name: str) -> None:
    # Every policy meets a quarter of the cases, every case a quarter of the policies.
    case = load(name)
    for policy in POLICIES[NAMES.index(name) % 4 :: 4]:
        check(case, run(case, 7, 1, policy))


def test_every_file_belongs_to_a_case() -> None:
    stray = [p.name for p in CASES.iterdir() if p.name.split(".")[0] not in NAMES]
    assert stray == []
