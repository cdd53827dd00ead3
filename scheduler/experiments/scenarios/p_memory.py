"""Maximum memory against rate (Pajjuri 2004, 6.3, figure 6.2)."""

from __future__ import annotations

from millstream.scheduler.experiments.frame import Claim, Findings, Scale, Scenario, mean
from millstream.scheduler.experiments.scenarios import pajjuri_sweep as sweep


def _judge(scale: Scale, results: sweep.Results) -> Findings:
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
        claims.append(Claim(text, "this order", listed, holds, sweep.pace_note(results, scale, "memory_bytes_max", "bytes")))
    return Findings(
        sweep.rows(results, scale, "memory_bytes_max"), claims, sweep.panels(results, scale, "memory_bytes_max", "maximum memory, bytes")
    )


SCENARIO = Scenario(
    "p-memory", "Pajjuri 2004, fig. 6.2", "maximum memory against rate", sweep.SETUP, sweep.cases, _judge, sweep.SUBSTITUTED
)
