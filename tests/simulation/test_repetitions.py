"""Several seeds and sweeps: the means are those of the single runs, the intervals Student's, and pictures come in print formats."""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from millstream.scheduler.errors import SimulationError
from millstream.scheduler.simulation.outcome import RunOutcome
from millstream.scheduler.simulation.repetitions import POINTS_MAX, Sweep, interval95, parse_seeds, student_t
from millstream.scheduler.simulation.simulate_command import simulate

from tests.simulation.test_workload_files import EXAMPLE


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    path = tmp_path / "sensors.toml"
    path.write_text("utilisation = 0.9\n" + EXAMPLE)
    return path


def rows_of(*arguments: str | Path) -> list[dict[str, float]]:
    result = CliRunner().invoke(simulate, [*map(str, arguments), "--format", "json"])
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize("freedom", [1, 2, 9, 30, 31, 60, 400])
def test_students_t_leaves_a_fortieth_above(freedom: int) -> None:
    # The density, integrated from 0 to the point in fine steps, gives 0.475.
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)
    at = np.linspace(0.0, student_t(freedom), 200_001)
    assert np.trapezoid(scale * (1 + at**2 / freedom) ** (-(freedom + 1) / 2), at) == pytest.approx(0.475, abs=2e-6)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40))
def test_an_interval_is_that_of_the_mean(values: list[float]) -> None:
    mean, half_width = interval95(values)
    assert mean == pytest.approx(statistics.fmean(values), abs=1e-6)
    expected = student_t(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    assert half_width == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_one_run_says_nothing_of_others() -> None:
    mean, half_width = interval95([2.5])
    assert mean == 2.5
    assert math.isnan(half_width)


def test_a_sweep_has_both_ends() -> None:
    assert Sweep.parse("load=0.5:0.95:0.05", ("load",)).values == tuple(round(0.5 + 0.05 * i, 12) for i in range(10))
    assert Sweep.parse("train=10,1", ("load", "train")).values == (1.0, 10.0)
    for text in ("0.5:0.9", "0.5:0.7,0.9", "0.1:0.9:0.1:2"):
        with pytest.raises(SimulationError, match="is no range to sweep load over"):
            Sweep.parse(f"load={text}", ("load",))


@pytest.mark.parametrize("text", ["load", "lead=1:2:1", "load=a", "load=1:2:1e-9", "load=2:1:0.1", "load=0:1:0.5", "load=nan"])
def test_what_is_no_sweep_is_refused(text: str) -> None:
    with pytest.raises(SimulationError):
        Sweep.parse(text, ("load",))


def test_seeds() -> None:
    assert parse_seeds("1,2,3") == (1, 2, 3)
    assert parse_seeds("7,1-3") == (7, 1, 2, 3)
    for text in ("", "a", "1,1", "3-1", f"1-{POINTS_MAX + 1}", "-3"):
        with pytest.raises(SimulationError):
            parse_seeds(text)


def test_means_are_those_of_the_single_runs(workload: Path) -> None:
    single = [rows_of(workload, "--policy", "hr", "--seed", str(seed))[0] for seed in (1, 2, 5)]
    (row,) = rows_of(workload, "--policy", "hr", "--seed", "1,2,5")
    assert row["seeds"] == 3
    for measure in ("response_ms_mean", "slowdown_max", "memory_bytes_mean"):
        mean, half_width = interval95([one[measure] for one in single])
        assert (row[measure], row[measure + "_ci95"]) == (mean, half_width)
    assert rows_of(workload, "--policy", "hr", "--seed", "1,2,5", "--each-run") == single


def test_a_sweep_of_the_load_runs_each_load(workload: Path) -> None:
    swept = rows_of(workload, "--policy", "fcfs,hr", "--sweep", "load=0.5,0.8")
    assert [(row["policy"], row["load"]) for row in swept] == [("fcfs", 0.5), ("fcfs", 0.8), ("hr", 0.5), ("hr", 0.8)]
    for row in swept:
        (alone,) = rows_of(workload, "--policy", str(row["policy"]), "--utilisation", str(row["load"]))
        assert {**alone, "load": row["load"]} == row


def test_csv_has_mean_and_half_width_side_by_side(workload: Path) -> None:
    result = CliRunner().invoke(simulate, [str(workload), "--seed", "1,2", "--sweep", "train=1,10", "--format", "csv"])
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert list(rows[0])[:5] == ["policy", "train", "seeds", "results", "results_ci95"]
    assert len(rows) == 8
    table = CliRunner().invoke(simulate, [str(workload), "--seed", "1,2", "--policy", "hr"]).stdout
    assert "±" in table


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pdf", "svg"])
def test_a_figure_with_error_bars_is_the_same_bytes_each_time(workload: Path, tmp_path: Path, kind: str) -> None:
    def draw(name: str) -> bytes:
        arguments = ["--policy", "fcfs,hr", "--seed", "1-3", "--sweep", "load=0.5,0.9", "--plot", str(tmp_path / f"{name}.{kind}")]
        result = CliRunner().invoke(simulate, [str(workload), *arguments, "--measure", "response_ms_mean"])
        assert result.exit_code == 0, result.output
        return (tmp_path / f"{name}.{kind}").read_bytes()

    first = draw("one")
    assert draw("two") == first
    assert first.startswith(b"%PDF") if kind == "pdf" else b"mean response time, ms" in first


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--plot", "x.doc"], "end it in .svg, .pdf, .png"),
        (["--seed", "1,2", "--plot", "x.svg", "--measure", "beauty"], "no measure beauty; they are results, response_ms_mean"),
        (["--seed", "1,2", "--measure", "results"], "name a picture with --plot FILE"),
        (["--policy", "mine.py"], "a file of your own is user:file=mine.py"),
        (["--sweep", "lord=1"], "write one of load, train"),
        (["--seed", "one"], "write 1,2,3 or 1-10"),
    ],
)
def test_what_is_wrong_is_said_with_the_way_on(workload: Path, arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(simulate, [str(workload), "--policy", "hr", *arguments])
    assert result.exit_code == 1
    assert message in result.output


def test_a_wrong_measure_is_told_after_one_run(workload: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []
    right = RunOutcome.summary
    monkeypatch.setattr(RunOutcome, "summary", lambda self: runs.append(1) or right(self))
    result = CliRunner().invoke(simulate, [str(workload), "--policy", "hr,fcfs", "--seed", "1-3", "--plot", "x.svg", "--measure", "beauty"])
    assert "no measure beauty" in result.output
    assert len(runs) == 1


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("        return unit.height", "mine.py, line 3: a unit has no height; it has label, rows, wait_ns, output_per_tuple"),
        ("        return unit.label.height", "mine.py, line 3: AttributeError: 'str' object has no attribute 'height'"),
        ("        return 1 +", "mine.py, line 3: SyntaxError: invalid syntax"),
        ("        return 'soon'", "mine.py: ValueError: a unit was ranked with 'soon', which is not a number"),
    ],
)
def test_a_fault_in_a_policy_file_has_its_file_line_and_message(
    workload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    policy = Path("mine.py")
    policy.write_text(f"class Mine:\n    def rank(self, unit, now_ns):\n{body}\n")
    result = CliRunner().invoke(simulate, [str(workload), "--policy", f"user:file={policy}"])
    assert result.exit_code == 1
    assert message in result.output
    assert isinstance(result.exception, SystemExit)
