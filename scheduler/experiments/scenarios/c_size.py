"""Schedule size (Carney 2005, 4.4.1, figures 4.5 and 4.6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millstream.scheduler.experiments.frame import Claim, ExperimentCase, Findings, Result, Row, Scale, Scenario
from millstream.scheduler.experiments.scenarios.c_qos import NETWORK
from millstream.scheduler.experiments.scenarios.carney_sweep import (
    BOXES_AND_CALLS_A_SECOND,
    CHARGED,
    READINGS,
    Results,
    beside,
    case,
    title,
)
from millstream.scheduler.simulation.plots import Line, Panel

_RATE = 1_200.0
_POLICIES = ("fixed-priority", "slope-slack")
_COUNTS: dict[Scale, tuple[int, ...]] = {
    "reduced": (1, 10, 100),
    "medium": (1, 3, 10, 30, 100),
    "full": (1, 2, 5, 10, 20, 50, 100),
}


def _case(scale: Scale, policy: str, size: int, reading: str, rate: float = _RATE) -> ExperimentCase:
    return case(scale, f"{policy}:schedule={size}", rate, {**NETWORK, "reading": reading})


_HEAVY_SIZES = (1, 10, 100)


def _cases(scale: Scale) -> Sequence[ExperimentCase]:
    return [
        *(_case(scale, policy, size, reading) for reading in READINGS for policy in _POLICIES for size in _COUNTS[scale]),
        *(_case(scale, policy, size, "R", BOXES_AND_CALLS_A_SECOND) for policy in _POLICIES for size in _HEAVY_SIZES),
    ]


def _heavy(scale: Scale, results: Results, policy: str) -> str:
    """Return the QoS where boxes and calls alone fill the machine."""
    found = [float(results(_case(scale, policy, size, "R", BOXES_AND_CALLS_A_SECOND))["qos"]) for size in _HEAVY_SIZES]
    listed = ", ".join(f"{size}: {qos:.3f}" for size, qos in zip(_HEAVY_SIZES, found, strict=True))
    return f"1,200 a second are 70% of the capacity of boxes and calls here; at 1,724, the full capacity, {listed}"


Table = Mapping[str, Sequence[Result]]


def _claims(scale: Scale, results: Results, table: Table, reading: str) -> list[Claim]:
    sizes = _COUNTS[scale]
    claims = []
    for policy, found in table.items():
        qos = [float(one["qos"]) for one in found]
        best = sizes[qos.index(max(qos))]
        listed = ", ".join(f"{size}: {value:.3f}" for size, value in zip(sizes, qos, strict=True))
        holds = qos[0] < max(qos) and qos[-1] < max(qos) and 5 <= best <= 20
        claims.append(
            Claim(
                f"{title(policy)}: QoS is low at size 1, peaks near 10 and falls towards 100",
                "peak near 10",
                listed,
                holds,
                _heavy(scale, results, policy) if reading == "R" else "the charge is the least that this experiment's text allows",
            )
        )
        share = [float(one["decision_share"]) for one in found]
        claims.append(
            Claim(
                f"{title(policy)}: the overhead falls as schedules grow",
                "falls",
                f"{share[0]:.3f} at 1, {share[-1]:.3f} at {sizes[-1]}",
                share[-1] < share[0],
            )
        )
    return claims


def _judge(scale: Scale, results: Results) -> Findings:
    sizes = _COUNTS[scale]
    tables: dict[str, Table] = {
        reading: {policy: [results(_case(scale, policy, size, reading)) for size in sizes] for policy in _POLICIES} for reading in READINGS
    }
    rows: list[Row] = [
        {"charge": reading, "policy": title(policy), "schedule": size, "qos": one["qos"], "decision_share": one["decision_share"]}
        for reading, table in tables.items()
        for policy, found in table.items()
        for size, one in zip(sizes, found, strict=True)
    ]
    panels = [
        Panel(
            heading,
            "boxes a schedule",
            heading,
            [
                Line(f"{title(policy)}, charge {reading}", sizes, [float(one[measure]) for one in found])
                for reading, table in tables.items()
                for policy, found in table.items()
            ],
            x_log=True,
        )
        for measure, heading in (("qos", "average QoS"), ("decision_share", "share of time spent deciding"))
    ]
    return Findings(rows, beside(lambda reading: _claims(scale, results, tables[reading], reading), "S"), panels)


SCENARIO = Scenario(
    "c-size",
    "Carney 2005, fig. 4.5, 4.6",
    "schedule size",
    f"The network of c-qos at {_RATE:g} tuples a second.",
    _cases,
    _judge,
    (CHARGED,),
)
