"""Verdicts of three experiments, computed anew from their raw files by a script that shares no code with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from millstream.scheduler.experiments import report, runner
from millstream.scheduler.experiments.roster import load

from tests.support.recomputed_verdicts import RULES, disagreements


@pytest.mark.slow
def test_the_raw_files_give_the_same_verdicts_and_a_changed_one_is_found(tmp_path: Path) -> None:
    store = runner.ResultStore(tmp_path / "runs")
    for name in RULES:
        scenario = load(name)
        runner.run_cases(scenario.cases("reduced"), store)
        report.write_findings(scenario, scenario.judge("reduced", store.result), "reduced", tmp_path / name, plot=False)
    assert disagreements(tmp_path) == []
    path = tmp_path / "c-burst" / "verdict.json"
    verdict = json.loads(path.read_text())
    verdict["claims"][1]["holds"] = not verdict["claims"][1]["holds"]
    path.write_text(json.dumps(verdict))
    assert [one.split(":")[0] for one in disagreements(tmp_path)] == ["c-burst, claim 2"]
