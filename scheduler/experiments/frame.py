"""The frame of the papers' experiments: cases that are run and cached, claims that are judged, figures that are drawn.

A scenario lists cases (a function by name and plain parameters), and judges their results. Two scenarios that list the same case share
its run. A claim is judged by a rule fixed before the runs: `at_least_half` for effects that the paper gives a size for (the direction
must be right and at least half of the size must show), plain comparison for orders.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import Any, Literal

from millstream.scheduler.simulation.plots import Panel

Scale = Literal["reduced", "medium", "full"]
Result = Mapping[str, Any]
Row = dict[str, Any]


@dataclass(frozen=True)
class ExperimentCase:
    """One run: `function` is "module:name" within `experiments.scenarios` (or of `own`), or with the module's full name for a live one;
    `parameters` are plain values.
    """

    function: str
    parameters: Mapping[str, Any]

    @cached_property
    def key(self) -> str:
        """A text that is equal for equal cases."""
        return json.dumps([self.function, dict(sorted(self.parameters.items()))], sort_keys=True)

    @property
    def module(self) -> str:
        """The full name of the module that the function is in."""
        module = self.function.partition(":")[0]
        if self.live:
            return module
        return f"millstream.scheduler.experiments.{module if module == 'own' else f'scenarios.{module}'}"

    @property
    def live(self) -> bool:
        """Whether it runs the real engine on the machine's clock: then nothing else may run beside it, and its result is not kept."""
        return "." in self.function

    def run(self) -> Result:
        """Run it in this process."""
        function = getattr(import_module(self.module), self.function.partition(":")[2])
        result: Result = function(**self.parameters)
        return result


@dataclass(frozen=True)
class Claim:
    """What a paper says, its number and ours, and whether it holds here. `note` explains, above all what does not hold."""

    text: str
    paper: str
    ours: str
    holds: bool
    note: str = ""


@dataclass(frozen=True)
class Findings:
    """What a scenario makes of its results."""

    rows: Sequence[Row]
    claims: Sequence[Claim]
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Scenario:
    """One row of the papers' experiments."""

    name: str
    source: str
    title: str
    setup: str
    cases: Callable[[Scale], Sequence[ExperimentCase]]
    judge: Callable[[Scale, Callable[[ExperimentCase], Result]], Findings]
    substitutions: Sequence[str] = field(default=())


# ---- judging


def reduction(ours: float, other: float) -> float:
    """Return by what share of `other` `ours` is smaller; negative when it is greater."""
    return 1.0 - ours / other if other else 0.0


def percent(share: float) -> str:
    """Return a share as whole percent."""
    return f"{100.0 * share:.0f}%"


def at_least_half(text: str, paper: float, ours: float, note: str = "") -> Claim:
    """Judge a reduction that the paper states: right direction and at least half of its size."""
    return Claim(text, percent(paper), percent(ours), ours >= 0.5 * paper, note)


def within(text: str, paper: float, ours: float, *, factor: float = 2.0, note: str = "") -> Claim:
    """Judge a number that should be near the paper's: no further off than a factor."""
    return Claim(text, f"{paper:g}", f"{ours:.3g}", paper / factor <= ours <= paper * factor, note)


def ordered(text: str, names: Sequence[str], values: Sequence[float], *, tolerance: float = 0.0, paper: str = "", note: str = "") -> Claim:
    """Return whether the values ascend strictly in the order of the names; with a tolerance, whether none falls by more than this share."""
    pairs = list(itertools.pairwise(values))
    holds = all(after >= before * (1.0 - tolerance) if tolerance else after > before for before, after in pairs)
    ours = " < ".join(f"{name} {value:.4g}" for name, value in sorted(zip(names, values, strict=True), key=lambda pair: pair[1]))
    return Claim(text, paper or " < ".join(names), ours, holds, note)


def mean(values: Sequence[float]) -> float:
    """Return the plain average."""
    return sum(values) / len(values) if values else 0.0
