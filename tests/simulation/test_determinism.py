"""A simulation is a function of its seed: again, under another hash seed, and from its own story."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import pytest
from millstream.scheduler.core import CoreSettings, SchedulerCore
from millstream.scheduler.simulation.world import World
from millstream.scheduler.spec import PolicySpec
from millstream.scheduler.story import Story, chrome_trace
from millstream.scheduler.trains import TrainShape

from tests.support.random_networks import random_network

PROGRAM = """
import io, sys
from millstream.scheduler.catalog import CATALOG
from millstream.scheduler.core import CoreSettings
from tests.support.random_networks import random_network
from millstream.scheduler.simulation.world import World
from millstream.scheduler.trains import TrainShape
for policy in CATALOG:
    if policy == "user":
        continue
    for seed in range(3):
        network = random_network(seed)
        world = World(policy, network.deltas, builder=network.builder, settings=CoreSettings(2, train=TrainShape(count=2), record=True))
        for at_ns, source, rows in network.arrivals:
            world.arrive(source, at_ns, rows=rows)
        world.run()
        world.core.story.save(sys.stdout)
"""

EXPERIMENTS = """
import json
from millstream.scheduler.experiments.frame import (ExperimentCase)
network = {"applications": 6, "depth": 3, "cost_us": 100.0, "deadlines_ms": [10.0, 2000.0], "rate": 2500.0, "tuples": 200, "seed": 1}
cases = [
    ExperimentCase("sharaf_runs:grid", {"policy": "bsd-log", "load": 0.9, "seed": 1, "queries": 20, "tuples": 100, "traffic": "on-off"}),
    ExperimentCase("sharaf_runs:fresh", {"policy": "fas", "load": 0.95, "seed": 1, "queries": 20, "tuples": 40, "bursty": 5}),
    ExperimentCase("sharaf_runs:joins", {"policy": "hnr", "load": 0.7, "seed": 1, "queries": 4, "tuples": 30, "gap_s": 1.0}),
    ExperimentCase("pajjuri_runs:burst", {"policy": "segment", "window": 20, "windows": 5, "seed": 1, "quick": 100}),
    ExperimentCase("carney_runs:chains", {**network, "policy": "bucketing:schedule=5"}),
    ExperimentCase("carney_runs:chains", {**network, "policy": "slope-slack-push-through:schedule=5"}),
    ExperimentCase("carney_walks:memory", {"walk": "min-memory", "tuples": 100, "seed": 1}),
    ExperimentCase(
        "pham_runs:classes", {"load": "dilos", "rates": [[1300.0], [1500.0], [2600.0]], "seconds": 4.0, "slow": 20.0, "seed": 1}
    ),
]
for case in cases:
    print(json.dumps(case.run(), sort_keys=True))
"""


def outputs(program: str) -> list[bytes]:
    environments = [{**os.environ, "PYTHONHASHSEED": hash_seed} for hash_seed in ("1", "77")]
    command = [sys.executable, "-c", program]
    return [subprocess.run(command, capture_output=True, check=True, env=one, timeout=120).stdout for one in environments]


@pytest.mark.slow
def test_two_hash_seeds_give_the_same_bytes() -> None:
    first, second = outputs(PROGRAM)
    assert first == second
    assert len(first) > 100_000


@pytest.mark.slow
def test_two_hash_seeds_give_the_same_results_of_experiments() -> None:
    first, second = outputs(EXPERIMENTS)
    assert first == second
    assert first.count(b"\n") == 8


def told(policy: str, seed: int) -> tuple[Story, World, CoreSettings]:
    network = random_network(seed)
    settings = CoreSettings(2, train=TrainShape(count=2), record=True)
    world = World(policy, network.deltas, builder=network.builder, settings=settings)
    for at_ns, source, rows in network.arrivals:
        world.arrive(source, at_ns, rows=rows)
    world.run()
    assert world.core.story is not None
    return world.core.story, world, settings


@pytest.mark.parametrize("policy", ["hnr", "bsd-log", "bucketing", "segment", "round-robin"])
def test_a_story_replays_to_the_same_decisions(policy: str) -> None:
    story, world, settings = told(policy, 5)
    text = io.StringIO()
    story.save(text)
    again = SchedulerCore(PolicySpec.parse(policy), settings)
    for entry in Story.load(text.getvalue().splitlines()):
        assert tuple(again.handle(entry.events, entry.now_ns)) == entry.instructions
    assert again.statistics() == world.core.statistics()


@pytest.mark.parametrize(("policy", "term"), [("hnr", "normalized"), ("fcfs", "wait"), ("srpt", "ideal")])
def test_the_trace_says_why_a_unit_won(policy: str, term: str) -> None:
    numbers = {
        "normalized": lambda terms: terms["output_per_tuple"] / (terms["cost_to_end_ns"] * terms["ideal_time_ns"]),
        "wait": lambda terms: terms["wait_ns"],
        "ideal": lambda terms: 1 / terms["ideal_time_ns"],
    }
    story, _, _ = told(policy, 28)
    decisions = [event["args"] for event in chrome_trace(story)["traceEvents"] if event["name"].startswith("order ") and event["ph"] == "i"]
    assert all({"steps", "rank", "terms"} <= set(one) for one in decisions)
    contested = [one for one in decisions if "next_rank" in one]
    assert len(contested) > 20
    for one in contested:
        assert one["rank"] >= one["next_rank"]
        mine, theirs = numbers[term](one["terms"]), numbers[term](one["next_terms"])
        assert mine > theirs or mine == pytest.approx(theirs)


def test_a_turn_has_the_terms_and_no_number() -> None:
    story, _, _ = told("round-robin", 28)
    reasons = [reason for entry in story for reason in entry.reasons]
    assert reasons
    assert {reason.rank for reason in reasons} == {None}
    assert any(reason.rival is not None for reason in reasons)


def test_a_story_becomes_a_chrome_trace() -> None:
    story, world, _ = told("hnr", 5)
    trace = json.loads(json.dumps(chrome_trace(story)))
    spans = [event for event in trace["traceEvents"] if event["ph"] == "X" and event["tid"] == 2]
    assert len(spans) == world.core.statistics().steps
    assert sum(event["dur"] for event in spans) == pytest.approx(world.core.statistics().busy_ns / 1_000)
    assert {event["ph"] for event in trace["traceEvents"]} == {"M", "X", "i"}
