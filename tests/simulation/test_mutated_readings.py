"""Readings of the papers undone one at a time: each makes a claim fail that holds with it."""

from __future__ import annotations

import pytest
from millstream.scheduler import catalog
from millstream.scheduler.experiments import runner
from millstream.scheduler.experiments.frame import load
from millstream.scheduler.experiments.scenarios import golab_runs

pytestmark = pytest.mark.slow


def held(name: str) -> set[str]:
    """Return the claims of an experiment that hold at its least scale, run anew."""
    scenario, store = load(name), runner.ResultStore()
    runner.run_cases(scenario.cases("reduced"), store)
    return {claim.text for claim in scenario.judge("reduced", store.result).claims if claim.holds}


def test_top_k_without_its_sort_is_not_best_answered_late_and_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = "late-pending sharing has the best latency"
    assert claim in held("g-high")
    monkeypatch.setattr(golab_runs, "sorting", lambda values: 0.0)
    assert claim not in held("g-high")


def test_turns_from_the_bottom_up_gain_nothing_from_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = "bursts of 4: overhead falls markedly as trains grow"
    assert claim in held("c-train")
    monkeypatch.setattr(catalog, "random_order", lambda seed: None)
    assert claim not in held("c-train")
