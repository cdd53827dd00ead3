"""Policies by name: which parts each is made of. One readable table, and the checks that the parts go together.

To add a policy: a file in `policies/` with the equation, a row here, a test of the same name with an example done by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import field

from millstream.engine.data.records import dataclass
from millstream.scheduler.contracts import Cutter, Ranking, Selector, Traversal, Turns, UserCalls
from millstream.scheduler.errors import PolicyError
from millstream.scheduler.policies.balance_response_time import BalanceResponseTime
from millstream.scheduler.policies.balance_slowdown import BalanceSlowdown
from millstream.scheduler.policies.chain import Chain
from millstream.scheduler.policies.class_quota import ClassQuotas
from millstream.scheduler.policies.earliest_deadline_first import EarliestDeadlineFirst
from millstream.scheduler.policies.first_come_first_served import FirstComeFirstServed
from millstream.scheduler.policies.fixed_priority import FixedPriority
from millstream.scheduler.policies.freshness_aware import FreshnessAware
from millstream.scheduler.policies.highest_normalized_rate import HighestNormalizedRate
from millstream.scheduler.policies.highest_rate import HighestRate
from millstream.scheduler.policies.longest_stretch_first import LongestStretchFirst
from millstream.scheduler.policies.memory_release import MemoryRelease
from millstream.scheduler.policies.minimal_latency import MinimalLatency
from millstream.scheduler.policies.path_capacity import PathCapacity
from millstream.scheduler.policies.rate_deadline_hybrid import RateDeadlineHybrid
from millstream.scheduler.policies.round_robin import RoundRobin
from millstream.scheduler.policies.shortest_remaining_processing_time import ShortestRemainingProcessingTime
from millstream.scheduler.policies.slope_slack import SlopeSlack
from millstream.scheduler.policies.user import called_here, load_user_ranking
from millstream.scheduler.policies.weighted_round_robin import WeightedRoundRobin
from millstream.scheduler.selectors.buckets import BucketsSelector
from millstream.scheduler.selectors.calendar import CalendarSelector
from millstream.scheduler.selectors.class_turns import ClassTurnsSelector
from millstream.scheduler.selectors.clusters import ClustersSelector
from millstream.scheduler.selectors.heap import HeapSelector
from millstream.scheduler.selectors.scan import ScanSelector
from millstream.scheduler.selectors.threshold import ThresholdSelector
from millstream.scheduler.selectors.turns import Arrangement, TurnsSelector, random_order
from millstream.scheduler.selectors.two_level import TwoLevelSelector
from millstream.scheduler.selectors.two_lists import TwoListsSelector
from millstream.scheduler.spec import OptionValue, PolicySpec
from millstream.scheduler.trains import TrainShape
from millstream.scheduler.traversals import min_latency, min_memory, upstream_first
from millstream.scheduler.units.cuts import OperatorToEndUnits, OperatorUnits, PathUnits, QueryUnits
from millstream.scheduler.units.segments import SegmentUnits, simplified_segments
from millstream.scheduler.units.shared_trees import shared_trees

Options = Mapping[str, OptionValue]

CUTS: Mapping[str, Cutter] = {
    "operators": OperatorUnits,
    "operators-to-end": OperatorToEndUnits,
    "queries": QueryUnits,
    "paths": PathUnits,
    "segments": SegmentUnits,
}
TRAVERSALS: Mapping[str, Traversal] = {
    "upstream-first": upstream_first,
    "min-cost": upstream_first,
    "min-latency": min_latency,
    "min-memory": min_memory,
}
LEVELS: Mapping[str, str] = {"query": "operators-to-end", "operator": "operators"}
AUTO = "auto"
ALIASES: Mapping[str, str] = {"bsd": "bsd-naive"}  # the rank by its plain name is the exact one

COMMON_OPTIONS: Mapping[str, str] = {
    "train": "tuples at a time: a count, a share of the queue (1.0 is all), 'all' or 'adaptive'",
    "quantum": "ms that each operator may run at a time, in place of a train",
    "schedule": "units one decision gives out",
    "tau": "tuples a unit's first queue must exceed",
    "selector": "how the best unit is found",
    "units": "how the network is cut",
    "traversal": "how the boxes of a unit are walked",
    "adapt": "whether measured costs and selectivities replace the declared ones",
}


@dataclass(frozen=True, slots=True)
class PolicyParts:
    """One policy: parts by name, and how to build what it brings of its own. `options` are names with their defaults."""

    name: str
    source: str
    summary: str
    units: Callable[[Options], Cutter]
    selectors: tuple[str, ...]
    ranking: Callable[[Options], Ranking] | None = None
    turns: Callable[[Options], Turns] | None = None
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    traversal: str = "upstream-first"


@dataclass(slots=True)
class Policy:
    """A policy put together: what the core works with."""

    spec: PolicySpec
    cutter: Cutter
    selector: Selector
    ranking: Ranking | None
    turns: Turns | None
    traversal: Traversal
    train: TrainShape
    schedule: int
    threshold: int
    adapt: bool | None


def _number(options: Mapping[str, OptionValue], key: str) -> float:
    value = options[key]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PolicyError(f"policy option {key}={value} is not a number")
    return float(value)


def _level(options: Options) -> str:
    level = str(options["level"])
    if level not in LEVELS:
        raise PolicyError(f"policy option level={level} is neither 'query' nor 'operator'")
    return LEVELS[level]


def _shared(weighing: str) -> Callable[[Options], Cutter]:
    """Cut by level; with an option `sharing` into shared trees."""

    def cutter(options: Options) -> Cutter:
        if options["sharing"] == "tree":
            return CUTS[_level(options)]
        return shared_trees(str(options["sharing"]), weighing)

    return cutter


def _by_level(options: Options) -> Cutter:
    return CUTS[_level(options)]


def _cut(name: str) -> Callable[[Options], Cutter]:
    return lambda options: CUTS[name]


def _sharaf(
    name: str, section: str, summary: str, ranking: type[Ranking], *, weighing: str | None = None, moving: bool = False
) -> PolicyParts:
    """A row of Sharaf's: at query or operator level; what moves with time goes by scan or, factored, by threshold."""
    options: dict[str, OptionValue] = {"level": "query"}
    if weighing is not None:
        options["sharing"] = "tree"
    return PolicyParts(
        name,
        f"Sharaf 2007, {section}",
        summary,
        _shared(weighing) if weighing is not None else _by_level,
        ("scan", "threshold") if moving else ("heap", "scan"),
        ranking=lambda options: ranking(),
        options=options,
    )


