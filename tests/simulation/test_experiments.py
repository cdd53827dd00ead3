"""Every experiment runs on a small scale and judges its claims; a wrong policy is found out; results are kept and taken up again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from millstream.scheduler.errors import SimulationError
from millstream.scheduler.experiments import frame as experiments
from millstream.scheduler.experiments import report, runner
from millstream.scheduler.experiments.experiment_command import experiment
from millstream.scheduler.experiments.frame import Claim, ExperimentCase, Findings, at_least_half, ordered, within
from millstream.scheduler.experiments.roster import NAMES, load, names
from millstream.scheduler.experiments.scenarios import carney_runs, pham
from millstream.scheduler.policies.highest_normalized_rate import HighestNormalizedRate
from millstream.scheduler.policies.memory_release import MemoryRelease
from millstream.scheduler.simulation.plots import Panel

STORE = runner.ResultStore()
"""Kept over the tests of this file: the experiments of chapter 3 share their runs."""


CLASSES_S = 6.0
"""How long runs of three classes are here: new shares come every 1.5 s, and each of the six rates of d-steps holds for one."""


def findings(name: str, store: runner.ResultStore = STORE) -> Findings:
    scenario = load(name)
    runner.run_cases(scenario.cases("reduced"), store)
    return scenario.judge("reduced", store.result)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_it_runs_on_a_small_scale(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pham, "seconds_of", lambda scale, kind: CLASSES_S)
    scenario = load(name)
    found = findings(name)
    assert scenario.name == name
    assert found.claims
    assert found.panels
    assert found.rows
    verdict = report.write_findings(scenario, found, "reduced", tmp_path, plot=False)
    assert (tmp_path / "data.csv").read_text().count("\n") == len(found.rows) + 1
    assert len(report.verdict_lines(verdict)) == 1 + 2 * len(found.claims)


@pytest.mark.slow
def test_orders_that_the_papers_rest_on_show_on_a_small_scale() -> None:
    assert all(claim.holds for name in ("s-response", "s-max", "s-class") for claim in findings(name).claims)


@pytest.mark.slow
def test_a_negated_ranking_makes_claims_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    right = HighestNormalizedRate.rank
    monkeypatch.setattr(HighestNormalizedRate, "rank", lambda self, view, now_ns: -right(self, view, now_ns))
    claims = findings("s-slowdown", runner.ResultStore()).claims
    assert not any(claim.holds for claim in claims if "HR" in claim.text or "SRPT" in claim.text)


@pytest.mark.slow
def test_a_negated_memory_release_makes_claims_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    held = {claim.text for claim in findings("p-burst").claims if claim.holds}
    right = MemoryRelease.rank
    monkeypatch.setattr(MemoryRelease, "rank", lambda self, view, now_ns: -right(self, view, now_ns))
    claims = findings("p-burst", runner.ResultStore()).claims
    assert held - {claim.text for claim in claims if claim.holds}


def test_an_effect_holds_from_half_of_its_size_on() -> None:
    assert at_least_half("x", 0.4, 0.2).holds
    assert not at_least_half("x", 0.4, 0.19).holds
    assert not at_least_half("x", 0.4, -0.4).holds


def test_a_number_holds_within_a_factor_of_two() -> None:
    assert [within("x", 10.0, ours).holds for ours in (4.9, 5.0, 20.0, 20.1)] == [False, True, True, False]


def test_an_order_is_strict_unless_a_tolerance_is_given() -> None:
    assert ordered("x", ["a", "b"], [1.0, 2.0]).holds
    assert not ordered("x", ["a", "b"], [1.0, 1.0]).holds
    assert ordered("x", ["a", "b"], [1.0, 0.995], tolerance=0.01).holds
    assert not ordered("x", ["a", "b"], [1.0, 0.98], tolerance=0.01).holds


def test_an_unknown_experiment_is_refused() -> None:
    with pytest.raises(SimulationError, match="unknown experiment 's-respons'; did you mean s-response"):
        load("s-respons")
    with pytest.raises(SimulationError, match="unknown experiment 's-speed'"):
        load("s-speed")


def test_results_are_kept_and_runs_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []

    def counted(number: int) -> dict[str, int]:
        runs.append(number)
        return {"double": 2 * number}

    monkeypatch.setattr(carney_runs, "counted", counted, raising=False)
    cases = [ExperimentCase("carney_runs:counted", {"number": number}) for number in (1, 2, 2)]
    runner.run_cases(cases, runner.ResultStore(tmp_path))
    store = runner.ResultStore(tmp_path)
    runner.run_cases([*cases, ExperimentCase("carney_runs:counted", {"number": 3})], store)
    assert runs == [1, 2, 3]
    assert [store.result(case)["double"] for case in cases] == [2, 4, 4]


def test_results_of_other_code_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = ExperimentCase("carney_runs:counted", {"number": 1})
    runner.ResultStore(tmp_path).put(case, {"double": 2})
    assert runner.ResultStore(tmp_path).get(case) == {"double": 2}
    monkeypatch.setattr(runner, "run_digest", lambda case: "changed")
    assert runner.ResultStore(tmp_path).get(case) is None


def verdict(name: str, claims: Sequence[Claim]) -> report.Verdict:
    from dataclasses import asdict

    return {
        "name": name,
        "source": "S",
        "title": "t",
        "setup": "u",
        "substitutions": ["a by b"],
        "scale": "full",
        "claims": [asdict(claim) for claim in claims],
    }


def test_the_page_shows_what_does_not_hold_with_both_numbers() -> None:
    page = report.document(
        [verdict("s-l2", [Claim("good", "24%", "30%", True), Claim("bad", "24%", "3%", False, "why")])], {"s-l2": "p.svg"}
    )
    assert "**1 of 2 claims hold.**" in page
    assert "| bad (why) | 24% | 3% | **does not hold** |" in page
    assert "Substituted: a by b." in page
    assert "![t](p.svg)" in page


def test_the_page_in_the_documentation_begins_as_pages_are_written() -> None:
    page = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text("utf-8")
    assert page.startswith(report.document([], {}).partition("**")[0])


def test_experiments_can_be_added_to_a_page_and_replaced_in_it() -> None:
    good, bad = Claim("good", "24%", "30%", True), Claim("bad", "24%", "3%", False)
    first = {**verdict("s-l2", [good, bad]), "name": "s-l2"}
    whole = report.document([first], {})
    page = report.added(whole, [{**verdict("c-threads", [bad]), "name": "c-threads"}], {"c-threads": "p.svg"})
    assert "**1 of 3 claims hold.**" in page
    assert [line.split("]")[0] for line in page.splitlines() if line.startswith("| [")] == ["| [s-l2", "| [c-threads"]
    assert report.added(whole, [first], {}) == whole
    again = report.added(page, [{**verdict("c-threads", [good]), "name": "c-threads"}], {})
    assert again.count("## c-threads") == 1
    assert "**2 of 3 claims hold.**" in again
    assert "p.svg" not in again


def test_the_command_lists_every_experiment() -> None:
    listed = CliRunner().invoke(experiment, ["list"])
    assert [line.split()[0] for line in listed.output.splitlines()] == list(names())


@pytest.mark.slow
def test_the_command_writes_data_plot_and_page(tmp_path: Path) -> None:
    ran = CliRunner().invoke(experiment, ["run", "s-tradeoff", "--out", str(tmp_path), "--processes", "1"])
    assert ran.exit_code == 0, ran.output
    assert (tmp_path / "s-tradeoff" / "data.csv").is_file()
    drawn = (tmp_path / "s-tradeoff" / "plot.svg").read_text()
    assert "maximum slowdown" in drawn
    page = tmp_path / "page.md"
    assert CliRunner().invoke(experiment, ["document", str(tmp_path), "--page", str(page)]).exit_code == 0
    assert "![average against maximum slowdown](page/s-tradeoff.svg)" in page.read_text()


def test_the_command_says_what_to_name() -> None:
    assert "name an experiment or give --all" in CliRunner().invoke(experiment, ["run"]).output
    assert CliRunner().invoke(experiment, ["run"]).exit_code == 2


def test_panels_and_claims_are_plain_values() -> None:
    assert Panel("t", "x", "y", []).kind == "line"
    assert experiments.percent(0.126) == "13%"
    assert np.isclose(experiments.reduction(1.0, 4.0), 0.75)
