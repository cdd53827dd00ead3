"""The experiments on the real engine: each way of running gives all results, judging says what the numbers say."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from millstream.engine.data.arrow import column_to_arrow
from millstream.scheduler import catalog
from millstream.scheduler.experiments import runner
from millstream.scheduler.experiments.frame import ExperimentCase
from millstream.scheduler.experiments.roster import load, names
from millstream.server.experiments import classes, golab, overhead, threads

LIVE = (
    "agreement-live", "c-10000-live", "c-overhead-live", "c-threads",
    "d-class-live", "d-common-live", "d-dilos-live", "d-none-live", "d-steps-live", "g-high-live", "g-low-live",
)  # fmt: skip


def test_threads_and_scheduler_run_the_same_chains_to_the_end() -> None:
    for told in (threads.threaded(3, 2), threads.scheduled(3, 2, 1), threads.scheduled(3, 2, 2)):
        assert told["operators"] == 15
        assert told["call_us"] > 0


def test_thread_per_operator_is_no_policy_and_the_daemon_does_not_even_load_it() -> None:
    assert not [name for name in catalog.CATALOG if "thread" in name]
    code = "import sys, millstream.server.app, millstream.server.live; print([m for m in sys.modules if 'experiments' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    root = Path(threads.__file__).parent.parent
    users = [p.name for p in root.rglob("*.py") if "experiments.threads" in p.read_text()]
    assert users == ["threads.py"]


@pytest.mark.parametrize("policy", ["round-robin:train=1,schedule=1", "superbox:traversal=min-cost,train=all,schedule=1"])
def test_trees_put_out_every_row_by_every_leaf(policy: str) -> None:
    told = overhead.trees(policy, 1, 2, 2, 3)
    assert told["deciding_ns"] > 0
    assert told["running_ns"] > 0
    assert overhead.applications("bucketing-push-through:schedule=10", 10, 2, 1)["operators"] == 10 * (2 + 1)


@pytest.mark.parametrize("policy", golab.POLICIES)
def test_golab_s_queries_run_over_real_synopses_under_every_policy(policy: str) -> None:
    told = golab.run(policy, 16, 50, 0.01, 1, 6, every_ns=20_000_000)
    assert told["throughput"] > 0
    assert told["latency"] >= 0
    assert 1 <= told["tasks"] <= 16


def test_one_pass_over_a_synopsis_answers_as_windows_one_by_one_do() -> None:
    machine = golab.Machine(16, 40, 0.01, 3)
    synopsis, (query, other, *_) = machine.synopses[0], machine.groups[0]
    slots = [synopsis._aggregates.table.slots[pane] for pane in synopsis._panes]
    for name in (query.name, other.name):
        accumulator = machine._accumulators[name]
        together = accumulator.answers(slots, [(w, golab._NOBODY) for w in (20, 35, 100)])
        apart = [accumulator.combine(slots[:w][::-1], golab._NOBODY) for w in (20, 35, 100)]
        for one, two in zip(together, apart, strict=True):
            assert column_to_arrow(one).equals(column_to_arrow(two))


def findings(name: str, results: Mapping[str, Mapping[str, Any]]) -> dict[str, bool]:
    def result(case: ExperimentCase) -> Mapping[str, Any]:
        return next(value for key, value in results.items() if key in case.key)

    found = load(name).judge("reduced", result)
    assert found.rows
    assert found.panels
    return {claim.text: claim.holds for claim in found.claims}


def test_judging_follows_the_numbers() -> None:
    spent = {"orders": 1, "steps": 1, "operators": 1}
    shares = {"bucketing": 4, "fixed": 7, "slope": 15}
    decided = {name: {"choosing_ns": share, "deciding_ns": share + 20, "running_ns": 80 - share, **spent} for name, share in shares.items()}
    assert all(findings("c-10000-live", decided).values())
    assert not all(findings("c-10000-live", {**decided, "slope": {**decided["slope"], "choosing_ns": 20}}).values())
    shown = {"tasks": 1, "interval_ms": 1.0}
    paper = {
        "golab-none": {"throughput": 1, "latency": 9, **shown},
        "conservative": {"throughput": 2, "latency": 8, **shown},
        "aggressive": {"throughput": 6, "latency": 3, **shown},
        '"hybrid"': {"throughput": 5, "latency": 1, **shown},
        '"hybrid-late"': {"throughput": 6, "latency": 0.5, **shown},
        "hybrid-late-pending": {"throughput": 11, "latency": 0.1, **shown},
    }
    for name in ("g-low-live", "g-high-live"):
        assert all(findings(name, paper).values())
        alike = findings(name, {key: {**value, "throughput": 5.0, "latency": 0.0} for key, value in paper.items()})
        assert not any(holds for text, holds in alike.items() if "doubles" in text or "tenfold" in text)
    growing = {'"chains": 1,': {"call_us": 10.0}, "threaded": {"call_us": 50.0}, "scheduled": {"call_us": 12.0}}
    assert all(findings("c-threads", growing).values())
    assert not any(findings("c-threads", {**growing, "scheduled": {"call_us": 60.0}}).values())


def test_live_experiments_are_listed_and_are_run_one_at_a_time_and_never_from_a_file(tmp_path: Path) -> None:
    assert names()[-len(LIVE) :] == LIVE
    cases = [case for name in LIVE for case in load(name).cases("reduced")]
    assert all(case.live for case in cases)
    assert not any(case.live for case in load("c-overhead").cases("reduced"))
    store = runner.ResultStore(tmp_path)
    store.put(cases[0], {"live_ms": 1.0})
    assert runner.ResultStore(tmp_path).get(cases[0]) is None
    assert store.get(cases[0]) == {"live_ms": 1.0}


def test_three_classes_run_on_the_engine_and_only_processor_time_counts() -> None:
    told = classes.classes("dilos", [[0.2], [0.2], [0.2]], 1.0, stepped=True)
    assert told["capacity"] > 1.0
    for one in told["classes"]:
        assert one["response_ms"] > 0.0
        assert one["loss"] == 0.0
        assert len(one["by_second"]["headroom"]) == 1
    assert sum(one["by_second"]["share"][0] for one in told["classes"]) == pytest.approx(1.0)
