"""One world from its seed to its verdict, and the search for the shortest plan that still fails."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from millstream.client.errors import MillstreamError
from millstream.server import sweep

from tests.world.checker import Stored, check, stored
from tests.world.hub import NS_PER_S, Broken, Process
from tests.world.load import Load
from tests.world.machines import World, clear_away, world
from tests.world.plans import Step, conditions, plan
from tests.world.planted import PLANTS

SWEEPS = 7_200  # of the server's timer in a plan, at most: twenty a second in a short one, two in one of an hour
WORLD_S_MAX = 5 * 3600.0  # simulated; a plan has an hour at most

JOURNAL_BYTES_MAX = 8 * 1024  # far less than a user may say, so that segments go and checkpoints count
SETTINGS: dict[str, Any] = {"drain_s": 5.0, "ping_s": 5.0, "journal_kept_s": 1e8, "journal_bytes_max": JOURNAL_BYTES_MAX}


@dataclass
class Verdict:
    """What came of a world."""

    seed: int
    problems: list[str]
    digest: str
    simulated_s: float
    steps: int
    history: list[str] = field(default_factory=list)
    plan: list[Step] = field(default_factory=list)
    lives: int = 0
    shed_rows: int = 0
    shed_under: set[str] = field(default_factory=set)
    gaps: int = 0
    worker_deaths: int = 0

    @property
    def ok(self) -> bool:
        return not self.problems


def run(seed: int, steps: list[Step] | None = None, *, fault: str | None = None, length: int = 60, seconds: int = 40) -> Verdict:
    """Run the world of a seed, with the plan of that seed (`length` steps within so many seconds) or with other steps.

    `fault` is one of `planted.PLANTS`. In a long world the server looks around more seldom: that would be most of what happens there.
    """
    todo = plan(seed, length=length, seconds=seconds) if steps is None else steps
    sweep_s = max(sweep.SWEEP_S, seconds / SWEEPS)
    with mock.patch.object(sweep, "SWEEP_S", sweep_s):
        verdict = _run(seed, todo, nullcontext() if fault is None else PLANTS[fault]())
    clear_away()
    return verdict


def _run(seed: int, steps: list[Step], fault: AbstractContextManager[Any]) -> Verdict:
    with world(seed, conditions(seed), **SETTINGS) as made:
        load = Load(made, steps)
        try:
            problems = _problems(made, load, fault)
        except Broken:
            problems = []  # it stands among the faults
        except (AssertionError, MillstreamError) as error:
            problems = [f"{type(error).__name__}: {error}"]
        return _verdict(made, load, [*problems, *made.hub.faults])


def _problems(made: World, load: Load, fault: AbstractContextManager[Any]) -> list[str]:
    """Carry the plan out, stop the server, and check what is left; returns what is wrong. AssertionError when the world has no end."""

    async def main() -> None:
        await load.run()
        await load.close()

    with fault:
        made.run_clients(main, WORLD_S_MAX)
        made.stop()
        process = made.process
        assert process is not None
        if made.is_given_up:
            return []
        if not made.hub.run(lambda: not process.alive, 60 * NS_PER_S):
            return ["the server did not stop within 60 s"]
    found: list[Stored] = []
    reader = Process(made.hub, "reader").spawn(lambda: found.append(stored(made)))
    made.hub.run(lambda: reader.done, 60 * NS_PER_S)
    return check(made, load, found[0]) if found else ["the data directory cannot be read at the end"]


def _verdict(made: World, load: Load, problems: list[str]) -> Verdict:
    hub = made.hub
    different = list(dict.fromkeys(problems))
    found = Verdict(made.seed, different, hub.digest, hub.now_ns / NS_PER_S, hub.steps, hub.history, load.steps, made.lives)
    found.shed_rows, found.shed_under = made.watch.shed_rows, made.watch.shed_under
    found.worker_deaths = made.machine.deaths
    found.gaps = sum(one.lost for one in load.readings.values())
    return found


def shrink(
    seed: int,
    steps: list[Step],
    fails: Callable[[Verdict], bool] = lambda verdict: not verdict.ok,
    *,
    tries: int = 200,
    seconds: int = 40,
) -> Verdict:
    """Leave steps out while the world still fails; returns the last that did. `seconds`: of the whole plan, as `run` had it."""
    best = run(seed, steps, seconds=seconds)
    size = max(1, len(steps) // 2)
    while size and tries > 0:
        at = 0
        while at < len(best.plan) and tries > 0:
            tries -= 1
            fewer = [*best.plan[:at], *best.plan[at + size :]]
            verdict = run(seed, fewer, seconds=seconds)
            if fails(verdict):
                best = verdict
            else:
                at += size
        size //= 2
    return best
