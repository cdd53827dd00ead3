"""The experiments of Pajjuri 2004, chapter 5: latency, throughput and memory of six policies, and a burst."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.scheduler.experiments.frame import Claim, ExperimentCase, Findings, Scale, Scenario, at_least_half, mean, ordered, reduction
from millstream.scheduler.experiments.scenarios import pajjuri_sweep as sweep
from millstream.scheduler.simulation.plots import Line, Panel

# ---- p-latency
# Average tuple latency against rate (Pajjuri 2004, 6.2, figure 6.1).


def _latency_judge(scale: Scale, results: sweep.Results) -> Findings:
    claims: list[Claim] = []
    for traffic, title in sweep.TRAFFIC.items():
        averages = {
            policy: mean([sweep.value(results, scale, policy, rate, "response_ms_mean", traffic) for rate in sweep.RATES[scale]])
            for policy in sweep.POLICIES
        }
        claims.append(
            ordered(
                f"{title}: latency of path capacity < simplified segment < segment < round-robin, over all rates",
                list(sweep.POLICIES.values()),
                list(averages.values()),
                note="; ".join(
                    (sweep.pace_note(results, scale, "response_ms_mean", "ms"), sweep.quanta_note(results, scale, "response_ms_mean"))
                ),
            )
        )
        saved = mean(
            [
                reduction(
                    *(sweep.value(results, scale, policy, rate, "response_ms_mean", traffic) for policy in ("path-capacity", "segment"))
                )
                for rate in sweep.RATES[scale]
            ]
        )
        claims.append(at_least_half(f"{title}: path capacity is below segment, averaged over rates", 0.13, saved))
    grows = all(
        sweep.value(results, scale, policy, sweep.RATES[scale][0], "response_ms_mean")
        < sweep.value(results, scale, policy, sweep.RATES[scale][-1], "response_ms_mean")
        for policy in sweep.POLICIES
    )
    claims.append(Claim("latency grows with the rate under every policy", "grows", "grows" if grows else "does not grow everywhere", grows))
    return Findings(
        sweep.rows(results, scale, "response_ms_mean"), claims, sweep.panels(results, scale, "response_ms_mean", "average latency, ms")
    )


LATENCY = Scenario(
    "p-latency", "Pajjuri 2004, fig. 6.1", "latency against rate", sweep.SETUP, sweep.cases, _latency_judge, sweep.SUBSTITUTED
)


# ---- p-throughput
# How smooth the output is (Pajjuri 2004, 6.4, figures 6.3 to 6.6).

_THROUGHPUT_PAPER = {100.0: (237, 298, 365, 386), 500.0: (255, 312, 395, 459), 900.0: (289, 353, 417, 474)}


def _throughput_silent(results: sweep.Results, scale: Scale, rate: float) -> str:
    """Return in how many of the seconds up to the last output there was none."""

    def share(policy: str) -> float:
        made = results(sweep.case(scale, policy, rate, 1, "poisson"))["outputs_per_s"]
        return sum(1 for outputs in made if not outputs) / len(made)

    listed = ", ".join(f"{title} {share(policy):.0%}" for policy, title in sweep.POLICIES.items())
    return (
        "path capacity stays with the path of one stream while it has tuples, and meanwhile a join of two streams gives nothing; "
        f"seconds without output: {listed}"
    )


def _throughput_judge(scale: Scale, results: sweep.Results) -> Findings:
    claims: list[Claim] = []
    for rate, paper in _THROUGHPUT_PAPER.items():
        ours = [sweep.value(results, scale, policy, rate, "throughput_deviation_per_s") for policy in sweep.POLICIES]
        claims.append(
            ordered(
                f"at {rate:g} tuples a second the deviation of outputs a second ascends in this order",
                list(sweep.POLICIES.values()),
                ours,
                note=_throughput_silent(results, scale, rate)
                + (f"; {sweep.quanta_note(results, scale, 'throughput_deviation_per_s')}" if rate == sweep.QUANTA_RATE else ""),
                paper=" < ".join(f"{name} {number}" for name, number in zip(sweep.POLICIES.values(), paper, strict=True)),
            )
        )
    panels = [
        Panel(
            f"Poisson, {rate:g} tuples a second",
            "s",
            "outputs a second",
            [
                Line(title, range(len(made)), made)
                for policy, title in sweep.POLICIES.items()
                for made in [results(sweep.case(scale, policy, rate, 1, "poisson"))["outputs_per_s"]]
            ],
            kind="step",
        )
        for rate in _THROUGHPUT_PAPER
    ]
    return Findings(sweep.rows(results, scale, "throughput_deviation_per_s"), claims, panels)


THROUGHPUT = Scenario(
    "p-throughput", "Pajjuri 2004, fig. 6.3-6.6", "how smooth the output is", sweep.SETUP, sweep.cases, _throughput_judge, sweep.SUBSTITUTED
)


# ---- p-memory
# Maximum memory against rate (Pajjuri 2004, 6.3, figure 6.2).


def _memory_judge(scale: Scale, results: sweep.Results) -> Findings:
    claims: list[Claim] = []
    for traffic, title in sweep.TRAFFIC.items():
        most = {
            policy: mean([sweep.value(results, scale, policy, rate, "memory_bytes_max", traffic) for rate in sweep.RATES[scale]])
            for policy in sweep.POLICIES
        }
        others = min(most["path-capacity"], most["round-robin"])
        listed = ", ".join(f"{sweep.POLICIES[policy]} {number:.4g}" for policy, number in most.items())
        holds = most["segment"] <= most["simplified-segment"] < others
        text = f"{title}: maximum memory of segment <= simplified segment < path capacity and round-robin, over all rates"
        note = f"{sweep.pace_note(results, scale, 'memory_bytes_max', 'bytes')}; {sweep.quanta_note(results, scale, 'memory_bytes_max')}"
        claims.append(Claim(text, "this order", listed, holds, note))
    return Findings(
        sweep.rows(results, scale, "memory_bytes_max"), claims, sweep.panels(results, scale, "memory_bytes_max", "maximum memory, bytes")
    )


MEMORY = Scenario(
    "p-memory", "Pajjuri 2004, fig. 6.2", "maximum memory against rate", sweep.SETUP, sweep.cases, _memory_judge, sweep.SUBSTITUTED
)


# ---- p-burst
# Memory over time under bursts (Pajjuri 2004, 6.5, figure 6.7).

_BURST_POLICIES = ("segment", "simplified-segment", "path-capacity", "round-robin")
_BURST_SIZES: dict[Scale, tuple[int, int, int]] = {"reduced": (50, 10, 40), "medium": (500, 10, 4), "full": (2_000, 10, 1)}


def _burst_case(scale: Scale, policy: str) -> ExperimentCase:
    window, windows, quick = _BURST_SIZES[scale]
    return ExperimentCase("pajjuri_runs:burst", {"policy": policy, "window": window, "windows": windows, "seed": 1, "quick": quick})


def _burst_cases(scale: Scale) -> Sequence[ExperimentCase]:
    return [_burst_case(scale, policy) for policy in _BURST_POLICIES]


def _burst_judge(scale: Scale, results: sweep.Results) -> Findings:
    found = {policy: results(_burst_case(scale, policy)) for policy in _BURST_POLICIES}
    names = [sweep.POLICIES[policy] for policy in _BURST_POLICIES[:3]]

    def least(measure: str) -> tuple[list[str], list[float]]:
        others = min(float(found[policy][measure]) for policy in _BURST_POLICIES[1:])
        return ["segment", "the least of the others"], [float(found["segment"][measure]), others]

    claims = [
        ordered("segment's memory is lowest on the average", *least("memory_bytes_mean")),
        ordered("segment's memory is flattest (least deviation over time)", *least("memory_deviation")),
        ordered(
            "maximum memory: segment, then simplified segment, then path capacity",
            names,
            [float(found[policy]["memory_bytes_max"]) for policy in _BURST_POLICIES[:3]],
        ),
    ]
    rows = [
        {
            "policy": sweep.POLICIES[policy],
            **{name: found[policy][name] for name in ("memory_bytes_mean", "memory_bytes_max", "memory_deviation")},
        }
        for policy in _BURST_POLICIES
    ]
    lines = [Line(sweep.POLICIES[policy], found[policy]["at_s"], found[policy]["bytes"]) for policy in _BURST_POLICIES]
    return Findings(rows, claims, [Panel("Bursts of 80 a second", "s", "bytes in queues", lines, kind="step")])


BURST = Scenario(
    "p-burst",
    "Pajjuri 2004, fig. 6.7",
    "memory over time under bursts",
    "The query of p-latency with windows of 2000 tuples, 10 windows; 40 tuples a second on each stream, "
    "80 from 150 to 200 s and from 300 to 350 s.",
    _burst_cases,
    _burst_judge,
    (
        sweep.QUERY,
        "the costs: the machine of p-latency, with a join over twice the window at twice the cost, so the capacity is 30 tuples a "
        "second: in the thesis, memory rises as long as tuples arrive",
        sweep.SUBSTITUTED[2],
    ),
)


SCENARIOS = {scenario.name: scenario for scenario in (LATENCY, THROUGHPUT, MEMORY, BURST)}
