"""Sweeps that several experiments of Carney 2005, chapter 4, share: policies against input rates, and words for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from millstream.scheduler.experiments.frame import Claim, ExperimentCase, Result, Row, Scale, mean
from millstream.scheduler.simulation.plots import Line, Panel

Results = Callable[[ExperimentCase], Result]

TITLES = {
    "round-robin": "round-robin",
    "fixed-priority": "fixed priority",
    "slope-slack": "slope-slack",
    "bucketing": "bucketing",
    "fixed-priority-push-through": "fixed priority, push-through",
    "slope-slack-push-through": "slope-slack, push-through",
    "bucketing-push-through": "bucketing, push-through",
}
CHARGED = (
    "the cost model for Aurora's prototype on a 2.0 GHz Pentium IV: 16 µs a box call; for deciding, charge R (for each box that can run, "
    "17.3 µs under fixed priority and 40.6 under slope-slack; 8.9 µs for a box that changes its bucket or has its turn), which c-10000's "
    "overheads give, and charge S (2.17 and 4.63 µs for each box of the network), which c-size's curves need at least; no one linear "
    "charge gives all of chapter 4, so the network of c-size is judged under S and the others under R, with the other charge beside"
)
SCHEDULED = (
    "the cost model for Aurora's prototype on a 2.0 GHz Pentium IV: 16 µs a box call, and 0.55 ms for each box or superbox that is "
    "scheduled, which 3.4.5's saving of almost half needs with boxes of 0.55 ms; chapter 4 leaves at most 67 µs for the same, so the "
    "chapters differ"
)
READINGS = ("R", "S")
TURNS = "round-robin:order=random,seed=1"
FIXED = "fixed-priority:schedule=10"
FIXED_PUSH = "fixed-priority-push-through:schedule=10"
SLOPE = "slope-slack:schedule=10"
SLOPE_PUSH = "slope-slack-push-through:schedule=10"
BOXES_AND_CALLS_A_SECOND = 1_724.0
"""Tuples a second that five boxes of 0.1 ms and their calls of 16 µs can take: what stands for a rate that fills the machine where the
thesis names none."""
TUPLES: dict[Scale, int] = {"reduced": 1_200, "medium": 12_000, "full": 40_000}


def title(policy: str) -> str:
    """Return a policy's name for readers, without its options."""
    return TITLES.get(policy.split(":", maxsplit=1)[0], policy)


def case(
    scale: Scale,
    policy: str,
    rate: float,
    network: Mapping[str, Any],
    *,
    tuples: int | None = None,
    seed: int = 1,
    function: str = "chains",
) -> ExperimentCase:
    """Return one run of a network at a rate."""
    parameters = {**network, "policy": policy, "rate": rate, "tuples": tuples or TUPLES[scale], "seed": seed}
    return ExperimentCase(f"carney_runs:{function}", parameters)


def beside(judge: Callable[[str], Sequence[Claim]], charge: str) -> list[Claim]:
    """Judge under one charge, and say beside it what the other one gives."""
    other = "S" if charge == "R" else "R"

    def told(claim: Claim) -> str:
        return f"under charge {other}: {claim.ours}, {'holds' if claim.holds else 'does not hold'}"

    pairs = zip(judge(charge), judge(other), strict=True)
    return [replace(one, note="; ".join(filter(None, (one.note, told(beside_it))))) for one, beside_it in pairs]


class CarneySweep:
    """Policies by rates over one network."""

    def __init__(
        self,
        policies: Sequence[str],
        rates: Mapping[Scale, Sequence[float]],
        network: Mapping[str, Any],
        *,
        function: str = "chains",
        tuples: Mapping[Scale, int] | None = None,
        seeds: Sequence[int] = (1,),
        reading: str = "R",
    ) -> None:
        self.policies, self.rates, self.network, self.reading = policies, rates, {**network, "reading": reading}, reading
        self.function, self.tuples, self.seeds = function, tuples or TUPLES, seeds

    def under(self, reading: str) -> CarneySweep:
        """Return the same sweep with another charge for deciding."""
        return CarneySweep(
            self.policies, self.rates, self.network, function=self.function, tuples=self.tuples, seeds=self.seeds, reading=reading
        )

    def case(self, scale: Scale, policy: str, rate: float, seed: int) -> ExperimentCase:
        """Return one run."""
        return case(scale, policy, rate, self.network, tuples=self.tuples[scale], seed=seed, function=self.function)

    def cases(self, scale: Scale) -> list[ExperimentCase]:
        """Return all runs."""
        return [self.case(scale, policy, rate, seed) for policy in self.policies for rate in self.rates[scale] for seed in self.seeds]

    def value(self, results: Results, scale: Scale, policy: str, rate: float, measure: str) -> float:
        """Return a measure, averaged over seeds."""
        return mean([float(results(self.case(scale, policy, rate, seed))[measure]) for seed in self.seeds])

    def average(self, results: Results, scale: Scale, policy: str, measure: str = "qos") -> float:
        """Return a measure averaged over the rates: the area under a curve."""
        return mean([self.value(results, scale, policy, rate, measure) for rate in self.rates[scale]])

    def sustained(self, results: Results, scale: Scale, policy: str, level: float) -> float:
        """Return the highest rate up to which the QoS never is below `level`; 0 when it always is."""
        found = 0.0
        for rate in sorted(self.rates[scale]):
            if self.value(results, scale, policy, rate, "qos") < level:
                break
            found = rate
        return found

    def rows(self, results: Results, scale: Scale, measures: Sequence[str]) -> list[Row]:
        """Return the data."""
        return [
            {"policy": title(policy), "rate": rate, **{name: self.value(results, scale, policy, rate, name) for name in measures}}
            for policy in self.policies
            for rate in self.rates[scale]
        ]

    def panel(self, results: Results, scale: Scale, heading: str, measure: str = "qos", y_label: str = "average QoS") -> Panel:
        """Return curves of a measure against the rate."""
        rates = list(self.rates[scale])
        lines = [
            Line(title(policy), rates, [self.value(results, scale, policy, rate, measure) for rate in rates]) for policy in self.policies
        ]
        return Panel(heading, "tuples a second", y_label, lines)
