"""The whole server in a simulated world of faults: whatever happens by seed, the contract is kept, and a seed is one history."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from millstream.client.connection import AsyncClient
from millstream.client.subscriber import Subscription
from millstream.engine.flow.running import RunningOperator
from millstream.engine.runtime.executor import Executor
from millstream.scheduler.core import SchedulerCore
from millstream.server.app import Application
from millstream.server.durability.recovery import Recovery
from millstream.server.journal.journal import Journal
from millstream.server.net.session import Session
from millstream.server.results.subscriptions import Feed
from millstream.server.sweep import Sweep
from millstream.server.workers.desk import Desk
from millstream.server.workers.operators import Placed

from tests.world import machines
from tests.world.plans import Step
from tests.world.runs import run, shrink

ROOT = Path(__file__).parents[2]
SEEDS = [*range(24), 26, 46, 56]  # `make faults` has more; those of the planted faults are among these
BLOCK = 6
DIGEST = "import sys; from tests.world.runs import run; v = run(int(sys.argv[1])); print(v.digest, v.steps, v.problems)"


def digest_of(seed: int, hash_seed: int) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    command = [sys.executable, "-c", DIGEST, str(seed)]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("seed", [5, 13])
def test_a_seed_is_one_history_whatever_the_hashes(seed: int) -> None:
    assert digest_of(seed, 1) == digest_of(seed, 4242) != ""


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("seeds", [",".join(map(str, SEEDS[at : at + BLOCK])) for at in range(0, len(SEEDS), BLOCK)])
def test_worlds_keep_the_contract(seeds: str) -> None:
    """In processes of their own: what counts lines while tests run makes worlds several times slower."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.world", seeds, "--quiet", "--whole"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.slow
def test_a_failing_world_is_shrunk_to_what_makes_it_fail() -> None:
    steps = [Step(500 + 40 * i, "publish", ("p0", "a", 1, False)) for i in range(8)]
    steps += [Step(700, "show", ("SHOW STREAMS",)), Step(710, "wrong", ("SHOW QUERIES",)), Step(760, "policy", ("hr",))]
    verdict = shrink(3, sorted(steps, key=lambda step: step.at_ms))
    assert [str(step).split(None, 2)[2] for step in verdict.plan] == ["wrong SHOW QUERIES"]
    assert verdict.problems == ["'SHOW QUERIES' was accepted"]


def test_a_query_that_began_anew_where_a_checkpoint_stands_does_not_go_on_with_what_that_has_of_its_former_run() -> None:
    steps = [
        Step(754, "create", ("kept3", 9)),
        Step(1895, "subscribe", ("s4", "kept3", 300)),
        Step(8874, "publish", ("p2", "t", 60, False)),
        Step(10017, "burst", ("p1", "a", 2)),
        Step(12135, "checkpoint"),
        Step(14886, "restart_query", ("kept3",)),
        Step(29807, "stop"),
    ]
    verdict = run(41, steps)
    assert verdict.ok, verdict.problems


@pytest.mark.slow
def test_nothing_changes_for_clients_whose_servers_workers_die() -> None:
    verdict = run(9)
    assert verdict.ok, verdict.problems
    assert verdict.worker_deaths > 1


PLACES: list[tuple[Any, str, str]] = [
    (Desk, "_answered", "thread worker10"),
    (RunningOperator, "begin", "query_failed: "),
    (Executor, "run", "query_failed: "),
    (Placed, "note", "query_ended: "),
    (SchedulerCore, "_take_arrived", "fatal: the scheduler thread ended: "),
    (Journal, "_force_once", "thread server1/journal died: "),
    (Recovery, "run", "thread server1/main died: "),
    (Session, "bytes_read", "callback_failed: "),
    (Session, "is_overdue", "fault: "),
    (Application, "session_ended", "callback_failed: "),
    (Sweep, "_pass_time", "callback_failed: "),
    (Feed, "join", "request_failed: "),
    (machines, "answer_of", "request_failed: "),
    (Subscription, "next_item", "client: "),
    (AsyncClient, "publish", "client: "),
]
"""Something on each thread, and how a world tells of an exception there."""

WORLDS = (9, 11)  # one with workers, one with FETCH


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of clients that were waiting when the world ended
@pytest.mark.parametrize(("owner", "name", "told"), PLACES, ids=[name for _, name, _ in PLACES])
def test_a_world_ends_at_its_first_exception_on_whatever_thread(owner: Any, name: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(*given: Any, **named: Any) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(owner, name, raising)
    verdict = next(verdict for verdict in map(run, WORLDS) if not verdict.ok)
    assert verdict.problems[0].startswith(told)
    assert "planted" in verdict.problems[0]
    assert verdict.simulated_s < 90


@pytest.mark.slow
@pytest.mark.parametrize("seed", [47, 59])
def test_a_world_with_too_much_work_sheds_and_tells_readers_what_they_lose(seed: int) -> None:
    verdict = run(seed)
    assert verdict.ok, verdict.problems
    assert verdict.shed_under
    assert verdict.gaps > 0
