"""One world from its seed to its verdict, and the search for the shortest plan that still fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.world.checker import Stored, check, stored
from tests.world.hub import NS_PER_S, Stuck
from tests.world.load import Load
from tests.world.machines import World, clear_away, world
from tests.world.plans import Step, plan

SETTINGS: dict[str, Any] = {"drain_s": 5.0, "ping_s": 5.0, "journal_kept_s": 1e8}


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

    @property
    def ok(self) -> bool:
        return not self.problems


def run(seed: int, steps: list[Step] | None = None, **how: Any) -> Verdict:
    """Run the world of a seed, with the plan of that seed or a part of it."""
    verdict = _run(seed, plan(seed, **how) if steps is None else steps)
    clear_away()
    return verdict


def _run(seed: int, steps: list[Step]) -> Verdict:
    with world(seed, **SETTINGS) as made:
        load = Load(made, steps)
        problems: list[str] = []
        found: list[Stored] = []

        async def main() -> None:
            try:
                await load.run()
            finally:
                await load.close()

        try:
            made.run_clients(main, 3600.0 * 5)
        except (AssertionError, Stuck) as error:
            problems.append(f"{type(error).__name__}: {error}")
        else:
            process = made.process
            made.stop()
            assert process is not None
            if made.is_given_up:
                return _verdict(made, load, made.hub.faults)
            if not made.hub.run(lambda: not process.alive, 60 * NS_PER_S):
                problems.append("the server did not stop within 60 s")
            else:
                reader = _in_strand(made, lambda: found.append(stored(made)))
                made.hub.run(lambda: reader.done, 60 * NS_PER_S)
        if not problems:
            problems = check(made, load, found[0] if found else None)
            if not found:
                problems.append("the data directory cannot be read at the end")
        else:
            problems += made.hub.faults
        return _verdict(made, load, problems)


def _verdict(made: World, load: Load, problems: list[str]) -> Verdict:
    hub = made.hub
    different = list(dict.fromkeys(problems))
    return Verdict(made.seed, different, hub.digest, hub.now_ns / NS_PER_S, hub.steps, hub.history, load.steps, made.lives)


def _in_strand(made: Any, call: Callable[[], Any]) -> Any:
    from tests.world.hub import Process

    return Process(made.hub, "reader").spawn(call)


def shrink(seed: int, steps: list[Step], fails: Callable[[Verdict], bool] = lambda verdict: not verdict.ok, tries: int = 200) -> Verdict:
    """Leave steps out while the world still fails; returns the last that did."""
    best = run(seed, steps)
    size = max(1, len(steps) // 2)
    while size and tries > 0:
        at = 0
        while at < len(best.plan) and tries > 0:
            tries -= 1
            fewer = [*best.plan[:at], *best.plan[at + size :]]
            verdict = run(seed, fewer)
            if fails(verdict):
                best = verdict
            else:
                at += size
        size //= 2
    return best
