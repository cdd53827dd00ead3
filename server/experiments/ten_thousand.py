"""What deciding costs with many applications on the real engine (Carney 2005, table 4.5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.scheduler.experiments.frame import Claim, ExperimentCase, Findings, Result, Row, Scale, Scenario, ordered, percent
from millstream.scheduler.simulation.plots import Line, Panel  # fmt: skip

_SHARES = {"bucketing-push-through": 0.04, "fixed-priority-push-through": 0.075, "slope-slack-push-through": 0.16}
_SIZE: dict[Scale, tuple[int, int]] = {"reduced": (100, 6), "medium": (300, 60), "full": (1_000, 60)}
_BOXES = 10


def _case(scale: Scale, policy: str) -> ExperimentCase:
    applications, rounds = _SIZE[scale]
    parameters = {"policy": f"{policy}:schedule=10", "applications": applications, "boxes": _BOXES, "rounds": rounds}
    return ExperimentCase("millstream.server.experiments.overhead:applications", parameters)


def _cases(scale: Scale) -> Sequence[ExperimentCase]:
    return [_case(scale, policy) for policy in _SHARES]


def _judge(scale: Scale, results: Callable[[ExperimentCase], Result]) -> Findings:
    found = {policy: results(_case(scale, policy)) for policy in _SHARES}
    total = {policy: one["deciding_ns"] + one["running_ns"] for policy, one in found.items()}
    share = {policy: one["choosing_ns"] / total[policy] for policy, one in found.items()}
    whole = {policy: one["deciding_ns"] / total[policy] for policy, one in found.items()}
    claims = [
        Claim(
            f"choosing takes at most this share under {policy}",
            percent(paper),
            f"{100 * share[policy]:.1f}%",
            share[policy] <= paper,
            f"with the books that the scheduler keeps {100 * whole[policy]:.1f}%",
        )
        for policy, paper in _SHARES.items()
    ]
    claims.append(ordered("bucketing costs least to choose, slope-slack most", list(share), list(share.values())))
    rows: list[Row] = [
        {"policy": policy, "choosing_share": share[policy], "deciding_share": whole[policy], **one} for policy, one in found.items()
    ]
    lines = [
        Line("paper", list(_SHARES), [100 * one for one in _SHARES.values()]),
        Line("here, choosing", list(_SHARES), [100 * share[policy] for policy in _SHARES]),
        Line("here, with the books", list(_SHARES), [100 * whole[policy] for policy in _SHARES]),
    ]
    return Findings(rows, claims, [Panel("Deciding", "", "% of processor time", lines, kind="bar")])


SCENARIO = Scenario(
    "c-10000-live",
    "Carney 2005, table 4.5 (live)",
    "what deciding costs with thousands of boxes, on the real engine",
    "Applications of ten filters on ten streams, deadlines 75, 150, 225 and 300 ms in turn, rows one at a time, ten units a decision, "
    "each box called by itself; 100 applications at reduced scale, 1000 at full.",
    _cases,
    _judge,
    (
        "choosing is what the selector does: looking, ranking and moving between buckets; the rest of deciding keeps counts, estimates, "
        "orders and receipts, which Aurora's share does not seem to count",
        "filters of one integer for boxes of 5 µs; a call of such a filter costs several times that",
        "rows one at a time, the dearest case here: deciding costs by the order and the operator, not by the row; "
        "`millstream bench dispatch` shows trains of a hundred rows",
    ),
)
