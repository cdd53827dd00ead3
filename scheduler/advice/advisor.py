"""From a recording to an advice: try every policy on a part of the load that fits the time, then options of the best, then check the best.

1. `present` is run on a few rows, which tells how many rows the time allows.
2. Each policy, with each option of its own, under seed 1 (half of the time).
3. The best, with the options that all policies have.
4. The best three, and the present one, under five other seeds, at the recorded load and at 1.2 times of it.

Policies are tried in the order of the alphabet, so it does not matter in which order they are asked for. Time is an argument: whoever calls
brings a clock. With a clock that stands still everything is tried, and the same file gives the same advice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from millstream.scheduler.advice import candidates, loads
from millstream.scheduler.advice.judging import MORE_LOAD, Advice, Trial, TrialResult, judge, objective_of, ranking
from millstream.scheduler.errors import PolicyError, SchedulerError, SimulationError
from millstream.scheduler.simulation.outcome import RunOutcome
from millstream.scheduler.simulation.run_processes import RunProcesses
from millstream.scheduler.simulation.simulate import RunSettings, simulate
from millstream.scheduler.simulation.simulate_command import read_input, recorded_policy
from millstream.scheduler.simulation.workloads import Workload
from millstream.scheduler.spec import PolicySpec

ADVICE_VERSION = 1
ROWS_MIN = 1_000
ROWS_MAX = 100_000
"""Rows of a trial: more tell little more of a policy."""
NICENESS = 10  # a server on the same machine goes first
CHECK_SEEDS: tuple[int, ...] = (2, 3, 4, 5, 6)
_RUNS = 120  # of one advice, about
_SCREENING = 0.45  # of the time
_REFINING = 0.55
_BEST = 3
_REFINED = 4
_SEEDS_MIN = 3
_SLOWER_THAN_PRESENT = 3.0  # policies take on the average so many times as long to simulate as first-come first-served

Clock = Callable[[], float]
"""Returns a time in s that only grows."""

Progress = Callable[[str, int, int], None]
"""Is told what is done, how many runs of that have ended, and of how many."""

Runner = Callable[[Sequence[Trial], int, float], Iterator[TrialResult]]
"""Runs trials on so many rows until a time of the clock; yields results as they come, in any order."""


@dataclass(frozen=True)
class TrialBench:
    """Runs trials on a file. It can be sent to another process, and keeps what it has read there."""

    path: str

    def run(self, trial: Trial, rows_max: int) -> TrialResult:
        """Return what a run gave; what the policy cannot do is its failure."""
        work, settings = self.load(trial, rows_max)
        try:
            outcome = simulate(work, trial.policy, seed=trial.seed, settings=settings)
        except SchedulerError as problem:
            return TrialResult(trial, {}, failure=problem.message)
        return TrialResult(trial, outcome.summary(), query_p99s_ms(outcome))

    def load(self, trial: Trial, rows_max: int) -> tuple[Workload, RunSettings]:
        """Return the load of a trial, and under what conditions it is decided."""
        key = (self.path, rows_max, trial.seed, trial.load, trial.apart)
        if key not in _LOADS:
            while len(_LOADS) >= _LOADS_KEPT:
                _LOADS.pop(next(iter(_LOADS)))
            work, settings = self.whole()
            part = loads.faster(loads.sampled(work, rows_max, trial.seed), trial.load)
            _LOADS[key] = loads.set_apart(part, trial.apart), settings
        return _LOADS[key]

    def whole(self) -> tuple[Workload, RunSettings]:
        """Return all that was recorded."""
        if self.path not in _READ:
            _READ.clear()
            _READ[self.path] = read_input(Path(self.path), 1)
        return _READ[self.path]


_LOADS_KEPT = 2
_LOADS: dict[tuple[Any, ...], tuple[Workload, RunSettings]] = {}
_READ: dict[str, tuple[Workload, RunSettings]] = {}


def query_p99s_ms(outcome: RunOutcome) -> dict[str, float]:
    """Return the 99th percentile of the response time in ms, of each query that has results."""
    order = np.argsort(outcome.query, kind="stable")
    queries, response = outcome.query[order], outcome.response_ns[order] / 1e6
    begins = np.flatnonzero(np.diff(queries, prepend=-1))
    parts = np.split(response, begins[1:])
    return {outcome.queries[int(queries[at])].name: float(np.percentile(part, 99)) for at, part in zip(begins, parts, strict=True)}


def one_by_one(bench: TrialBench, clock: Clock, trials: Sequence[Trial], rows_max: int, until_s: float) -> Iterator[TrialResult]:
    """Run trials in this process."""
    for trial in trials:
        if clock() > until_s:
            return
        yield bench.run(trial, rows_max)


def beside_one_another(
    pool: RunProcesses, bench: TrialBench, clock: Clock, trials: Sequence[Trial], rows_max: int, until_s: float
) -> Iterator[TrialResult]:
    """Run trials in processes, as many as there are; one that has not ended in time is given up, and in the end its process with it."""
    left, waiting = iter(trials), set[Future[TrialResult]]()
    while True:
        waiting |= {pool.submit(bench.run, trial, rows_max) for trial in islice(left, pool.count - len(waiting))}
        if not waiting:
            return
        done, waiting = wait(waiting, max(0.0, until_s - clock()), FIRST_COMPLETED)
        for future in done:
            yield future.result()
        if clock() > until_s:
            pool.is_late = pool.is_late or bool(waiting)
            return


def advise(
    path: Path,
    *,
    clock: Clock,
    objective: str = "p99",
    present: str | None = None,
    policies: Sequence[str] = (),
    minutes: float = 3.0,
    processes: int = 1,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Return what to do about the load of a recording or workload, as plain data that JSON can hold (docs/advisor.md).

    `present` is the policy in force, in place of the recording's. Raises SimulationError for a file or objective that will not do, and
    PolicyError for a policy that cannot be simulated.
    """
    objective_of(objective)  # what is wrong with the question is told before processes are started
    candidates.names(policies)
    bench = TrialBench(str(path))
    if processes == 1:
        return Advisor(bench, partial(one_by_one, bench, clock), clock, objective, progress).advise(present, policies, minutes, 1)
    with RunProcesses(processes, NICENESS) as pool:
        runner = partial(beside_one_another, pool, bench, clock)
        found = Advisor(bench, runner, clock, objective, progress).advise(present, policies, minutes, processes)
        if pool.is_late:
            pool.cut()
        return found


