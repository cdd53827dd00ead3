"""Experiments that were interrupted go on where they stopped, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from millstream.scheduler.experiments.frame import ExperimentCase
from millstream.scheduler.experiments.runner import ResultStore, run_cases

CASES = [
    ExperimentCase(
        "carney_runs:chains",
        {
            "policy": "round-robin",
            "applications": 5,
            "depth": 3,
            "cost_us": 100.0,
            "deadlines_ms": [10.0],
            "rate": 200.0,
            "tuples": tuples,
            "seed": 1,
        },
    )
    for tuples in (10, 20, 30, 40, 40_000, 50_000, 60_000)
]
QUICK = 4
PROGRAM = """
import sys
from pathlib import Path
from tests.simulation.test_resuming import CASES
from millstream.scheduler.experiments.runner import ResultStore, run_cases

if __name__ == "__main__":
    run_cases(CASES, ResultStore(Path(sys.argv[1])), processes=2)
"""
PATIENCE_S = 60.0


def children_of(parent: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended meanwhile
            if int(fields[1]) == parent and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def wait_until(holds: object, what: str) -> None:
    assert callable(holds)
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until, what
        time.sleep(0.05)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_a_run_ended_in_its_middle_leaves_no_process_and_is_not_repeated(tmp_path: Path, how: signal.Signals) -> None:
    folder, program = tmp_path / "runs", tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    running = subprocess.Popen([sys.executable, str(program), str(folder)], env=environment, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: len(list(folder.glob("*.json"))) >= QUICK, "the quick cases were not kept")
        workers = children_of(running.pid)
    finally:
        running.send_signal(how)
        running.wait(PATIENCE_S)
    assert len(workers) >= 2
    wait_until(lambda: not any(Path("/proc", str(one), "exe").exists() for one in workers), "workers outlived the run")
    kept = {path: path.stat().st_mtime_ns for path in folder.glob("*.json")}
    assert QUICK <= len(kept) < len(CASES)
    ran: list[ExperimentCase] = []
    run_cases(CASES[:QUICK], ResultStore(folder), progress=lambda done, total, case: ran.append(case))
    assert not ran
    assert {path: path.stat().st_mtime_ns for path in folder.glob("*.json")} == kept


def test_a_result_that_was_cut_off_is_made_anew_and_a_part_that_nobody_writes_any_more_goes(tmp_path: Path) -> None:
    run_cases(CASES[:2], ResultStore(tmp_path))
    first, second = sorted(tmp_path.glob("*.json"))
    whole = first.read_text()
    first.write_text(whole[: len(whole) // 2])
    lost, written = tmp_path / "lost.999999999.part", tmp_path / f"written.{os.getpid()}.part"
    lost.write_text("{")
    written.write_text("{")
    ran: list[ExperimentCase] = []
    run_cases(CASES[:2], ResultStore(tmp_path), progress=lambda done, total, case: ran.append(case))
    assert len(ran) == 1
    assert first.read_text() == whole
    assert second.is_file()
    assert not lost.exists()
    assert written.exists()
