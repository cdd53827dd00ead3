"""The measures of Sharaf 2007 against load, chapter 3: one grid of runs serves all of these experiments."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.scheduler.experiments.frame import (
    Claim,
    ExperimentCase,
    Findings,
    Row,
    Scale,
    Scenario,
    at_least_half,
    percent,
    reduction,
    within,
)
from millstream.scheduler.experiments.scenarios import sharaf_grid as grid
from millstream.scheduler.simulation.plots import Line, Panel

# ---- s-slowdown
# Average slowdown against load (Sharaf 2007, 3.8.1.1, figure 7), and the same order under other arrivals as a control.

_SLOWDOWN_POLICIES = ("rr", "fcfs", "srpt", "hr", "hnr")
_SLOWDOWN_PAPER = {0.7: {"rr": 0.74, "srpt": 0.51, "hr": 0.18}, 0.97: {"rr": 0.75, "srpt": 0.53, "hr": 0.20}}
_SLOWDOWN_CONTROLS = {"bc-paug89": "BC-pAug89, burstier", "on-off": "on/off sources, Hurst 0.8", "poisson": "Poisson"}
_SLOWDOWN_CONTROL_LOAD = 0.7
_SLOWDOWN_RIVALS = ("rr", "srpt", "hr", "hnr")


def _slowdown_cases(scale: Scale) -> Sequence[ExperimentCase]:
    return grid.cases(scale, _SLOWDOWN_POLICIES) + [
        grid.case(scale, policy, _SLOWDOWN_CONTROL_LOAD, 1, traffic) for traffic in _SLOWDOWN_CONTROLS for policy in _SLOWDOWN_RIVALS
    ]


def _slowdown_controls(results: grid.Results, scale: Scale) -> dict[str, dict[str, float]]:
    return {
        traffic: {
            policy: float(results(grid.case(scale, policy, _SLOWDOWN_CONTROL_LOAD, 1, traffic))["slowdown_mean"])
            for policy in _SLOWDOWN_RIVALS
        }
        for traffic in _SLOWDOWN_CONTROLS
    }


def _slowdown_judge(scale: Scale, results: grid.Results) -> Findings:
    claims: list[Claim] = []
    for load, effects in _SLOWDOWN_PAPER.items():
        ours = {policy: grid.value(results, scale, policy, load, "slowdown_mean") for policy in _SLOWDOWN_POLICIES}
        for other, paper in effects.items():
            text = f"at {load} HNR's average slowdown is below {grid.TITLES[other]}'s"
            claims.append(at_least_half(text, paper, reduction(ours["hnr"], ours[other])))
    controls = _slowdown_controls(results, scale)
    for traffic, found in controls.items():
        text = f"control, {_SLOWDOWN_CONTROLS[traffic]}, load {_SLOWDOWN_CONTROL_LOAD}: HNR's average slowdown is the least"
        listed = ", ".join(f"{grid.TITLES[policy]} {number:.4g}" for policy, number in found.items())
        claims.append(Claim(text, "HNR least", listed, found["hnr"] == min(found.values())))
    rows: list[Row] = grid.rows(results, scale, _SLOWDOWN_POLICIES, ("slowdown_mean",))
    rows += [
        {"policy": grid.TITLES[policy], "load": _SLOWDOWN_CONTROL_LOAD, "seed": 1, "slowdown_mean": number, "traffic": traffic}
        for traffic, found in controls.items()
        for policy, number in found.items()
    ]
    names = list(_SLOWDOWN_CONTROLS)
    panels = [
        grid.curves(results, scale, _SLOWDOWN_POLICIES, "slowdown_mean", "Average slowdown, DEC-PKT-1", "times the ideal"),
        Panel(
            f"Other arrivals, utilisation {_SLOWDOWN_CONTROL_LOAD}",
            "",
            "times the ideal",
            [Line(grid.TITLES[policy], names, [controls[traffic][policy] for traffic in names]) for policy in _SLOWDOWN_RIVALS],
            kind="bar",
            y_log=True,
        ),
    ]
    return Findings(rows, claims, panels)


SLOWDOWN = Scenario(
    "s-slowdown", "Sharaf 2007, fig. 7", "average slowdown against load", grid.SETUP, _slowdown_cases, _slowdown_judge, grid.SUBSTITUTED
)


# ---- s-response
# Average response time against load (Sharaf 2007, 3.8.1.2, figure 8).

_RESPONSE_POLICIES = ("rr", "fcfs", "srpt", "hr", "hnr")


def _response_cases(scale: Scale) -> Sequence[ExperimentCase]:
    return grid.cases(scale, _RESPONSE_POLICIES)


def _response_judge(scale: Scale, results: grid.Results) -> Findings:
    claims: list[Claim] = []
    for load, paper in ((0.7, 0.04), (0.97, 0.07)):
        ours = {policy: grid.value(results, scale, policy, load, "response_ms_mean") for policy in _RESPONSE_POLICIES}
        best = min(ours, key=lambda policy: ours[policy])
        listed = ", ".join(f"{grid.TITLES[policy]} {number:.3g} ms" for policy, number in ours.items())
        claims.append(Claim(f"at {load} HR has the lowest average response time", "HR", listed, best == "hr"))
        excess = ours["hnr"] / ours["hr"] - 1.0
        claims.append(Claim(f"at {load} HNR is a little above HR", percent(paper), percent(excess), 0.0 <= excess <= 2.0 * paper))
    ratio = grid.value(results, scale, "fcfs", 0.97, "response_ms_mean") / grid.value(results, scale, "hr", 0.97, "response_ms_mean")
    claims.append(Claim("at 0.97 FCFS has several times the response time of HR", "630%", percent(ratio), 3.15 <= ratio <= 12.6))
    panel = grid.curves(results, scale, _RESPONSE_POLICIES, "response_ms_mean", "Average response time", "ms")
    return Findings(grid.rows(results, scale, _RESPONSE_POLICIES, ("response_ms_mean",)), claims, [panel])


RESPONSE = Scenario(
    "s-response",
    "Sharaf 2007, fig. 8",
    "average response time against load",
    grid.SETUP,
    _response_cases,
    _response_judge,
    grid.SUBSTITUTED,
)


# ---- s-max
# Maximum response time and maximum slowdown against load (Sharaf 2007, 3.8.1.3 and 3.8.1.4, figures 9 and 10).

_MAX_POLICIES = ("fcfs", "lsf", "hr", "hnr", "brt", "bsd-naive")


def _max_cases(scale: Scale) -> Sequence[ExperimentCase]:
    return grid.cases(scale, _MAX_POLICIES)


def _max_judge(scale: Scale, results: grid.Results) -> Findings:
    def at(policy: str, measure: str) -> float:
        return grid.value(results, scale, policy, 0.97, measure)

    claims = [
        at_least_half(
            "at 0.97 FCFS's maximum response time is below HR's",
            0.75,
            reduction(at("fcfs", "response_ms_max"), at("hr", "response_ms_max")),
        ),
        at_least_half(
            "at 0.97 LSF's maximum slowdown is below HNR's", 0.80, reduction(at("lsf", "slowdown_max"), at("hnr", "slowdown_max"))
        ),
    ]
    panels = [
        grid.curves(results, scale, _MAX_POLICIES, "response_ms_max", "Maximum response time", "ms"),
        grid.curves(results, scale, _MAX_POLICIES, "slowdown_max", "Maximum slowdown", "times the ideal"),
    ]
    return Findings(grid.rows(results, scale, _MAX_POLICIES, ("response_ms_max", "slowdown_max")), claims, panels)


MAX = Scenario(
    "s-max",
    "Sharaf 2007, fig. 9, 10",
    "maximum response time and slowdown against load",
    grid.SETUP,
    _max_cases,
    _max_judge,
    grid.SUBSTITUTED,
)


# ---- s-tradeoff
# Average against maximum slowdown of HNR, LSF and BSD (Sharaf 2007, 3.8.1.5, figure 11).

_TRADEOFF_POLICIES = ("hnr", "lsf", "bsd-naive")


def _tradeoff_cases(scale: Scale) -> Sequence[ExperimentCase]:
    return grid.cases(scale, _TRADEOFF_POLICIES)


def _tradeoff_judge(scale: Scale, results: grid.Results) -> Findings:
    load = grid.nearest(scale, 0.95)

    def at(policy: str, measure: str) -> float:
        return grid.value(results, scale, policy, load, measure)

    claims = [
        at_least_half(
            f"at {load} BSD's maximum slowdown is below HNR's", 0.44, reduction(at("bsd-naive", "slowdown_max"), at("hnr", "slowdown_max"))
        ),
        at_least_half(
            f"at {load} BSD's average slowdown is below LSF's",
            0.80,
            reduction(at("bsd-naive", "slowdown_mean"), at("lsf", "slowdown_mean")),
        ),
    ]
    lines = [Line(grid.TITLES[policy], [at(policy, "slowdown_mean")], [at(policy, "slowdown_max")]) for policy in _TRADEOFF_POLICIES]
    panels = [Panel(f"At utilisation {load}", "average slowdown", "maximum slowdown", lines, x_log=True, y_log=True)]
    return Findings(grid.rows(results, scale, _TRADEOFF_POLICIES, ("slowdown_mean", "slowdown_max")), claims, panels)


TRADEOFF = Scenario(
    "s-tradeoff", "Sharaf 2007, fig. 11", "average against maximum slowdown", grid.SETUP, _tradeoff_cases, _tradeoff_judge, grid.SUBSTITUTED
)


# ---- s-l2
# The l2 norms of slowdown and of response time against load (Sharaf 2007, 3.8.1.6 and 3.8.1.7, figures 12 and 13).

_L2_SLOWDOWN = ("lsf", "hnr", "bsd-naive")
_L2_RESPONSE = ("fcfs", "hr", "brt")


def _l2_cases(scale: Scale) -> Sequence[ExperimentCase]:
    return grid.cases(scale, (*_L2_SLOWDOWN, *_L2_RESPONSE))


def _l2_judge(scale: Scale, results: grid.Results) -> Findings:
    claims = []
    for measure, policy, other, paper in (
        ("slowdown_l2", "bsd-naive", "lsf", 0.57),
        ("slowdown_l2", "bsd-naive", "hnr", 0.24),
        ("response_ms_l2", "brt", "fcfs", 0.51),
        ("response_ms_l2", "brt", "hr", 0.23),
    ):
        what = "slowdown" if measure.startswith("slowdown") else "response time"
        text = f"l2 of {what}: {grid.TITLES[policy]} is up to so much below {grid.TITLES[other]}"
        claims.append(at_least_half(text, paper, grid.greatest_reduction(results, scale, policy, other, measure)))
    panels = [
        grid.curves(results, scale, _L2_SLOWDOWN, "slowdown_l2", "l2 norm of slowdown", "l2"),
        grid.curves(results, scale, _L2_RESPONSE, "response_ms_l2", "l2 norm of response time", "l2, ms"),
    ]
    rows = grid.rows(results, scale, (*_L2_SLOWDOWN, *_L2_RESPONSE), ("slowdown_l2", "response_ms_l2"))
    return Findings(rows, claims, panels)


L2 = Scenario("s-l2", "Sharaf 2007, fig. 12, 13", "l2 norms against load", grid.SETUP, _l2_cases, _l2_judge, grid.SUBSTITUTED)


# ---- s-class
# Slowdown of low-cost queries by selectivity (Sharaf 2007, 3.8.1.8, figure 14).

_CLASS_POLICIES = ("hr", "hnr", "bsd-naive")


def _class_cases(scale: Scale) -> Sequence[ExperimentCase]:
    return grid.cases(scale, _CLASS_POLICIES, [grid.nearest(scale, 0.95)])


def _class_by_selectivity(scale: Scale, results: grid.Results, policy: str) -> dict[int, float]:
    """Return mean slowdown of queries of the lowest cost by tenth of selectivity, over all seeds."""
    sums: dict[int, list[float]] = {}
    for seed in grid.SIZES[scale].seeds:
        for cost, tenth, slowdown, count in results(grid.case(scale, policy, grid.nearest(scale, 0.95), seed))["classes"]:
            if cost == 0:
                entry = sums.setdefault(int(tenth), [0.0, 0.0])
                entry[0] += slowdown * count
                entry[1] += count
    return {tenth: total / count for tenth, (total, count) in sorted(sums.items())}


def _class_judge(scale: Scale, results: grid.Results) -> Findings:
    table = {policy: _class_by_selectivity(scale, results, policy) for policy in _CLASS_POLICIES}
    bias = {policy: found[min(found)] / found[max(found)] for policy, found in table.items()}
    ours = ", ".join(f"{grid.TITLES[policy]} {number:.3g}" for policy, number in bias.items())
    claims = [
        Claim(
            "bias against unproductive queries (slowdown of the least over that of the most selective class of "
            "low cost) falls from HR over HNR to BSD",
            "HR > HNR > BSD",
            ours,
            bias["hr"] > bias["hnr"] > bias["bsd-naive"],
        )
    ]
    rows: list[Row] = [
        {"policy": grid.TITLES[policy], "selectivity_from": tenth / 10, "slowdown_mean": number}
        for policy, found in table.items()
        for tenth, number in found.items()
    ]
    lines = [Line(grid.TITLES[policy], [tenth / 10 for tenth in found], list(found.values())) for policy, found in table.items()]
    return Findings(rows, claims, [Panel("Queries of the lowest cost", "selectivity from", "average slowdown", lines, y_log=True)])


CLASS = Scenario(
    "s-class",
    "Sharaf 2007, fig. 14",
    "slowdown of low-cost queries by selectivity, load 0.95",
    grid.SETUP,
    _class_cases,
    _class_judge,
    grid.SUBSTITUTED,
)


# ---- s-memory
# Average memory against load, and Chain under the other measures (Sharaf 2007, 3.8.2, figures 25 and 26).

_MEMORY_POLICIES = ("chain", "hr", "brt", "hnr", "bsd-naive")


def _memory_cases(scale: Scale) -> Sequence[ExperimentCase]:
    return grid.cases(scale, _MEMORY_POLICIES)


def _memory_judge(scale: Scale, results: grid.Results) -> Findings:
    load = 0.97
    memory = {policy: grid.value(results, scale, policy, load, "memory_bytes_mean") for policy in _MEMORY_POLICIES}
    listed = ", ".join(f"{grid.TITLES[policy]} {number:.4g}" for policy, number in memory.items())
    slowdown = {policy: grid.value(results, scale, policy, load, "slowdown_mean") for policy in ("chain", "hnr")}
    claims = [
        Claim(f"at {load} Chain needs the least memory", "Chain least", listed, min(memory, key=lambda one: memory[one]) == "chain"),
        at_least_half(
            "HNR's memory is up to so much below HR's", 0.22, grid.greatest_reduction(results, scale, "hnr", "hr", "memory_bytes_mean")
        ),
        at_least_half(
            "BSD's memory is up to so much below HNR's",
            0.13,
            grid.greatest_reduction(results, scale, "bsd-naive", "hnr", "memory_bytes_mean"),
        ),
        within(f"at {load} Chain's average slowdown is a multiple of HNR's", 3.0, slowdown["chain"] / slowdown["hnr"]),
    ]
    panels = [
        grid.curves(results, scale, _MEMORY_POLICIES, "memory_bytes_mean", "Average memory in queues", "tuples"),
        grid.curves(results, scale, _MEMORY_POLICIES, "slowdown_mean", "Average slowdown", "times the ideal"),
    ]
    return Findings(grid.rows(results, scale, _MEMORY_POLICIES, ("memory_bytes_mean", "memory_bytes_max", "slowdown_mean")), claims, panels)


MEMORY = Scenario("s-memory", "Sharaf 2007, fig. 25, 26", "memory against load", grid.SETUP, _memory_cases, _memory_judge, grid.SUBSTITUTED)


SCENARIOS = {scenario.name: scenario for scenario in (SLOWDOWN, RESPONSE, MAX, TRADEOFF, L2, CLASS, MEMORY)}