class Advisor:
    """Takes the four steps with a runner of trials."""

    def __init__(self, bench: TrialBench, runner: Runner, clock: Clock, objective: str, progress: Progress | None) -> None:
        self._bench, self._runner, self._clock, self._progress = bench, runner, clock, progress
        self._objective_name, self._objective = objective, objective_of(objective)
        self._rows = ROWS_MIN
        self.runs = 0

    def advise(self, present: str | None, policies: Sequence[str], minutes: float, processes: int) -> dict[str, Any]:
        """Return the advice as plain data."""
        began_s, budget_s = self._clock(), 60.0 * minutes
        work, _ = self._bench.whole()
        if not work.tuples:
            raise SimulationError(f"nothing arrived in '{work.name}', so no policy is better than another")
        own = self._present(present)
        names = candidates.names(policies)
        self._rows = self._rows_for(own, budget_s * processes)
        specs = candidates.grid(names, shares=loads.shares_operators(work), classes=loads.has_classes(work))
        heavy = loads.heavy_queries(work) if "cqc" in names else ()
        trials = [Trial(own), *(Trial(str(spec)) for spec in specs if str(spec) != own)]
        trials += [Trial(f"cqc:inner={inner}", apart=heavy) for inner in candidates.INNERS if heavy]
        screened = self._run("policies", trials, began_s + _SCREENING * budget_s)
        ended_s, run_s = began_s + budget_s, (self._clock() - began_s) / max(1, len(screened))
        best = [one.trial for one in ranking(self._objective, screened)][:_REFINED]
        more = [replace(trial, policy=str(spec)) for trial in best for spec in candidates.around(PolicySpec.parse(trial.policy))]
        known = {one.trial for one in screened}
        screened += self._run("options", [one for one in dict.fromkeys(more) if one not in known], began_s + _REFINING * budget_s)
        finalists = self._finalists(own, screened)
        seeds = CHECK_SEEDS
        if run_s > 0.0:  # what time is left goes to the best first
            runs = int((ended_s - self._clock()) / run_s / 2)  # of each of the two loads
            finalists = finalists[: max(2, min(len(finalists), runs // _SEEDS_MIN))]
            seeds = CHECK_SEEDS[: max(_SEEDS_MIN, runs // len(finalists))]
        checks = [replace(one, seed=seed, load=load) for seed in seeds for load in (1.0, MORE_LOAD) for one in finalists]
        checked = self._run("checks", checks, ended_s)
        advice = judge(self._objective_name, own, screened, checked)
        return self._told(advice, work, skipped=len(trials) - sum(1 for one in screened if one.trial in set(trials)))

    def _present(self, named: str | None) -> str:
        """Return the policy to compare with. A file that a recording names is not run: nobody knows what is in it."""
        recorded = recorded_policy(Path(self._bench.path))
        found = PolicySpec.parse(named or recorded or "fcfs")
        if named is None and found.name == "user":
            raise PolicyError(f"the policy in force is a file, {found}", hint="compare with another: --present fcfs")
        return str(found)

    def _rows_for(self, present: str, budget_s: float) -> int:
        """Run the present policy on a few rows, and return how many rows all runs can have; raises PolicyError where it cannot be run."""
        began_s = self._clock()
        first = self._bench.run(Trial(present), ROWS_MIN)
        if first.failure:
            raise PolicyError(
                f"the policy in force, {present}, cannot be simulated: {first.failure}", hint="name one to compare with: --present fcfs"
            )
        took_s = (self._clock() - began_s) * _SLOWER_THAN_PRESENT * _RUNS
        return min(ROWS_MAX, max(ROWS_MIN, int(ROWS_MIN * budget_s / took_s))) if took_s > 0.0 else ROWS_MAX

    def _finalists(self, present: str, screened: Sequence[TrialResult]) -> list[Trial]:
        """Return the present policy and the best others; one with queries set apart where there is any."""
        ranked = [one.trial for one in ranking(self._objective, screened) if one.trial != Trial(present)]
        plain = [one for one in ranked if not one.apart]
        return [Trial(present), *plain[:_BEST], *[one for one in ranked if one.apart][:1]]

    def _run(self, what: str, trials: Sequence[Trial], until_s: float) -> list[TrialResult]:
        found: list[TrialResult] = []
        for result in self._runner(trials, self._rows, until_s):
            found.append(result)
            if self._progress is not None:
                self._progress(what, len(found), len(trials))
        self.runs += len(found)
        return found

    def _told(self, advice: Advice, work: Workload, *, skipped: int) -> dict[str, Any]:
        return {
            "advice": ADVICE_VERSION,
            "keep": advice.proposed is None and advice.apart is None,
            **json.loads(json.dumps(asdict(advice))),
            "recorded_rows": work.tuples,
            "recorded_s": round(work.span_ns / 1e9, 3),
            "rows": min(self._rows, work.tuples),
            "runs": self.runs,
            "skipped": skipped,
        }
