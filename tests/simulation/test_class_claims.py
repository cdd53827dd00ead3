"""The verdicts on classes and shedding follow the numbers, and what they are given comes from runs that add up."""

from __future__ import annotations

from typing import Any

import pytest
from millstream.scheduler.experiments.scenarios.pham import CLAIMS, findings
from millstream.scheduler.experiments.scenarios.pham_runs import LOAD, classes, unit_cost_ns


def told(response_ms: float, loss: float, *, grows: bool = False) -> dict[str, Any]:
    curve = [response_ms * (1.0 + (second if grows else 0.0)) for second in range(8)]
    flat = [loss] * 8
    by_second = {"response_ms": curve, "seen_ms": curve, "headroom": flat, "drop": flat, "share": flat}
    return {"response_ms": response_ms, "response_ms_p99": 2.0 * response_ms, "loss": loss, "by_second": by_second}


def verdicts(kind: str, *found: dict[str, Any]) -> list[bool]:
    return [claim.holds for claim in CLAIMS[kind](found)]


def test_what_the_paper_found_holds() -> None:
    assert verdicts("none", told(3, 0), told(3, 0), told(300, 0, grows=True)) == [True, True]
    assert verdicts("common", told(3, 0.1142), told(3, 0.1143), told(517, 0.116)) == [True, True]
    assert verdicts("class", told(3, 0), told(4, 0), told(493, 0.36)) == [True, True, True]
    assert verdicts("dilos", told(4.3, 0), told(4.4, 0), told(43, 0)) == [True, True, True]
    assert verdicts("steps", told(6.7, 0), told(97, 0.052), told(226, 0.51)) == [True, True, True, True]


def test_the_contrary_does_not() -> None:
    assert verdicts("none", told(40, 0), told(3, 0), told(300, 0)) == [False, False]
    assert verdicts("common", told(3, 0.0), told(3, 0.1), told(600, 0.2)) == [False, False]
    assert verdicts("class", told(3, 0.1), told(4, 0), told(40, 0.05)) == [False, False, False]
    assert verdicts("dilos", told(4.3, 0), told(4.4, 0.01), told(4.2, 0)) == [False, False, False]
    assert verdicts("steps", told(320, 0.2), told(97, 0.1), told(50, 0.05)) == [False, False, False, False]


def test_a_class_that_put_nothing_out_is_shown_without_a_curve() -> None:
    silent = told(1.0, 1.0)
    silent["response_ms"] = silent["response_ms_p99"] = None
    silent["by_second"]["response_ms"] = [None] * 8
    found = findings((told(3, 0), told(4, 0), silent), CLAIMS["class"]((told(3, 0), told(4, 0), silent)))
    assert found.panels[0].lines[2].y == []
    assert found.rows[2]["response_ms"] is None


def test_costs_make_the_load_that_is_stated() -> None:
    weight = 4 * 1.0 + 5 * 1.5 + 2 * 2 * 2.0
    assert unit_cost_ns() * weight * 1_300.0 * 3 == pytest.approx(LOAD * 1e9)


@pytest.mark.parametrize("load", ["none", "dilos"])
def test_a_run_works_everything_off_and_tells_of_each_second(load: str) -> None:
    found = classes(load, [[400.0], [400.0], [2_600.0, 13_000.0]], 3.0, slow=4.0)["classes"]
    assert [len(one["by_second"]["headroom"]) for one in found] == [3, 3, 3]
    assert found[0]["loss"] == 0.0
    assert found[0]["response_ms"] < 100.0
    assert sum(one["by_second"]["share"][-1] for one in found) == pytest.approx(1.0)
    assert (found[2]["loss"] > 0.0) == (load == "dilos")
