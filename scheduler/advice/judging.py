"""What simulated runs say together: another policy, or to keep the one in force. Pure: measures in, an advice out.

Policies meet the same load under the same seed, so they are compared seed by seed: the gain is a share of what the present policy has, with
the 95% interval of its mean (Student's t). A gain counts if its interval lies above what is worth a change, and if it is not lost when
more comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from millstream.scheduler.errors import SimulationError
from millstream.scheduler.simulation.repetitions import interval95

RESPONSE_MS_LEAST = 0.2
"""The least difference that anyone notices: what a thread takes to wake up, which a simulation does not model."""
NOISE = 0.05
"""A gain of less than this share is worth no change."""
MORE_LOAD = 1.2
RESULTS_MIN = 100
QUERIES_TOLD = 5
_TIMES = ("response_ms_mean", "response_ms_p99")
_SLOWER = 0.2  # a query is told of when its own 99th percentile grows by more than this share
_SLOWER_MS = 1.0


@dataclass(frozen=True, slots=True)
class AdviceMeasure:
    """What is to be good: a measure, words for it, the least difference that anyone notices, and whether more of it is better."""

    name: str
    words: str
    least: float
    more_is_better: bool = False
    is_of_time: bool = False  # without a unit, but nobody notices it where no response time changes

    def gain(self, present: float, other: float) -> float:
        """Return by how much the other is better."""
        return other - present if self.more_is_better else present - other


OBJECTIVES: Mapping[str, AdviceMeasure] = {
    "p99": AdviceMeasure("response_ms_p99", "99th percentile of the response time, ms", RESPONSE_MS_LEAST),
    "slowdown": AdviceMeasure("slowdown_mean", "mean slowdown", 0.1, is_of_time=True),
    "utility": AdviceMeasure("utility_per_application", "utility", 0.01, more_is_better=True),
    "memory": AdviceMeasure("memory_bytes_max", "greatest memory in queues, bytes", 4_096.0),
}
_BESIDE = (
    *OBJECTIVES.values(),
    AdviceMeasure("response_ms_mean", "mean response time, ms", RESPONSE_MS_LEAST),
    AdviceMeasure("slowdown_max", "greatest slowdown", 1.0),
    AdviceMeasure("response_ms_max", "longest response time, ms", 1.0),
)


@dataclass(frozen=True, slots=True)
class Trial:
    """One run: a policy under a seed, at so many times the recorded load, with these queries in a class of their own."""

    policy: str
    seed: int = 1
    load: float = 1.0
    apart: tuple[str, ...] = ()

    @property
    def choice(self) -> tuple[str, tuple[str, ...]]:
        """What is chosen between: policy and queries set apart."""
        return self.policy, self.apart


@dataclass(frozen=True, slots=True)
class TrialResult:
    """What a run gave: the measures of a simulation's summary, each query's 99th percentile of the response time; or why it failed."""

    trial: Trial
    measures: Mapping[str, float]
    query_p99_ms: Mapping[str, float] = field(default_factory=dict)
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A measure under the present and the proposed policy (means over seeds). `share`, give or take `ci95`, is the gain."""

    measure: str
    words: str
    present: float
    proposed: float
    share: float
    ci95: float

    @property
    def surely(self) -> float:
        """The least share that it gets better by, with a certainty of 95%."""
        return self.share - self.ci95


@dataclass(frozen=True, slots=True)
class SlowerQuery:
    """A query that would answer later: its 99th percentile in ms."""

    query: str
    present_ms: float
    proposed_ms: float