def _aurora(
    name: str, summary: str, ranking: Callable[[Options], Ranking], selectors: tuple[str, ...], **more: OptionValue
) -> list[PolicyParts]:
    """Two rows of Aurora's: box by box, and pushing through from input boxes to the output."""
    source = "Carney 2005, 4.4"
    return [
        PolicyParts(name, source, summary, _cut("operators"), selectors, ranking=ranking, options=more),
        PolicyParts(
            f"{name}-push-through",
            source,
            f"{summary}; then on to the output",
            _cut("operators-to-end"),
            selectors,
            ranking=ranking,
            options=more,
        ),
    ]


_BSD = "balanced slowdown: normalized rate times slowdown so far"

_ROWS = (
    PolicyParts("round-robin", "Pajjuri 2004, 4.1.1", "all operators in turn, bottom-up or, as Aurora's, in a random order, equal quantum",
        _cut("operators"), ("turns",), turns=lambda options: RoundRobin(), options={"order": "bottom-up", "seed": 1}),
    PolicyParts("weighted-round-robin", "Pajjuri 2004, 4.1.2", "operators in turn, quantum by weight", _cut("operators"), ("turns",),
        turns=lambda options: WeightedRoundRobin(_number(options, "leaf"), _number(options, "join")),
        options={"leaf": 2.0, "join": 3.0}),
    PolicyParts("path-capacity", "Pajjuri 2004, 4.1.3", "path of the greatest capacity first", _cut("paths"), ("heap", "scan"),
        ranking=lambda options: PathCapacity()),
    PolicyParts("segment", "Pajjuri 2004, 4.1.4", "segment that frees the most bytes per second first", _cut("segments"), ("heap", "scan"),
        ranking=lambda options: MemoryRelease()),
    PolicyParts("simplified-segment", "Pajjuri 2004, 4.1.5", "the same with at most two segments a path",
        lambda options: simplified_segments(_number(options, "gamma")), ("heap", "scan"),
        ranking=lambda options: MemoryRelease(), options={"gamma": 0.5}),
    PolicyParts("superbox", "Carney 2005, 3.3.2", "whole queries in turn, walked min-cost, min-latency or min-memory", _cut("queries"),
        ("turns",), turns=lambda options: RoundRobin(), traversal="min-cost"),
    _sharaf("fcfs", "3.2", "the oldest tuple first", FirstComeFirstServed),
    _sharaf("srpt", "3.2", "the least ideal time first", ShortestRemainingProcessingTime),
    PolicyParts("rr", "Aurora, in Sharaf 2007, 3.2", "queries in turn, inside by output rate or latency", _by_level, ("two-level",),
        ranking=lambda options: _inner(options), options={"level": "query", "inner": "rb"}),
    PolicyParts("rb", "Aurora, in Sharaf 2007, 3.2", "operators by output rate", _cut("operators"), ("heap", "scan"),
        ranking=lambda options: HighestRate()),
    PolicyParts("ml", "Carney 2005, 4.3.2", "operators by how cheap an output is to get", _cut("operators"), ("heap", "scan"),
        ranking=lambda options: MinimalLatency()),
    _sharaf("hr", "3.3.1", "greatest output rate first", HighestRate, weighing="output_per_tuple"),
    _sharaf("hnr", "3.3.2", "greatest output rate by ideal time first", HighestNormalizedRate, weighing="normalized_output"),
    _sharaf("lsf", "3.4.1", "the greatest slowdown so far first", LongestStretchFirst, moving=True),
    _sharaf("brt", "3.4.3", "balanced response time: rate times wait", BalanceResponseTime, moving=True),
    PolicyParts("bsd-naive", "Sharaf 2007, 3.4.2", _BSD + ", every unit ranked", _shared("normalized_square"), ("scan", "threshold"),
        ranking=lambda options: BalanceSlowdown(), options={"level": "query", "sharing": "tree"}),
    PolicyParts("bsd-uniform", "Sharaf 2007, 3.7", _BSD + ", uniform clusters", _shared("normalized_square"), ("uniform-clusters",),
        ranking=lambda options: BalanceSlowdown(), options={"level": "query", "sharing": "tree", "clusters": 12}),
    PolicyParts("bsd-log", "Sharaf 2007, 3.7", _BSD + ", logarithmic clusters", _shared("normalized_square"), ("log-clusters",),
        ranking=lambda options: BalanceSlowdown(), options={"level": "query", "sharing": "tree", "clusters": 12}),
    PolicyParts("chain", "Babcock et al. 2003", "steepest segment of the progress chart first", _cut("operators"), ("heap", "scan"),
        ranking=lambda options: Chain()),
    PolicyParts("fas", "Sharaf 2007, 4.3", "freshness: chance of news per second", _by_level, ("calendar", "heap", "scan"),
        ranking=lambda options: FreshnessAware(_number(options, "beta")), options={"level": "query", "beta": 1.0}),
    PolicyParts("edf", "Sharaf 2007, 3.5", "the nearest deadline first", _by_level, ("heap", "scan"),
        ranking=lambda options: EarliestDeadlineFirst(), options={"level": "query"}),
    PolicyParts("edf-hr", "Sharaf 2007, 3.5.2", "deadlines while they can be met, rates for what is late", _by_level, ("two-lists", "scan"),
        ranking=lambda options: RateDeadlineHybrid(), options={"level": "query"}),
    PolicyParts("cqc", "Pham 2013, III-A", "classes in turn by quota, inside by any rank", _by_level, ("class-turns",),
        ranking=lambda options: _inside_class(str(options["inner"])), options={"level": "query", "inner": "hr", "k": 10.0}),
    *_aurora("fixed-priority", "the least fixed slack first", lambda options: FixedPriority(), ("heap", "scan")),
    *_aurora("slope-slack", "utility lost per second, then slack", lambda options: SlopeSlack(), ("scan",)),
    *_aurora("bucketing", "slope-slack in buckets with a calendar", lambda options: SlopeSlack(), ("buckets",), gradients=5, slacks=4),
    PolicyParts("user", "a file", "a ranking of your own", _by_level, ("scan",), ranking=lambda options: _user(options, called_here),
        options={"level": "query", "file": ""}),
)  # fmt: skip


