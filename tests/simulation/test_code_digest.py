"""What code a run is told to depend on: no less than it executes, and no policy that it is not of."""

from __future__ import annotations

import sys
from types import FrameType

import pytest
from millstream.scheduler.experiments import code_digest, report
from millstream.scheduler.experiments.frame import ExperimentCase
from millstream.scheduler.experiments.roster import load

_POLICIES = "millstream.scheduler.policies."


def counted(case: ExperimentCase) -> set[str]:
    return code_digest.modules_of(case.module, code_digest._policies_of(case))


def smaller(case: ExperimentCase) -> ExperimentCase:
    """Return the case with so little to do that it may be watched."""
    few = {"tuples": 60, "queries": 12, "seconds": 2.0, "slow": 40.0, "windows": 1, "window": 50}
    return ExperimentCase(case.function, {**case.parameters, **{name: few[name] for name in few if name in case.parameters}})


@pytest.mark.parametrize("name", ["p-latency", "c-traversal", "c-qos", "s-selectivity", "s-clusters", "s-oracle", "s-fresh", "d-dilos"])
def test_a_run_executes_nothing_that_does_not_count(name: str) -> None:
    cases = load(name).cases("reduced")
    for case in map(smaller, (cases[0], cases[-1])):
        case.run()  # so that all is imported: to import a module runs its definitions
        executed: set[str] = set()

        def note(frame: FrameType, event: str, found: object, executed: set[str] = executed) -> None:
            executed.add(str(frame.f_globals.get("__name__", "")))

        sys.setprofile(note)
        try:
            case.run()
        finally:
            sys.setprofile(None)
        ours = {one for one in executed if one.startswith("millstream.scheduler.")}
        assert len(ours) > 5
        assert ours - counted(case) == {"millstream.scheduler.experiments.frame"}


def test_only_the_policy_of_a_case_counts() -> None:
    case = ExperimentCase("sharaf_runs:grid", {"policy": "hr"})
    found = counted(case)
    assert f"{_POLICIES}highest_rate" in found
    assert f"{_POLICIES}balance_slowdown" not in found
    assert "millstream.scheduler.drivers.live" not in found
    assert "millstream.engine.data.work" in found
    unknown = counted(ExperimentCase("sharaf_runs:selectivity", {"policy": "oracle-hr"}))
    assert f"{_POLICIES}balance_slowdown" in unknown


def test_clusters_count_where_a_policy_has_them() -> None:
    selector = "millstream.scheduler.selectors.clusters"
    assert selector in counted(ExperimentCase("sharaf_runs:grid", {"policy": "bsd-log:clusters=12"}))
    assert selector not in counted(ExperimentCase("sharaf_runs:grid", {"policy": "hr"}))


def test_words_do_not_count_and_code_does() -> None:
    text = "class A:\n    x = 1\n\n    def f(self):\n        return self.x\n\n    async def g(self):\n        return self.x\n"
    words = (
        '"""Words."""\nclass A:\n    x = 1  # a remark\n    """What x is."""\n    def f(self):\n        "Words."\n        return self.x\n'
        '    async def g(self):\n        "Words."\n        return self.x\n'
    )
    assert code_digest.syntax(text) == code_digest.syntax(words)
    assert code_digest.syntax(text) != code_digest.syntax(text.replace("1", "2"))


def verdict(name: str, code: str) -> report.Verdict:
    claims = [{"text": "t", "paper": "p", "ours": "o", "holds": True, "note": ""}]
    return {
        "name": name,
        "source": "S",
        "title": "t",
        "setup": "u",
        "substitutions": [],
        "scale": "reduced",
        "code": code,
        "claims": claims,
    }


def test_a_row_is_marked_where_other_code_gave_it() -> None:
    now = report.code_now("g-low", "reduced")
    page = report.document([verdict("g-low", now), verdict("g-high", "0" * 32)], {})
    rows = {line.split("]")[0]: line for line in page.splitlines() if line.startswith("| [")}
    assert "earlier code" not in rows["| [g-low"]
    assert "earlier code" in rows["| [g-high"]
    added = report.added(page, [verdict("s-l2", report.code_now("s-l2", "reduced"))], {})
    rows = {line.split("]")[0]: line for line in added.splitlines() if line.startswith("| [")}
    assert [name for name, line in rows.items() if "earlier code" in line] == ["| [g-high"]