@dataclass(frozen=True, slots=True)
class Finding:
    """How a choice did beside the present policy: at the recorded load, and at 1.2 times of it.

    `moved_ms` is the greater change of the mean and of the 99th percentile of the response time.
    """

    policy: str
    apart: tuple[str, ...]
    gain: Comparison
    gain_at_more_load: Comparison
    worse: tuple[Comparison, ...]
    slower: tuple[SlowerQuery, ...]
    moved_ms: float


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do. `proposed` is None where the present policy is to be kept, which `reason` says why.

    `apart` is a further proposal: queries to put into a class of their own, with the policy for it. `tried` has the objective of each
    policy under the first seed, the best first.
    """

    objective: str
    words: str
    present: str
    present_value: float
    proposed: Finding | None
    apart: Finding | None
    reason: str
    tried: tuple[tuple[str, float], ...]
    failed: tuple[tuple[str, str], ...] = ()


def objective_of(name: str) -> AdviceMeasure:
    """Return an objective by its name; raises SimulationError."""
    if name not in OBJECTIVES:
        raise SimulationError(f"there is no objective {name}", hint="they are " + ", ".join(OBJECTIVES))
    return OBJECTIVES[name]


def ranking(objective: AdviceMeasure, results: Iterable[TrialResult]) -> list[TrialResult]:
    """Return runs of one seed that went well, the best first; equally good ones by the fewest options, then by name."""
    sign = -1.0 if objective.more_is_better else 1.0
    good = [one for one in results if not one.failure]
    return sorted(good, key=lambda one: (sign * one.measures[objective.name], one.trial.policy.count("="), one.trial.policy))


def judge(objective_name: str, present: str, screened: Sequence[TrialResult], checked: Sequence[TrialResult]) -> Advice:
    """Return what the runs say: `screened` of all policies under one seed, `checked` of the best under other seeds, also at more load.

    The order of the runs says nothing.
    """
    objective = objective_of(objective_name)
    ranked = ranking(objective, screened)
    tried = tuple((one.trial.policy, one.measures[objective.name]) for one in ranked if not one.trial.apart)
    failed = tuple(sorted((one.trial.policy, one.failure) for one in screened if one.failure))
    by_choice: dict[tuple[str, tuple[str, ...]], list[TrialResult]] = {}
    for one in checked:
        if not one.failure:
            by_choice.setdefault(one.trial.choice, []).append(one)
    own = by_choice.pop((present, ()), [])
    findings = [made for choice, runs in sorted(by_choice.items()) if (made := _finding(objective, choice, own, runs)) is not None]
    plain = _best([one for one in findings if not one.apart and _counts(objective, one)])
    apart = _best([one for one in findings if one.apart and _counts(objective, one)])
    if apart is not None and plain is not None and apart.gain.surely <= plain.gain.share + NOISE:
        apart = None  # a class costs the user more than a policy does
    results = max((one.measures.get("results", 0.0) for one in own), default=0.0)
    if results < RESULTS_MIN:
        plain = apart = None
    value = sum(one.measures[objective.name] for one in own if one.trial.load == 1.0) / max(1, sum(one.trial.load == 1.0 for one in own))
    reason = _reason(objective, present, plain, findings, results)
    return Advice(objective_name, objective.words, present, value, plain, apart, reason, tried, failed)


def _finding(
    objective: AdviceMeasure, choice: tuple[str, tuple[str, ...]], own: Sequence[TrialResult], runs: Sequence[TrialResult]
) -> Finding | None:
    compared = [_compared(one, own, runs, 1.0) for one in (objective, *_BESIDE)]
    more = _compared(objective, own, runs, MORE_LOAD)
    if compared[0] is None or more is None:
        return None  # there was no time for all of them
    worse = [one for measure, one in zip(_BESIDE, compared[1:], strict=True) if one is not None and measure is not objective]
    least = {measure.name: measure.least for measure in _BESIDE}
    told = tuple(one for one in worse if one.share + one.ci95 < -NOISE and abs(one.proposed - one.present) >= least[one.measure])
    moved_ms = max(abs(one.proposed - one.present) for one in compared if one is not None and one.measure in _TIMES)
    return Finding(*choice, compared[0], more, told, _slower(own, runs), moved_ms)


def _compared(measure: AdviceMeasure, own: Sequence[TrialResult], runs: Sequence[TrialResult], load: float) -> Comparison | None:
    """Compare seed by seed; None without two seeds that both were run under."""
    presents = {one.trial.seed: one.measures[measure.name] for one in own if one.trial.load == load}
    others = {one.trial.seed: one.measures[measure.name] for one in runs if one.trial.load == load}
    seeds = sorted(presents.keys() & others.keys())
    if len(seeds) < 2:
        return None
    present, other = (sum(values[seed] for seed in seeds) / len(seeds) for values in (presents, others))
    shares = [measure.gain(presents[seed], others[seed]) / abs(presents[seed]) if presents[seed] else 0.0 for seed in seeds]
    share, half_width = interval95(shares)
    return Comparison(measure.name, measure.words, present, other, share, half_width)


def _slower(own: Sequence[TrialResult], runs: Sequence[TrialResult]) -> tuple[SlowerQuery, ...]:
    """Return the queries that would answer later, those that lose most first: by means over seeds, at the recorded load."""
    present, proposed = (_query_means([one for one in part if one.trial.load == 1.0]) for part in (own, runs))
    found = [
        SlowerQuery(name, present[name], proposed[name])
        for name in present.keys() & proposed.keys()
        if proposed[name] > (1.0 + _SLOWER) * present[name] and proposed[name] - present[name] >= _SLOWER_MS
    ]
    return tuple(sorted(found, key=lambda one: (one.present_ms - one.proposed_ms, one.query))[:QUERIES_TOLD])


def _query_means(runs: Sequence[TrialResult]) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for run in runs:
        for name, value in run.query_p99_ms.items():
            values.setdefault(name, []).append(value)
    return {name: sum(found) / len(found) for name, found in values.items()}


def _counts(objective: AdviceMeasure, found: Finding) -> bool:
    """Tell whether a gain is beyond noise, is noticed, and stays when more comes."""
    gain, more = found.gain, found.gain_at_more_load
    return gain.surely >= NOISE and _is_noticed(objective, found) and more.surely > -NOISE


def _is_noticed(objective: AdviceMeasure, found: Finding) -> bool:
    if objective.is_of_time and found.moved_ms < RESPONSE_MS_LEAST:
        return False
    return objective.gain(found.gain.present, found.gain.proposed) >= objective.least


def _best(findings: Sequence[Finding]) -> Finding | None:
    """Return the one that gains most; of those that gain as much but for noise, the one with the fewest options."""
    if not findings:
        return None
    most = max(one.gain.share for one in findings)
    near = [one for one in findings if one.gain.share >= most - NOISE / 2]
    return min(near, key=lambda one: (one.policy.count("="), -one.gain.share, one.policy))


def _reason(objective: AdviceMeasure, present: str, plain: Finding | None, findings: Sequence[Finding], results: float) -> str:
    if plain is not None:
        return ""
    if results < RESULTS_MIN:
        return f"the load has {results:.0f} results, too few to tell policies apart"
    policies = [one for one in findings if not one.apart and one.policy != present]
    if not policies:
        return "there was no time to check another policy (--minutes gives more)"
    best = max(policies, key=lambda one: (one.gain.share, one.policy))
    gain, told = best.gain, f"{best.policy} did best, with a gain of {best.gain.share:.1%} ± {best.gain.ci95:.1%}"
    if gain.surely < NOISE:
        return f"{told}, which is within noise (gains below {NOISE:.0%} count as that)"
    if not _is_noticed(objective, best):
        return f"{told}, but nobody notices {gain.present:.3g} -> {gain.proposed:.3g} where response times change by {best.moved_ms:.2g} ms"
    return f"{told}, but loses when a fifth more comes ({best.gain_at_more_load.share:.1%} ± {best.gain_at_more_load.ci95:.1%})"