def _inner(options: Options) -> Ranking:
    if options["inner"] == "rb":
        return HighestRate()
    if options["inner"] == "ml":
        return MinimalLatency()
    raise PolicyError(f"policy option inner={options['inner']} is neither 'rb' nor 'ml'")


def _inside_class(name: str) -> Ranking:
    """Return the rank of the policy of that name, with the options it has by default."""
    row = CATALOG.get(ALIASES.get(name, name))
    if row is None or row.ranking is None or row.name in ("cqc", "user"):
        fitting = [one.name for one in CATALOG.values() if one.ranking is not None and one.name not in ("cqc", "user")]
        raise PolicyError(f"policy option inner={name} is not a policy that ranks", hint="take one of " + ", ".join(fitting))
    return row.ranking(row.options)


def _user(options: Options, calls: UserCalls) -> Ranking:
    if not options["file"]:
        raise PolicyError("policy 'user' needs a file", hint="write user:file=PATH")
    return load_user_ranking(str(options["file"]), calls)


CATALOG: Mapping[str, PolicyParts] = {row.name: row for row in _ROWS}


def build(spec: PolicySpec, *, default_train: TrainShape, default_schedule: int = 1, user_calls: UserCalls = called_here) -> Policy:
    """Return a policy put together; raises `PolicyError` for what is unknown or does not fit. `user_calls` runs what a user's file says."""
    spec = PolicySpec(ALIASES.get(spec.name, spec.name), spec.options)
    row = CATALOG.get(spec.name)
    if row is None and spec.name == AUTO:
        raise PolicyError(f"policy '{AUTO}' is for the start of a server: fcfs, and cqc with a load manager", hint="name one of these")
    if row is None:
        raise PolicyError(f"unknown policy '{spec.name}'", hint=_meant(spec.name))
    options = _options(row, spec)
    _refuse_nonsense(options, {key for key, _ in spec.options})
    ranking = _user(options, user_calls) if row.name == "user" else row.ranking(options) if row.ranking else None
    train = _train(options, default_train)
    if isinstance(ranking, SlopeSlack):
        ranking.train = train
    traversal = str(options.get("traversal", row.traversal))
    if traversal not in TRAVERSALS:
        raise PolicyError(f"unknown traversal '{traversal}'", hint="known are " + ", ".join(TRAVERSALS))
    cutter = _cutter(row, options)
    if "traversal" in options and cutter is OperatorUnits:
        raise PolicyError(f"policy '{row.name}' runs single operators, so a traversal changes nothing", hint="use superbox:traversal=…")
    return Policy(
        spec=spec,
        cutter=cutter,
        selector=_selector(row, options, ranking),
        ranking=ranking,
        turns=row.turns(options) if row.turns else None,
        traversal=TRAVERSALS[traversal],
        train=train,
        schedule=_whole(options, "schedule", default_schedule, 1),
        threshold=_whole(options, "tau", 0, 0),
        adapt=_flag(options["adapt"], "adapt") if "adapt" in options else None,
    )


