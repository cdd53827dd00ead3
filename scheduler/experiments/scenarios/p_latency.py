"""Average tuple latency against rate (Pajjuri 2004, 6.2, figure 6.1)."""

from __future__ import annotations

from millstream.scheduler.experiments.frame import Claim, Findings, Scale, Scenario, at_least_half, mean, ordered, reduction
from millstream.scheduler.experiments.scenarios import pajjuri_sweep as sweep


def _judge(scale: Scale, results: sweep.Results) -> Findings:
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
                note=sweep.pace_note(results, scale, "response_ms_mean", "ms"),
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


SCENARIO = Scenario("p-latency", "Pajjuri 2004, fig. 6.1", "latency against rate", sweep.SETUP, sweep.cases, _judge, sweep.SUBSTITUTED)
