"""What does not change while a core lives, and the counts it gives."""

from __future__ import annotations

from dataclasses import field

from millstream.engine.data.records import dataclass
from millstream.scheduler.limits import AGING, EDGE_ROWS_MAX, HEAD_WAIT_NS_MAX, WINDOW_TUPLES
from millstream.scheduler.trains import TrainShape


@dataclass(frozen=True, slots=True)
class CoreSettings:
    """What does not change while a core lives.

    `orders_max` is how many orders may be out at once (workers times orders per worker); `workers` is how many workers have operators of
    their own (`Placed`; 0: any worker runs any order), and then `worker_orders_max` how many orders one may have; `train` the train of
    policies that name none; `schedule` the units one decision gives out, likewise;
    `budget_ns` the time after which an order gives the worker back; `adapt` whether measurements replace declared values;
    `head_wait_ns_max` the wait after which a head is served whatever τ says; `record` whether a story is kept; `measure` whether
    results and memory are measured (`measures`); `window` the tuples over which costs and selectivities are measured, `aging` the weight
    of the newest window (α); `load` the load manager (`load.control`), None for none that even watches; `estimate_calls` how often every
    operator has been called on average before what was measured changes the sums that policies rank by (0: as soon as a 64th of the
    operators have news; chains that run as one wait longer in any case); `declared` whether costs that operators come with are theirs, as
    in a workload, or guesses until they are measured, as on a server.
    """

    orders_max: int = 1
    workers: int = 0
    worker_orders_max: int = 1
    train: TrainShape = field(default_factory=lambda: TrainShape(count=1))
    schedule: int = 1
    budget_ns: int | None = None
    adapt: bool = True
    edge_rows_max: int = EDGE_ROWS_MAX
    head_wait_ns_max: int = HEAD_WAIT_NS_MAX
    record: bool = False
    measure: bool = False
    window: int = WINDOW_TUPLES
    aging: float = AGING
    load: str | None = None
    estimate_calls: int = 0
    declared: bool = True


@dataclass(frozen=True, slots=True)
class SchedulerStatistics:
    """Counts since the start, and what waits now."""

    policy: str
    decisions: int
    evaluations: int
    queue_moves: int
    orders: int
    orders_out: int
    steps: int
    rows_in: int
    rows_emitted: int
    busy_ns: int
    rows_waiting: int
    bytes_waiting: int
    controls_waiting: int
    operators: int
    queries: int
    failures: int
    idle: bool