def _meant(name: str) -> str:
    """Return what to write in place of a name that is no policy."""
    policy, colon, _ = name.partition(":")
    if colon and policy in CATALOG:
        return f"its options stand apart from its name: SET POLICY {policy} WITH (option = value)"
    if name.endswith(".py"):
        return f"a file of your own is user:file={name}"
    from difflib import get_close_matches  # only what is refused needs it

    near = get_close_matches(name, CATALOG, n=1, cutoff=0.75)
    return (
        f"did you mean {near[0]}?"
        if near
        else f"known are {', '.join(one for one in CATALOG if one != 'user')}, and user:file=PATH for a file of your own"
    )


def _options(row: PolicyParts, spec: PolicySpec) -> dict[str, OptionValue]:
    options = dict(row.options)
    seen: set[str] = set()
    for key, value in spec.options:
        if key in seen:
            raise PolicyError(f"policy option {key} is given twice", hint="give it once")
        seen.add(key)
        if key not in row.options and key not in COMMON_OPTIONS:
            known = ", ".join((*row.options, *COMMON_OPTIONS))
            raise PolicyError(f"policy '{row.name}' has no option '{key}'", hint=f"it has {known}")
        options[key] = value
    return options


def _train(options: Options, default: TrainShape) -> TrainShape:
    if "quantum" in options:
        return TrainShape.of_quantum(options["quantum"])
    return TrainShape.parse(options["train"]) if "train" in options else default


