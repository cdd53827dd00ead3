"""Admission at work: what is known of the running server, put to `scheduler/optimiser/admission.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.engine.data.graph import ClassNode, GraphDelta, OperatorId, QueryId
from millstream.scheduler.core import SchedulerCore
from millstream.scheduler.events import SumsWanted
from millstream.scheduler.optimiser.admission import (
    NOT_KNOWN,
    Admission,
    AdmissionAnswer,
    Candidate,
    ClassFacts,
    QueryFacts,
    admit,
    spelled_interval,
    spelled_ms,
)
from millstream.scheduler.optimiser.prediction import AddedLoad, Work, added_load, class_loads, work_of, works_of_running
from millstream.server.errors import Refused
from millstream.server.host.queries import Query

if TYPE_CHECKING:
    from millstream.engine.plan.plan import PlannedQuery
    from millstream.scheduler.drivers.live import LiveScheduler
    from millstream.server.host.engine_host import EngineHost

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000
PROTECTING = ("class", "dilos")
"""Load managers under which a class does not feel those below it: they shed first."""

MEND = "give it a class of lower priority, select less, drop another query, or start the server with --admission warn"


class AdmissionControl:
    """The door for new queries. `mode` is off, warn or refuse."""

    def __init__(self, host: EngineHost, mode: str) -> None:
        self._host = host
        self._mode = mode

    def check(self, query: Query) -> None:
        """Refuse a query that would push a class below its target, or let it in with a warning, as the setting says.

        Where nobody stated a target nothing can be missed, and nothing is asked of the scheduler. Raises Refused.
        """
        query.warnings = ()
        if self._mode == "off" or not _any_target(self._host, query):
            return
        found = asked(self._host, query.planned)
        if found is None or found.answer is not AdmissionAnswer.REFUSED:
            return
        if self._mode == "refuse":
            raise Refused(f"query {query.name} was refused: {'; '.join(found.reasons)}", hint=MEND)
        query.warnings = tuple(f"warning: {reason}" for reason in found.reasons)


def _any_target(host: EngineHost, query: Query) -> bool:
    own = query.planned.physical.options.latency_target_ns
    return own is not None or any(node.target_ns is not None for node in host.class_nodes.values())


def asked(host: EngineHost, planned: PlannedQuery) -> Admission | None:
    """Return what would become of a query; None where no time passes."""
    scheduler = host.runtime.scheduler
    if scheduler is None:
        return None
    options = planned.physical.options
    return _answer(host, scheduler, planned, host.network.sketch("asked", planned.physical, host.class_node(options)))


def _answer(host: EngineHost, scheduler: LiveScheduler, planned: PlannedQuery, delta: GraphDelta) -> Admission:
    """Return the answer for a query that was planned and does not run yet."""
    options = planned.physical.options
    rates = source_rates(host)
    node = host.class_node(options)

    batches = source_batches(host)
    sources = [operator for operator in delta.query.operators if operator in rates]

    def look(core: SchedulerCore) -> tuple[AddedLoad, Work, dict[int, float]]:
        loads = class_loads(core.network, core.estimates, rates)
        added = added_load(core.network, core.estimates, rates, delta, batches)
        work = work_of(core.network, core.estimates, rates, batches, sources, added.load, added.load)
        return added, work, {int(one): load for one, load in loads.items()}

    scheduler.post(SumsWanted())
    added, work, loads = scheduler.ask(look)
    classes = [ClassFacts(c.id, c.name, c.priority, c.target_ns, loads.get(int(c.id), 0.0)) for c in host.class_nodes.values()]
    candidate = Candidate(node.id, added, options.qos, _target_ns(options.latency_target_ns, node), work)
    protected = scheduler.settings.load in PROTECTING
    return admit(float(scheduler.workers), classes, _running(host), candidate, protected=protected)


def _target_ns(own: int | None, node: ClassNode) -> int | None:
    return own if own is not None else node.target_ns


def _running(host: EngineHost) -> list[QueryFacts]:
    measured = host.runtime.measures()
    found = []
    for query in host.queries:
        if query.id is None:
            continue
        options = query.planned.physical.options
        report = None if measured is None else measured.of_query(query)
        latency_ns = report.response_ms_mean * NS_PER_MS if report is not None and report.outputs else None
        found.append(QueryFacts(host.class_node(options).id, options.qos, latency_ns))
    return found


def source_rates(host: EngineHost) -> dict[OperatorId, float]:
    """Return tuples per ns by source: measured lately, else as declared by RATE, else none."""
    found: dict[OperatorId, float] = {}
    for name, source in list(host.network.sources.items()):
        intake = host.intakes.get(name)
        per_s = None if intake is None else intake.rate_per_s()
        if not per_s:
            per_s = source.definition.rate_per_second_max or 0.0
        found[source.id] = per_s / NS_PER_S
    return found


def source_batches(host: EngineHost) -> dict[OperatorId, float]:
    """Return how many rows come at a time to each source lately; 1 where nobody knows."""
    found: dict[OperatorId, float] = {}
    for name, source in list(host.network.sources.items()):
        intake = host.intakes.get(name)
        found[source.id] = 1.0 if intake is None else intake.rows_a_batch()
    return found


def expected(host: EngineHost, query: Query) -> str | None:
    """Return the latency that a running query is expected to have by the load and the costs of now; None where no time passes."""
    if host.runtime.scheduler is None or query.id is None:
        return None
    found = expected_latencies(host).get(query.id)
    return NOT_KNOWN if found is None else spelled_interval(found[0], found[1:])


def expected_latencies(host: EngineHost) -> dict[QueryId, tuple[float, float, float]]:
    """Return the latency in ns (mean, from, to) that running queries are expected to have, by the load and the costs of now.

    Queries to which no rows come have none; where no time passes, nothing has.
    """
    scheduler = host.runtime.scheduler
    if scheduler is None:
        return {}
    rates, batches = source_rates(host), source_batches(host)

    def look(core: SchedulerCore) -> tuple[dict[QueryId, Work], float]:
        works = works_of_running(core.network, core.estimates, rates, batches)
        return works, sum(class_loads(core.network, core.estimates, rates).values())

    works, load = scheduler.ask(look)
    return {query: work.latency_ns(load / scheduler.workers) for query, work in works.items() if work.own_ns}


def lines(found: Admission) -> list[tuple[str, str]]:
    """Return the rows of EXPLAIN QOS on an admission: (promise, value)."""
    added = found.added
    then = found.load_before + added.load
    rows = [
        ("load added", f"{added.load:.3g} at {added.rate_per_s:.4g} rows/s"),
        ("load", f"{found.load_before:.3g} of {found.capacity:g} becomes {then:.3g}"),
        ("expected latency", spelled_interval(found.latency_ns, found.between_ns)),
        ("expected utility", f"{found.utility:.3g}"),
    ]
    for one in found.outlooks:
        if one.latency_before_ns is not None and one.latency_after_ns is not None:
            latency = f"{spelled_ms(one.latency_before_ns)} becomes {spelled_ms(one.latency_after_ns)}"
            rows.append((f"class {one.name}", f"{latency}, utility {one.utility_before:.3g} becomes {one.utility_after:.3g}"))
    word = found.answer.value + (f" {found.utility:.3g}" if found.answer is AdmissionAnswer.REDUCED else "")
    rows.append(("admission", f"{word}: {'; '.join(found.reasons)}" if found.reasons else word))
    return rows
