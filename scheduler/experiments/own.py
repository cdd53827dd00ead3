"""A policy or a workload of one's own in the frame of an experiment: the paper's set-ups with more policies, or its policies and loads on
another workload, each over several seeds.

Nothing is judged: a paper claims nothing of them. Nothing is kept either, as a result depends on files that may change.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millstream.scheduler.catalog import build
from millstream.scheduler.errors import SimulationError
from millstream.scheduler.experiments.frame import ExperimentCase, Result, Row, Scale, Scenario
from millstream.scheduler.experiments.report import write_rows
from millstream.scheduler.experiments.runner import Progress, ResultStore, run_cases
from millstream.scheduler.simulation.plots import draw
from millstream.scheduler.simulation.repetitions import mean_panels, together
from millstream.scheduler.simulation.simulate import simulate
from millstream.scheduler.simulation.simulate_command import read_input
from millstream.scheduler.spec import PolicySpec
from millstream.scheduler.trains import TrainShape

_ON_WORKLOAD = "own:on_workload"


@dataclass(frozen=True)
class OwnRequest:
    """What somebody wants to see in an experiment's frame: policies beside its own, the seeds, and a workload in place of its own."""

    policies: Sequence[str] = ()
    seeds: Sequence[int] = (1,)
    workload: Path | None = None


@dataclass(frozen=True)
class OwnFindings:
    """`runs` has a row a run, `means` one a policy and set-up; `keys` are their first columns: policy, and what varies."""

    keys: Sequence[str]
    runs: Sequence[Row]
    means: Sequence[Row]


def run_own(scenario: Scenario, size: Scale, asked: OwnRequest, *, processes: int = 1, progress: Progress | None = None) -> OwnFindings:
    """Run the frame. Raises `SimulationError` for an experiment that compares no policies, and what a policy or workload raises."""
    cases = [case for case in scenario.cases(size) if not case.live and isinstance(case.parameters.get("policy"), str)]
    if not cases:
        raise SimulationError(f"{scenario.name} compares no policies in simulation", hint="millstream experiment list shows the others")
    for policy in asked.policies:  # before the first run, which may take hours
        build(PolicySpec.parse(policy), default_train=TrainShape())
    policies = list(dict.fromkeys([*(case.parameters["policy"] for case in cases), *asked.policies]))
    frames = _on_workload(cases, asked.workload) if asked.workload is not None else _frames(cases)
    named = dict.fromkeys(name for frame in frames for name in frame.parameters)
    varied = [name for name in named if len({json.dumps(frame.parameters.get(name)) for frame in frames}) > 1]
    made = [
        (frame, policy, seed, ExperimentCase(frame.function, {**frame.parameters, "policy": policy, "seed": seed}))
        for policy in policies
        for frame in frames
        for seed in asked.seeds
    ]
    store = ResultStore()
    run_cases([case for *_, case in made], store, processes=processes, progress=progress)
    keys = ["policy", *varied]
    rows = [
        {"policy": policy, **{name: frame.parameters.get(name) for name in varied}, "seed": seed, **_numbers(store.result(case), keys)}
        for frame, policy, seed, case in made
    ]
    return OwnFindings(keys, rows, together(rows, keys))


def _frames(cases: Sequence[ExperimentCase]) -> list[ExperimentCase]:
    """Return the set-ups without policy and seed, each once."""
    bare = [ExperimentCase(c.function, {k: v for k, v in c.parameters.items() if k not in ("policy", "seed")}) for c in cases]
    return list({case.key: case for case in bare}.values())


def _on_workload(cases: Sequence[ExperimentCase], path: Path) -> list[ExperimentCase]:
    """Return the loads of the experiment on another workload; of one that varies something else, the load that the file states."""
    found = {case.parameters.get("load") for case in cases}
    loads: list[float | None] = [*sorted(load for load in found if isinstance(load, float))] or [None]
    return [ExperimentCase(_ON_WORKLOAD, {"path": str(path.resolve()), "load": load}) for load in loads]


def on_workload(policy: str, path: str, load: float | None, seed: int) -> dict[str, Any]:
    """Run a workload or a recording under a policy, at a load unless that is None."""
    work, settings = read_input(Path(path), seed)
    return simulate(work if load is None else work.at_utilisation(load), policy, seed=seed, settings=settings).summary()


def _numbers(result: Result, keys: Sequence[str]) -> dict[str, float]:
    return {name: float(value) for name, value in result.items() if isinstance(value, int | float) and name not in keys}


def write_own(findings: OwnFindings, title: str, folder: Path, *, plot: bool) -> None:
    """Write `own.csv` (means with intervals), `own-runs.csv` (every run) and the pictures `own.svg` and `own.pdf`."""
    folder.mkdir(parents=True, exist_ok=True)
    write_rows(findings.means, folder / "own.csv")
    write_rows(findings.runs, folder / "own-runs.csv")
    if plot:
        panels = mean_panels(findings.means, findings.keys)
        for kind in ("svg", "pdf"):
            draw(panels, title, folder / f"own.{kind}")
