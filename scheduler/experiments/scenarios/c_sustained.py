"""One application overloaded for the whole run (Carney 2005, 4.6.1, table 4.6)."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.scheduler.experiments.frame import Claim, ExperimentCase, Findings, Scale, Scenario
from millstream.scheduler.experiments.scenarios.c_qos import NETWORK
from millstream.scheduler.experiments.scenarios.carney_sweep import CHARGED, FIXED_PUSH, SLOPE_PUSH, TUPLES, Results, title
from millstream.scheduler.simulation.plots import Line, Panel


def _case(scale: Scale, policy: str) -> ExperimentCase:
    parameters = {**NETWORK, "policy": policy, "tuples": TUPLES[scale], "seed": 1, "load": 1.05, "share": 0.54}
    return ExperimentCase("carney_runs:sustained", parameters)


def _short(policy: str) -> str:
    return f"{policy},train=5"


def _cases(scale: Scale) -> Sequence[ExperimentCase]:
    return [_case(scale, policy) for one in (FIXED_PUSH, SLOPE_PUSH) for policy in (one, _short(one))]


def _judge(scale: Scale, results: Results) -> Findings:
    fixed, slope = results(_case(scale, FIXED_PUSH)), results(_case(scale, SLOPE_PUSH))
    short = {policy: float(results(_case(scale, _short(policy)))["qos"]) for policy in (FIXED_PUSH, SLOPE_PUSH)}
    claims = [
        Claim(
            "average QoS of applications: slope-slack push-through above fixed",
            "0.90 against 0.65",
            f"{slope['qos']:.2f} against {fixed['qos']:.2f}",
            slope["qos"] - fixed["qos"] >= 0.125,
            "slope-slack leaves the overloaded queue to the last, but a box takes all of its queue, and that train makes the others late; "
            f"with trains of at most five tuples {short[SLOPE_PUSH]:.2f} against {short[FIXED_PUSH]:.2f}",
        ),
        Claim(
            "per tuple it is the reverse",
            "0.46 against 0.74",
            f"{slope['utility_per_tuple']:.2f} against {fixed['utility_per_tuple']:.2f}",
            slope["utility_per_tuple"] < fixed["utility_per_tuple"],
        ),
    ]
    names = ("average by application", "average by tuple")
    lines = [
        Line(title(policy), names, [float(found["qos"]), float(found["utility_per_tuple"])])
        for policy, found in ((FIXED_PUSH, fixed), (SLOPE_PUSH, slope))
    ]
    rows = [
        {"policy": title(policy), "qos": found["qos"], "utility_per_tuple": found["utility_per_tuple"], "results": found["results"]}
        for policy, found in ((FIXED_PUSH, fixed), (SLOPE_PUSH, slope))
    ]
    return Findings(rows, claims, [Panel("One application overloaded", "", "QoS", lines, kind="bar")])


SCENARIO = Scenario(
    "c-sustained",
    "Carney 2005, table 4.6",
    "one tight application overloaded for the whole run",
    "The network of c-qos; the last tight application gets 54% of all tuples (what the thesis's QoS per "
    "tuple implies); all together are 105% of the ideal capacity.",
    _cases,
    _judge,
    (
        CHARGED,
        "the overload, because the thesis does not state it: a small one, because fixed priority still meets most deadlines of the "
        "overloaded application (its two averages imply 84%)",
    ),
)
