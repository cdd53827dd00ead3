"""`millstream simulate` prints the same bytes for the same seed, in every process, and says what is wrong in one sentence."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from millstream.scheduler.simulation.plots import Line, Panel, draw
from millstream.scheduler.simulation.simulate_command import RunProgress, blocks_of, simulate

from tests.simulation.test_workload_files import EXAMPLE

POLICIES = "round-robin,fcfs,hr,hnr,bsd-log,chain,slope-slack:schedule=10+train=all"


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    path = tmp_path / "sensors.toml"
    path.write_text("utilisation = 0.9\n" + EXAMPLE)
    return path


def test_json_gives_a_line_a_policy_with_every_measure(workload: Path) -> None:
    result = CliRunner().invoke(simulate, [str(workload), "--policy", POLICIES, "--seed", "4", "--format", "json"])
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["policy"] for row in rows] == [one.replace("+", ",") for one in POLICIES.split(",")]
    wanted = {
        "response_ms_mean",
        "response_ms_max",
        "response_ms_l2",
        "response_ms_p50",
        "response_ms_p95",
        "response_ms_p99",
        "slowdown_mean",
        "memory_bytes_max",
        "memory_bytes_mean",
        "utility_per_application",
        "throughput_per_s",
        "decision_share",
    }
    assert all(wanted <= set(row) for row in rows)
    assert len({row["results"] for row in rows}) == 1


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes_under_any_hash_seed(workload: Path) -> None:
    code = "import sys; from millstream.scheduler.simulation.simulate_command import simulate; sys.argv[0] = 'simulate'; simulate()"
    answers = [
        subprocess.run(
            [sys.executable, "-c", code, str(workload), "--policy", POLICIES, "--format", "csv"],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("0", "4711")
    ]
    assert answers[0] == answers[1]
    assert answers[0].count(b"\n") == 8


def test_another_seed_gives_other_outcomes(workload: Path) -> None:
    first, second = (CliRunner().invoke(simulate, [str(workload), "--seed", seed, "--format", "csv"]).stdout for seed in ("1", "2"))
    assert first != second


def test_the_table_has_a_line_a_policy(workload: Path) -> None:
    result = CliRunner().invoke(simulate, [str(workload), "--policy", "hr,hnr"])
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["policy", "hr", "hnr"]


def test_a_table_wider_than_the_terminal_goes_on_below() -> None:
    cells = [["policy", "load", "results", "p99"], ["hr", "0.5", "12 ±1", "3.5"], ["user:file=mine.py", "0.5", "12 ±1", "4.25"]]
    whole = ["policy             load  results   p99", "hr                  0.5    12 ±1   3.5", "user:file=mine.py   0.5    12 ±1  4.25"]
    assert [whole] == blocks_of(cells, 2, None) == blocks_of(cells, 2, 38)
    for width in (37, 1):
        assert [block[0] for block in blocks_of(cells, 2, width)] == ["policy             load  results", "policy             load   p99"]
        assert [block[2] for block in blocks_of(cells, 2, width)] == ["user:file=mine.py   0.5    12 ±1", "user:file=mine.py   0.5  4.25"]


@pytest.mark.slow
def test_a_plot_is_drawn(workload: Path, tmp_path: Path) -> None:
    picture = tmp_path / "p.svg"
    result = CliRunner().invoke(simulate, [str(workload), "--policy", "hr,hnr", "--plot", str(picture)])
    assert result.exit_code == 0, result.output
    assert "Response time" in picture.read_text()


def test_a_plot_of_many_policies_has_its_legend_beside_the_lines(tmp_path: Path) -> None:
    # A legend over the lines takes more room than there is, of which matplotlib warns: an error here.
    lines = [Line(f"superbox:traversal=min-cost,train={one}", [0, 1], [one, 1]) for one in range(40)]
    draw([Panel("Response time", "share", "ms", lines)], "many", tmp_path / "p.svg")
    assert "train=39" in (tmp_path / "p.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--policy", "best"], "unknown policy 'best'"), (["--train", "2.5"], "train '2.5'"), (["--policy", "hnr:level=box"], "level=box")],
)
def test_what_is_wrong_is_said_in_one_sentence(workload: Path, arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(simulate, [str(workload), *arguments])
    assert result.exit_code == 1
    assert message in result.output
    assert "Traceback" not in result.output


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_a_terminal_sees_which_run_is_under_way_and_the_line_goes(stream: type[io.StringIO]) -> None:
    written = stream()
    with RunProgress(2, written) as progress:
        run = progress.around(lambda policy, seed, value: {"seed": seed})
        assert run("hr", 7, None) == {"seed": 7}
        assert run("hnr", 7, 0.5) == {"seed": 7}
    first, second = "run 1 of 2: hr, seed 7", "run 2 of 2: hnr, seed 7, 0.5"
    shown = f"\r{first}\r{second}\r{' ' * len(second)}\r"
    assert written.getvalue() == (shown if stream is Terminal else "")
