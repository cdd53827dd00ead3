"""A policy, a workload and seeds of one's own in an experiment's frame: the paper's policies stay what they are, and files say the rest."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from millstream.scheduler.experiments.experiment_command import experiment
from millstream.scheduler.experiments.own import OwnRequest, run_own
from millstream.scheduler.experiments.roster import load
from millstream.scheduler.experiments.runner import ResultStore

from tests.simulation.test_workload_files import EXAMPLE

AS_HR = "class Mine:\n    def rank(self, unit, now_ns):\n        return unit.output_per_tuple / unit.cost_to_end_ns\n"


@pytest.fixture
def policy(tmp_path: Path) -> str:
    file = tmp_path / "mine.py"
    file.write_text(AS_HR)
    return f"user:file={file}"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(experiment, ["run", *arguments, "--processes", "1"])


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def test_a_policy_runs_in_the_papers_set_ups(policy: str) -> None:
    scenario = load("c-qos")
    findings = run_own(scenario, "reduced", OwnRequest(policies=[policy]))
    assert list(findings.keys) == ["policy", "reading", "rate"]
    store = ResultStore()
    for case in scenario.cases("reduced"):
        kept = store.result(case)
        (mine,) = [row for row in findings.runs if all(row[key] == case.parameters[key] for key in findings.keys)]
        assert {name: mine[name] for name in ("results", "qos", "response_ms_mean")} == {
            name: kept[name] for name in ("results", "qos", "response_ms_mean")
        }
    own = [row for row in findings.runs if row["policy"] == policy]
    assert {row["rate"] for row in own} == {case.parameters["rate"] for case in scenario.cases("reduced")}
    assert all((row["decision_share"] > 0) == (row["reading"] != "free") for row in own), "deciding is charged as for the paper's policies"


@pytest.mark.slow
def test_several_seeds_give_tables_and_pictures(tmp_path: Path, policy: str) -> None:
    out = tmp_path / "out"
    result = run("c-qos", "--policy", policy, "--seed", "1,2", "--out", str(out))
    assert result.exit_code == 0, result.output
    assert "±" in result.stdout
    means, runs = rows(out / "c-qos" / "own.csv"), rows(out / "c-qos" / "own-runs.csv")
    assert len(runs) == 2 * len(means)
    assert {"policy", "rate", "seeds", "response_ms_mean", "response_ms_mean_ci95"} <= set(means[0])
    assert (out / "c-qos" / "own.pdf").read_bytes().startswith(b"%PDF")
    assert "mean response time" in (out / "c-qos" / "own.svg").read_text()


def test_a_workload_takes_the_loads_and_policies_of_the_experiment(tmp_path: Path, policy: str) -> None:
    workload = tmp_path / "sensors.toml"
    workload.write_text("utilisation = 0.9\n" + EXAMPLE)
    out = tmp_path / "out"
    result = run("s-response", "--workload", str(workload), "--policy", policy, "--out", str(out), "--no-plot")
    assert result.exit_code == 0, result.output
    found = rows(out / "s-response" / "own.csv")
    assert {row["load"] for row in found} == {"0.7", "0.97"}
    by_policy = {row["policy"]: row["response_ms_mean"] for row in found if row["load"] == "0.97"}
    assert set(by_policy) == {"rr", "fcfs", "srpt", "hr", "hnr", policy}
    assert float(by_policy[policy]) == pytest.approx(float(by_policy["hr"]), rel=1e-6), "the file ranks as hr does"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["d-none", "--policy", "hr"], "d-none compares no policies in simulation"),
        (["c-qos", "--policy", "best"], "unknown policy 'best'"),
        (["c-qos", "--seed", "x"], "write 1,2,3 or 1-10"),
    ],
)
def test_what_does_not_fit_the_frame_is_said(tmp_path: Path, arguments: list[str], message: str) -> None:
    result = run(*arguments, "--out", str(tmp_path))
    assert result.exit_code == 1
    assert message in result.output


def test_each_frame_with_a_policy_can_take_another() -> None:
    from millstream.scheduler.experiments.roster import NAMES

    without = [name for name in NAMES if not any("policy" in case.parameters for case in load(name).cases("reduced"))]
    assert without == ["c-traversal", "d-none", "d-common", "d-class", "d-dilos", "d-steps"]
