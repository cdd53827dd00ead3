"""Policies by name: which parts each is made of. One readable table, and the checks that the parts go together.

To add a policy: a file in `policies/` with the equation, a row here, a test of the same name with an example done by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from millstream.scheduler.contracts import Cutter, Ranking, Selector, Traversal, Turns
from millstream.scheduler.errors import PolicyError
from millstream.scheduler.policies.first_come_first_served import FirstComeFirstServed
from millstream.scheduler.policies.highest_normalized_rate import HighestNormalizedRate
from millstream.scheduler.policies.highest_rate import HighestRate
from millstream.scheduler.policies.round_robin import RoundRobin
from millstream.scheduler.policies.weighted_round_robin import WeightedRoundRobin
from millstream.scheduler.selectors.heap import HeapSelector
from millstream.scheduler.selectors.scan import ScanSelector
from millstream.scheduler.selectors.turns import TurnsSelector
from millstream.scheduler.spec import OptionValue, PolicySpec
from millstream.scheduler.trains import Train
from millstream.scheduler.traversals.upstream_first import upstream_first
from millstream.scheduler.units.operators import OperatorUnits
from millstream.scheduler.units.operators_to_end import OperatorToEndUnits
from millstream.scheduler.units.paths import PathUnits
from millstream.scheduler.units.queries import QueryUnits

CUTS: Mapping[str, Cutter] = {
    "operators": OperatorUnits,
    "operators-to-end": OperatorToEndUnits,
    "queries": QueryUnits,
    "paths": PathUnits,
}
TRAVERSALS: Mapping[str, Traversal] = {"upstream-first": upstream_first, "min-cost": upstream_first}
LEVELS: Mapping[str, str] = {"query": "operators-to-end", "operator": "operators"}

COMMON_OPTIONS: Mapping[str, str] = {
    "train": "tuples at a time: a count, a share of the queue (1.0 is all), 'all' or 'adaptive'",
    "schedule": "units one decision gives out",
    "tau": "tuples a unit's first queue must exceed",
    "selector": "how the best unit is found",
    "units": "how the network is cut",
    "traversal": "how the boxes of a unit are walked",
    "adapt": "whether measured costs and selectivities replace the declared ones",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One policy: parts by name, and how to build what it brings of its own. `options` are names with their defaults."""

    name: str
    source: str
    summary: str
    units: str
    selectors: tuple[str, ...]
    ranking: Callable[[Mapping[str, OptionValue]], Ranking] | None = None
    turns: Callable[[Mapping[str, OptionValue]], Turns] | None = None
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    traversal: str = "upstream-first"
    schedule: int = 1


@dataclass(slots=True)
class Policy:
    """A policy put together: what the core works with."""

    spec: PolicySpec
    cutter: Cutter
    selector: Selector
    ranking: Ranking | None
    turns: Turns | None
    traversal: Traversal
    train: Train
    schedule: int
    threshold: int
    adapt: bool | None


def _number(options: Mapping[str, OptionValue], key: str) -> float:
    value = options[key]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PolicyError(f"policy option {key}={value} is not a number")
    return float(value)


_ROWS = (
    Row("round-robin", "Pajjuri 2004, 4.1.1", "all operators in turn, bottom-up, equal quantum", "operators", ("turns",),
        turns=lambda options: RoundRobin()),
    Row("weighted-round-robin", "Pajjuri 2004, 4.1.2", "operators in turn, quantum by weight", "operators", ("turns",),
        turns=lambda options: WeightedRoundRobin(_number(options, "leaf"), _number(options, "join")),
        options={"leaf": 2.0, "join": 3.0}),
    Row("fcfs", "Sharaf 2007, 3.2", "the oldest tuple first", "level", ("heap", "scan"),
        ranking=lambda options: FirstComeFirstServed(), options={"level": "query"}),
    Row("hr", "Sharaf 2007, 3.3.1", "greatest output rate first", "level", ("heap", "scan"),
        ranking=lambda options: HighestRate(), options={"level": "query"}),
    Row("hnr", "Sharaf 2007, 3.3.2", "greatest output rate by ideal time first", "level", ("heap", "scan"),
        ranking=lambda options: HighestNormalizedRate(), options={"level": "query"}),
)  # fmt: skip

CATALOG: Mapping[str, Row] = {row.name: row for row in _ROWS}


def build(spec: PolicySpec, *, default_train: Train) -> Policy:
    """Put a policy together; raises `PolicyError` naming what is unknown or does not fit."""
    row = CATALOG.get(spec.name)
    if row is None:
        raise PolicyError(f"unknown policy '{spec.name}'", hint="known are " + ", ".join(CATALOG))
    options = _options(row, spec)
    ranking = row.ranking(options) if row.ranking else None
    traversal = str(options.get("traversal", row.traversal))
    if traversal not in TRAVERSALS:
        raise PolicyError(f"unknown traversal '{traversal}'", hint="known are " + ", ".join(TRAVERSALS))
    return Policy(
        spec=spec,
        cutter=_cutter(row, options),
        selector=_selector(row, options, ranking),
        ranking=ranking,
        turns=row.turns(options) if row.turns else None,
        traversal=TRAVERSALS[traversal],
        train=Train.parse(options["train"]) if "train" in options else default_train,
        schedule=_whole(options, "schedule", row.schedule, 1),
        threshold=_whole(options, "tau", 0, 0),
        adapt=bool(options["adapt"]) if "adapt" in options else None,
    )


def _options(row: Row, spec: PolicySpec) -> dict[str, OptionValue]:
    options = dict(row.options)
    for key, value in spec.options:
        if key not in row.options and key not in COMMON_OPTIONS:
            known = ", ".join((*row.options, *COMMON_OPTIONS))
            raise PolicyError(f"policy '{row.name}' has no option '{key}'", hint=f"it has {known}")
        options[key] = value
    return options


def _whole(options: Mapping[str, OptionValue], key: str, default: int, least: int) -> int:
    value = options.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise PolicyError(f"policy option {key}={value} is not a whole number of at least {least}")
    return value


def _cutter(row: Row, options: Mapping[str, OptionValue]) -> Cutter:
    name = str(options.get("units", row.units))
    if name == "level":
        level = str(options["level"])
        if level not in LEVELS:
            raise PolicyError(f"policy option level={level} is neither 'query' nor 'operator'")
        name = LEVELS[level]
    if name not in CUTS:
        raise PolicyError(f"unknown units '{name}'", hint="known are " + ", ".join(CUTS))
    return CUTS[name]


def _selector(row: Row, options: Mapping[str, OptionValue], ranking: Ranking | None) -> Selector:
    name = str(options.get("selector", row.selectors[0]))
    if name not in row.selectors:
        raise PolicyError(f"policy '{row.name}' does not go with selector '{name}'", hint="it goes with " + ", ".join(row.selectors))
    if name == "turns":
        return TurnsSelector()
    if ranking is None:
        raise PolicyError(f"policy '{row.name}' has no rank for selector '{name}'")
    if name == "heap":
        if ranking.moves_with_time:
            raise PolicyError(f"the rank of policy '{row.name}' moves with time, which a heap cannot follow", hint="use scan")
        return HeapSelector(ranking)
    return ScanSelector(ranking)