def _refuse_nonsense(options: Options, given: Set[str]) -> None:
    """Raise `PolicyError` for options that contradict one another or that nothing would come of."""
    if {"train", "quantum"} <= given:
        raise PolicyError("policy options train and quantum both say how much is run at a time", hint="give one of them")
    shared = str(options.get("sharing", "tree")) != "tree"
    if shared and "level" in given and options["level"] != "query":
        raise PolicyError(f"policy option sharing={options['sharing']} holds at query level only", hint="leave out level")
    if "seed" in given and options.get("order") == "bottom-up":
        raise PolicyError("policy option seed draws a random order, and the order is bottom-up", hint="add order=random")
    for other in ("level", "sharing"):
        if "units" in given and other in given:
            raise PolicyError(f"policy options units and {other} both say how the network is cut", hint="give one of them")


def _whole(options: Mapping[str, OptionValue], key: str, default: int, least: int) -> int:
    value = options.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise PolicyError(f"policy option {key}={value} is not a whole number of at least {least}")
    return value


def _flag(value: OptionValue, key: str) -> bool:
    if not isinstance(value, bool):
        raise PolicyError(f"policy option {key}={value} is neither true nor false")
    return value


def _cutter(row: PolicyParts, options: Options) -> Cutter:
    if "units" not in options:
        return row.units(options)
    name = str(options["units"])
    if name not in CUTS:
        raise PolicyError(f"unknown units '{name}'", hint="known are " + ", ".join(CUTS))
    return CUTS[name]


def _arrangement(options: Options) -> Arrangement | None:
    order = options.get("order", "bottom-up")
    if order not in ("bottom-up", "random"):
        raise PolicyError(f"policy option order={order} is neither 'bottom-up' nor 'random'")
    return random_order(_whole(options, "seed", 1, 0)) if order == "random" else None


def _selector(row: PolicyParts, options: Options, ranking: Ranking | None) -> Selector:
    name = str(options.get("selector", row.selectors[0]))
    if name not in row.selectors:
        raise PolicyError(f"policy '{row.name}' does not go with selector '{name}'", hint="it goes with " + ", ".join(row.selectors))
    if name == "turns":
        return TurnsSelector(_arrangement(options))
    assert ranking is not None
    if name == "heap":
        if ranking.moves_with_time:
            raise PolicyError(f"the rank of policy '{row.name}' moves with time, which a heap cannot follow", hint="use scan")
        return HeapSelector(ranking)
    if name == "scan":
        return ScanSelector(ranking)
    if name == "calendar":
        assert isinstance(ranking, FreshnessAware)
        return CalendarSelector(ranking)
    if name == "two-lists":
        assert isinstance(ranking, RateDeadlineHybrid)
        return TwoListsSelector(ranking)
    if name == "two-level":
        return TwoLevelSelector(ranking)
    if name == "class-turns":
        return ClassTurnsSelector(ranking, ClassQuotas(_number(options, "k") * 1e6))
    if name == "buckets":
        assert isinstance(ranking, SlopeSlack)
        return BucketsSelector(ranking, _whole(options, "gradients", 5, 1), _whole(options, "slacks", 4, 1))
    if not isinstance(ranking, BalanceSlowdown | BalanceResponseTime | LongestStretchFirst):
        raise PolicyError(f"the rank of policy '{row.name}' has no fixed part, which selector '{name}' needs", hint="use scan")
    if name == "threshold":
        return ThresholdSelector(ranking)
    return ClustersSelector(ranking, _whole(options, "clusters", 12, 1), logarithmic=name == "log-clusters")
