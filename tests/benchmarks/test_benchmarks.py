"""Every benchmark runs in quick mode and checks its answer; the command says what moved."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import click
import pytest
from millstream.client.benchmarks import chain_workload, figures
from millstream.client.benchmarks.kit import Kit, WrongAnswer
from millstream.client.cli import run
from millstream.client.commands.bench import chosen_of

# Those of Spark take minutes: `make cluster` runs it.
NAMES = sorted(entry.name for entry in entry_points(group="millstream.benchmarks") if not entry.name.startswith("spark"))
KNOWN_KEYS = {
    *figures.IDENTITY, *figures.GREATER, *figures.SMALLER, "reference_rows_per_s", "cpu_s", "noise", "target_ms", "loss_percent",
    "frames_per_s", "rows", "ns_each", "decisions", "orders", "order_us", "groups", "panes", "bytes_per_group", "counted_per_row",
    "recovery_s", "sent_late_p99_ms", "copy_ms", "possible_rows_per_s", "front_ns_each", "workers_ns_each",
    "latency_p99_ms", "response_last_ms", "response_ms", "loss_start_percent", "round", "quota", "sum_of_loads", "processors",
    "machine_load", "load", "p99_first_second_ms", "p99_then_ms", "alone_s", "seconds", "in_time", "sent_per_s", "toll_p99_s", "toll_max_s",
    "accident_max_s", "balance_max_s", "expenditure_max_s", "sent_late_s", "cpu_share", "l_rating",
}  # fmt: skip
MAY_BE_NOTHING = {"noise", "cpu_s", "loss_percent", "loss_start_percent", "recovery_s", "quota", "machine_load"}


def lines_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert run(["bench", *arguments, "--quick", "--format", "json"]) == 0, capsys.readouterr().err
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_gives_figures_and_its_answer_is_right(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = lines_of(capsys, name)
    assert lines
    for line in lines:
        assert line["name"].partition("-")[0] == name.partition("-")[0]
        assert set(line) <= KNOWN_KEYS
        nothing = [key for key, value in line.items() if isinstance(value, float) and value <= 0 and key not in MAY_BE_NOTHING]
        assert nothing == []


def test_growth_curves_are_drawn_from_figures_and_nothing_from_others(tmp_path: Path) -> None:
    lines = [{"name": "growth-queries", "queries": n, "ns_each": 20.0} for n in (100, 1)]
    assert figures.points_of(lines, figures.CURVES[0]) == [(1.0, 20.0), (100.0, 20.0)]
    figures.draw(lines, tmp_path / "growth.svg")
    assert "a row and query" in (tmp_path / "growth.svg").read_text()
    with pytest.raises(click.ClickException, match="no growth curves"):
        figures.draw([{"name": "chain", "ns_each": 1.0}], tmp_path / "none.svg")
    assert not (tmp_path / "none.svg").exists()


def test_a_wrong_answer_fails_however_fast(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    right = chain_workload.reference
    monkeypatch.setattr(chain_workload, "reference", lambda trains: [(ts, key + 1, price) for ts, key, price in right(trains)])
    assert run(["bench", "chain-engine", "--quick"]) == 1
    assert "answer is wrong: other rows than by hand" in capsys.readouterr().err


def test_an_unknown_benchmark_is_refused_with_the_names_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "speed"]) == 2
    assert "there is no benchmark speed; there are chain-engine, chain-tcp," in capsys.readouterr().err


def test_a_name_that_begins_others_stands_alone_as_its_own_process_asks_for_it() -> None:
    found = [EntryPoint(name, "a:b", "millstream.benchmarks") for name in ("chain-engine", "chain-tcp", "window", "window-tcp")]
    named = {name: [entry.name for entry in chosen_of(name, found)] for name in ("window", "window-tcp", "chain", "speed", "all")}
    everything = [entry.name for entry in found]
    assert named == {"window": ["window"], "window-tcp": ["window-tcp"], "chain": everything[:2], "speed": [], "all": everything}


def test_the_list_names_every_benchmark_with_what_it_measures(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "--list"]) == 0
    listed = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert [name for name, _ in listed] == sorted({*NAMES, "spark", "spark-growth"})


def test_figures_are_compared_with_those_recorded_by_what_they_are_of(tmp_path: Path) -> None:
    record = tmp_path / "figures.json"
    figures.write_record(record, [{"name": "chain", "train": 100, "rows_per_s": 10.0, "ratio": 0.5}, {"name": "wire", "rows_per_s": 5.0}])
    figures.write_record(record, [{"name": "wire", "rows_per_s": 8.0}])
    before = figures.read_record(record)
    assert [line["rows_per_s"] for line in before.values()] == [10.0, 8.0]
    slower = {"name": "chain", "train": 100, "rows_per_s": 1.0, "ratio": 0.3}
    assert figures.moved(slower, before[figures.identity(slower)]) == ["ratio 0.5 -> 0.3 (-40%, worse; noise 10%)"]
    assert figures.moved({"name": "wire", "rows_per_s": 8.5}, before[figures.identity({"name": "wire"})]) == []


def test_a_change_within_the_noise_of_both_has_not_moved() -> None:
    before = {"name": "latency", "p50_ms": 1.0, "noise": 0.2}
    assert figures.moved({"name": "latency", "p50_ms": 1.5, "noise": 0.1}, before) == []
    assert figures.moved({"name": "latency", "p50_ms": 1.7, "noise": 0.1}, before) != []


def test_both_are_run_in_turn_at_least_three_times() -> None:
    turns: list[str] = []
    timing = Kit(quick=True).alternate(lambda: turns.append("ours"), lambda: turns.append("reference"))
    assert turns == ["reference", "ours"] * (len(turns) // 2)
    assert len(turns) >= 8
    assert timing.ratio > 0


def test_what_does_not_hold_is_a_wrong_answer() -> None:
    with pytest.raises(WrongAnswer, match="a row is missing"):
        Kit(quick=True).require(False, "a row is missing")
