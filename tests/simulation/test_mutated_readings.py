"""Readings of the papers undone one at a time: each makes a claim fail that holds with it."""

from __future__ import annotations

import pytest
from millstream.scheduler import catalog
from millstream.scheduler.experiments import runner
from millstream.scheduler.experiments.roster import load
from millstream.scheduler.experiments.scenarios import golab_runs, pham_runs
from millstream.scheduler.experiments.scenarios.cluster_runs import LinearClustersSelector
from millstream.scheduler.experiments.scenarios.pham import CLAIMS
from millstream.scheduler.selectors import source_boxes
from millstream.scheduler.selectors.clusters import ClustersSelector
from millstream.scheduler.selectors.rank_order import RankOrder
from millstream.scheduler.selectors.source_boxes import SourceBoxes
from millstream.scheduler.view import View

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


def test_ties_to_the_lowest_unit_make_hr_worse_than_bsd_where_all_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = "maximum selectivity 0.1: HR, HNR and BSD are almost the same (within 5%)"
    assert claim in held("s-selectivity")

    def lowest(order: RankOrder) -> int:
        place = order._marks.find(1)
        return order.units[place] if place >= 0 else -1

    monkeypatch.setattr(RankOrder, "first", lowest)
    assert claim not in held("s-selectivity")


def test_clusters_that_are_not_pruned_gain_nothing_by_pruning(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = "pruning the search gains on clusters alone, and these on naive BSD (l2 over that of overhead-free BSD)"
    assert claim in held("s-clusters")
    monkeypatch.setattr(ClustersSelector, "_heads", LinearClustersSelector._heads)
    monkeypatch.setattr(ClustersSelector, "_best", LinearClustersSelector._best)
    assert claim not in held("s-clusters")


def overloaded(load: str, train: int | None = None) -> dict[str, bool]:
    """Return whether each claim on three overloaded classes holds."""
    found = pham_runs.classes(load, [[1_300.0]] * 3, 6.0, slow=4.0, train=train)["classes"]
    return {claim.text: claim.holds for claim in CLAIMS[load](found)}


def test_trains_of_one_tuple_let_class_2_shed_as_well() -> None:
    claim = "with a shedder a class only class 3 sheds"
    assert overloaded("class")[claim]
    assert not overloaded("class", train=1)[claim]


def test_without_source_boxes_the_mean_of_a_class_hides_the_queries_that_starve(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = "without a shedder the response time of class 3 grows without bound, from the first quarter of the run to the last"
    assert overloaded("none")[claim]
    reset = SourceBoxes.reset

    def all_open(boxes: SourceBoxes, view: View) -> None:
        reset(boxes, view)
        boxes._edge = [source_boxes._NONE] * len(boxes._edge)
        boxes.open[:] = True

    monkeypatch.setattr(SourceBoxes, "reset", all_open)
    monkeypatch.setattr(SourceBoxes, "rows", lambda boxes, view, unit, waiting: waiting)
    assert not overloaded("none")[claim]
