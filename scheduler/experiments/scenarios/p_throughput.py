"""How smooth the output is (Pajjuri 2004, 6.4, figures 6.3 to 6.6)."""

from __future__ import annotations

from millstream.scheduler.experiments.frame import Claim, Findings, Scale, Scenario, ordered
from millstream.scheduler.experiments.scenarios import pajjuri_sweep as sweep
from millstream.scheduler.simulation.plots import Line, Panel

_PAPER = {100.0: (237, 298, 365, 386), 500.0: (255, 312, 395, 459), 900.0: (289, 353, 417, 474)}


def _silent(results: sweep.Results, scale: Scale, rate: float) -> str:
    """Return in how many of the seconds up to the last output there was none."""

    def share(policy: str) -> float:
        made = results(sweep.case(scale, policy, rate, 1, "poisson"))["outputs_per_s"]
        return sum(1 for outputs in made if not outputs) / len(made)

    listed = ", ".join(f"{title} {share(policy):.0%}" for policy, title in sweep.POLICIES.items())
    return (
        "path capacity stays with the path of one stream while it has tuples, and meanwhile a join of two streams gives nothing; "
        f"seconds without output: {listed}"
    )


def _judge(scale: Scale, results: sweep.Results) -> Findings:
    claims: list[Claim] = []
    for rate, paper in _PAPER.items():
        ours = [sweep.value(results, scale, policy, rate, "throughput_deviation_per_s") for policy in sweep.POLICIES]
        claims.append(
            ordered(
                f"at {rate:g} tuples a second the deviation of outputs a second ascends in this order",
                list(sweep.POLICIES.values()),
                ours,
                note=_silent(results, scale, rate),
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
        for rate in _PAPER
    ]
    return Findings(sweep.rows(results, scale, "throughput_deviation_per_s"), claims, panels)


SCENARIO = Scenario(
    "p-throughput", "Pajjuri 2004, fig. 6.3-6.6", "how smooth the output is", sweep.SETUP, sweep.cases, _judge, sweep.SUBSTITUTED
)
