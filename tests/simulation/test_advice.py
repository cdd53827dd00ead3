"""Advice about policies: what is clearly better is proposed, what is within noise is not, and the order of the question says nothing."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from millstream.engine.data.graph import LogId
from millstream.scheduler.advice import advisor, candidates, loads
from millstream.scheduler.advice.advisor import CHECK_SEEDS, TrialBench, advise, one_by_one, query_p99s_ms
from millstream.scheduler.advice.judging import MORE_LOAD, OBJECTIVES, RESULTS_MIN, Trial, TrialResult, judge
from millstream.scheduler.errors import PolicyError, SchedulerError, SimulationError
from millstream.scheduler.simulation.simulate import simulate
from millstream.scheduler.simulation.simulate_command import read_input
from millstream.scheduler.simulation.workloads import Workload
from millstream.scheduler.spec import PolicySpec

# Under fcfs the cheap queries wait for the dear ones.
CLEAR = """
name = "cheap beside dear"
utilisation = {utilisation}
[stream.s]
rate = 200
count = {count}
[[query]]
name = "cheap"
copies = 6
boxes = [ {{ name = "c", input = "s", cost_us = 20, selectivity = 0.9 }} ]
[[query]]
name = "dear"
copies = 2
boxes = [ {{ name = "d", input = "s", cost_us = 900, selectivity = 0.02 }} ]
"""
POLICIES = ("fcfs", "hnr", "round-robin")


def file_of(folder: Path, utilisation: float = 0.9, count: int = 250) -> Path:
    path = folder / "load.toml"
    path.write_text(CLEAR.format(utilisation=utilisation, count=count))
    return path


def ask(path: Path, policies: Sequence[str] = POLICIES, **options: Any) -> dict[str, Any]:
    return advise(path, clock=lambda: 0.0, policies=policies, objective=options.pop("objective", "slowdown"), **options)


# ---- the whole way


def test_a_policy_that_is_clearly_better_is_proposed_in_whatever_order_policies_are_named(tmp_path: Path) -> None:
    path = file_of(tmp_path)
    first, *others = (ask(path, order) for order in list(itertools.permutations(POLICIES))[::3])
    assert first["proposed"]["policy"].startswith("hnr")
    assert not first["keep"]
    assert first["present"] == "fcfs"
    gain = first["proposed"]["gain"]
    assert gain["share"] - gain["ci95"] > 0.5
    assert gain["present"] > 2 * gain["proposed"]
    assert first["proposed"]["gain_at_more_load"]["share"] > 0.5
    assert all(other == first for other in others)


def test_at_rest_the_present_policy_is_kept(tmp_path: Path) -> None:
    for objective in ("p99", "slowdown"):
        found = ask(file_of(tmp_path, utilisation=0.01, count=200), objective=objective)
        assert found["keep"], found
        assert "noise" in found["reason"] or "nobody notices" in found["reason"]


def test_when_time_runs_out_it_says_what_was_not_tried_and_proposes_nothing_unchecked(tmp_path: Path) -> None:
    path, now = file_of(tmp_path, count=200), itertools.count()
    found = advise(path, clock=lambda: float(next(now)), policies=POLICIES, objective="slowdown", minutes=0.1)
    assert found["skipped"] > 0
    assert found["keep"]
    assert "no time" in found["reason"]


@pytest.mark.process
def test_the_command_gives_the_same_advice_with_processes_beside_one_another(tmp_path: Path) -> None:
    path = file_of(tmp_path, count=150)
    arguments = ["advise", str(path), "--policy", "hnr,fcfs", "--objective", "slowdown", "--processes", "2", "--minutes", "60"]
    code = "from millstream.client.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, *arguments, "--format", "json"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ask(path, ("fcfs", "hnr"))
    assert done.stderr == ""  # progress is for terminals


def test_progress_tells_of_each_step_to_its_end(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    ask(file_of(tmp_path, count=60), ("fcfs",), progress=lambda what, done, of: told.append((what, done, of)))
    assert [what for what, done, of in told if done == of] == ["policies", "options", "checks"]


def test_what_cannot_be_judged_is_refused(tmp_path: Path) -> None:
    path = file_of(tmp_path)
    with pytest.raises(SimulationError, match="no objective speed"):
        ask(path, objective="speed")
    with pytest.raises(PolicyError, match="unknown policy 'best'"):
        ask(path, ("best",))
    with pytest.raises(PolicyError, match="cannot be simulated"):
        ask(path, present="user:file=nowhere.py")
    empty = tmp_path / "empty.recording"
    empty.write_text('{"recording": 1}\n')
    with pytest.raises(SchedulerError, match="holds no query"):
        ask(empty)


def test_a_file_that_a_recording_names_is_not_run(tmp_path: Path) -> None:
    code = tmp_path / "policy.py"
    code.write_text(f"open({str(tmp_path / 'was_run')!r}, 'w')")
    work, _ = read_input(file_of(tmp_path), 1)
    path = tmp_path / "some.recording"
    from millstream.scheduler.simulation.recording import Recording, save

    save(Recording(list(work.deltas), dict(work.arrivals), about={"policy": f"user:file={code}"}), path)
    with pytest.raises(PolicyError, match="--present"):
        ask(path)
    assert not (tmp_path / "was_run").exists()


# ---- what is tried


def test_every_policy_of_the_table_can_be_tried_save_files() -> None:
    names = candidates.names(())
    assert "user" not in names
    assert {"fcfs", "hnr", "cqc", "superbox", "bsd-naive"} <= set(names)
    specs = candidates.grid(names, shares=True, classes=True)
    assert {spec.name for spec in specs} == set(names)
    assert {"hnr:level=operator", "hnr:sharing=pdt", "superbox:traversal=min-memory", "cqc:inner=fcfs"} <= set(map(str, specs))
    assert [bool(spec.options) for spec in specs] == sorted(bool(spec.options) for spec in specs)
    fewer = set(map(str, candidates.grid(names, shares=False, classes=False)))
    assert not any("sharing" in one or one.startswith("cqc") for one in fewer)
    assert candidates.names(["bsd", "hnr"]) == ["bsd-naive", "hnr"]


def test_around_a_policy_are_the_options_that_all_have_unless_it_says_them() -> None:
    assert [str(one) for one in candidates.around(PolicySpec.parse("hnr"))] == ["hnr:train=1", "hnr:train=all", "hnr:schedule=1"]
    assert [str(one) for one in candidates.around(PolicySpec.parse("hnr:quantum=2"))] == ["hnr:quantum=2,schedule=1"]


# ---- what it is tried on


def work_of(*columns: Sequence[int]) -> Workload:
    return Workload("w", (), {LogId(number): np.array(sorted(column), np.int64) for number, column in enumerate(columns)})


@given(st.lists(st.integers(0, 10_000_000), min_size=1, max_size=300), st.integers(1, 400), st.integers(1, 9))
def test_a_sample_has_no_more_rows_than_it_may_and_its_times_rise(times: list[int], rows_max: int, seed: int) -> None:
    work = work_of(times, [0, 5_000_000])
    found = loads.sampled(work, rows_max, seed)
    assert 0 < found.tuples <= max(rows_max, 1)
    for column in found.arrivals.values():
        assert (np.diff(column) >= 0).all()
    assert found.span_ns <= work.span_ns + loads.STRETCHES
    again = loads.sampled(work, rows_max, seed)
    assert all((again.arrivals[log] == column).all() for log, column in found.arrivals.items())
    if seed == 1 and rows_max >= work.tuples:
        assert found is work


def test_the_busiest_stretch_is_in_every_sample() -> None:
    times = [*range(0, 240_000, 100), *(120_500 + one for one in range(300))]
    work = work_of(times)
    for seed in (1, 2, 3):
        found = loads.sampled(work, 600, seed)
        gaps = np.diff(found.arrivals[LogId(0)])
        assert np.count_nonzero(gaps == 1) >= 290


def test_a_load_that_is_faster_has_the_same_rows_in_less_time() -> None:
    work = work_of([0, 600, 1_200])
    assert loads.faster(work, MORE_LOAD).arrivals[LogId(0)].tolist() == [0, 500, 1_000]
    assert loads.faster(work, 1.0) is work


def test_the_queries_that_take_most_of_the_time_are_what_may_be_set_apart(tmp_path: Path) -> None:
    work, _ = read_input(file_of(tmp_path), 1)
    heavy = loads.heavy_queries(work)
    assert heavy == ("dear.1", "dear.2")
    apart = loads.set_apart(work, heavy)
    classes = {delta.query.name: int(delta.query.class_id) for delta in apart.deltas}
    assert {name for name, one in classes.items() if one != classes["cheap.1"]} == set(heavy)
    assert loads.has_classes(apart)
    assert loads.heavy_queries(apart) == ()  # whoever has classes has set apart what is to be
    assert not loads.shares_operators(work)
    assert len(simulate(apart, "cqc:inner=hnr").query) == len(simulate(work, "hnr").query)


# ---- what runs say


def runs(policy: str, values: Sequence[float], more: Sequence[float] | None = None, name: str = "response_ms_p99") -> list[TrialResult]:
    found = []
    for load, column in ((1.0, values), (MORE_LOAD, more or values)):
        for seed, value in zip(CHECK_SEEDS, column, strict=False):
            measures = {one.name: 10.0 for one in OBJECTIVES.values()}
            measures |= {"response_ms_mean": 5.0, "response_ms_max": 90.0, "slowdown_max": 7.0, "results": 1_000.0, name: value}
            found.append(TrialResult(Trial(policy, seed, load), measures, {"q": value}))
    return found


PRESENT = runs("fcfs", (10.0, 11.0, 12.0, 11.0, 10.0))


def test_a_gain_beyond_noise_is_proposed_with_its_interval() -> None:
    found = judge("p99", "fcfs", [], [*PRESENT, *runs("hnr", (5.0, 5.5, 6.0, 5.5, 5.0))])
    assert found.proposed is not None
    assert found.proposed.policy == "hnr"
    assert (found.proposed.gain.share, found.proposed.gain.ci95) == (pytest.approx(0.5), pytest.approx(0.0))
    assert found.present_value == pytest.approx(10.8)


@pytest.mark.parametrize(
    ("values", "more", "why"),
    [
        ((9.8, 10.8, 11.8, 10.8, 9.8), None, "within noise"),
        ((2.0, 21.0, 2.0, 21.0, 2.0), None, "within noise"),
        ((5.0, 5.5, 6.0, 5.5, 5.0), (30.0, 33.0, 36.0, 33.0, 30.0), "a fifth more"),
    ],
)
def test_what_is_within_noise_or_lost_under_more_load_is_not(values: Sequence[float], more: Sequence[float] | None, why: str) -> None:
    found = judge("p99", "fcfs", [], [*PRESENT, *runs("hnr", values, more)])
    assert found.proposed is None
    assert why in found.reason


def test_what_nobody_notices_is_not_proposed() -> None:
    found = judge("p99", "fcfs", [], [*runs("fcfs", (0.2,) * 5), *runs("hnr", (0.1,) * 5)])
    assert found.proposed is None
    assert "nobody notices" in found.reason


def test_of_few_results_nothing_follows() -> None:
    both = [*PRESENT, *runs("hnr", (1.0,) * 5)]
    few = [TrialResult(one.trial, {**one.measures, "results": RESULTS_MIN - 1.0}) for one in both]
    assert judge("p99", "fcfs", [], both).proposed is not None
    found = judge("p99", "fcfs", [], few)
    assert found.proposed is None
    assert "too few" in found.reason


def test_more_utility_is_better_and_less_of_it_could_get_worse() -> None:
    better = [*runs("fcfs", (0.5,) * 5, name="utility_per_application"), *runs("hnr", (0.9,) * 5, name="utility_per_application")]
    found = judge("utility", "fcfs", [], better)
    assert found.proposed is not None
    assert found.proposed.gain.share == pytest.approx(0.8)
    back = judge("utility", "hnr", [], better)
    assert back.proposed is None


def test_what_could_get_worse_is_told_measures_and_queries() -> None:
    slow = [TrialResult(one.trial, {**one.measures, "response_ms_max": 300.0}, {"q": 40.0, "fast": 1.0}) for one in runs("hnr", (5.0,) * 5)]
    found = judge("p99", "fcfs", [], [*PRESENT, *slow])
    assert found.proposed is not None
    assert [(one.measure, one.present, one.proposed) for one in found.proposed.worse] == [("response_ms_max", 90.0, 300.0)]
    assert [(one.query, one.proposed_ms) for one in found.proposed.slower] == [("q", 40.0)]


def test_of_two_that_gain_as_much_the_simpler_is_proposed_and_a_much_better_one_before_it() -> None:
    alike = [*PRESENT, *runs("hnr:level=operator", (5.0,) * 5), *runs("hnr", (5.1,) * 5)]
    assert judge("p99", "fcfs", [], alike).proposed.policy == "hnr"  # type: ignore[union-attr]
    better = [*PRESENT, *runs("hnr:level=operator", (2.0,) * 5), *runs("hnr", (5.1,) * 5)]
    assert judge("p99", "fcfs", [], better).proposed.policy == "hnr:level=operator"  # type: ignore[union-attr]


def test_queries_are_set_apart_only_where_that_gains_more_than_a_policy_alone() -> None:
    plain = runs("hnr", (5.0,) * 5)
    for value, wanted in ((4.9, False), (1.0, True)):
        apart = [TrialResult(Trial("cqc:inner=hr", r.trial.seed, r.trial.load, ("q",)), r.measures) for r in runs("cqc", (value,) * 5)]
        found = judge("p99", "fcfs", [], [*PRESENT, *plain, *apart])
        assert found.proposed is not None
        assert found.proposed.policy == "hnr"
        assert (found.apart is not None) == wanted


@given(st.randoms(use_true_random=False))
def test_the_order_of_runs_says_nothing(choice: Any) -> None:
    screened = [one for name in ("hnr", "hr", "edf") for one in runs(name, (float(len(name)),))[:1]]
    checked = [*PRESENT, *runs("hnr", (5.0,) * 5), *runs("hr", (5.0,) * 5)]
    first = judge("p99", "fcfs", screened, checked)
    choice.shuffle(screened)
    choice.shuffle(checked)
    assert judge("p99", "fcfs", screened, checked) == first


def test_a_policy_that_fails_is_told_of_and_the_others_go_on() -> None:
    screened = [TrialResult(Trial("hnr"), {}, failure="it is not ready"), *runs("hr", (5.0,))[:1]]
    found = judge("p99", "fcfs", screened, [*PRESENT, *runs("hr", (5.0,) * 5)])
    assert found.failed == (("hnr", "it is not ready"),)
    assert found.tried == (("hr", 5.0),)
    assert found.proposed is not None


def test_each_querys_percentile_is_that_of_its_own_results(tmp_path: Path) -> None:
    outcome = simulate(read_input(file_of(tmp_path), 1)[0], "fcfs")
    found = query_p99s_ms(outcome)
    for index, query in enumerate(outcome.queries):
        own = outcome.response_ns[outcome.query == index] / 1e6
        assert (query.name in found) == (len(own) > 0)
        if len(own):
            assert found[query.name] == pytest.approx(np.percentile(own, 99))


def test_trials_stop_at_the_time_and_a_bench_keeps_little(tmp_path: Path) -> None:
    bench, now = TrialBench(str(file_of(tmp_path, count=50))), iter(range(10))
    trials = [Trial("fcfs", seed) for seed in range(1, 6)]
    assert len(list(one_by_one(bench, lambda: float(next(now)), trials, 100, 2.0))) == 3
    assert len(advisor._LOADS) <= advisor._LOADS_KEPT
