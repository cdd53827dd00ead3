"""The one place where the parts of a server's engine are put together: host, statements, admission, watch, optimiser, journal.

Each of them knows those below it alone. The live server, `millstream run`, benchmarks and experiments all begin here.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.engine.data.effort import bounded_effort
from millstream.engine.data.errors import EngineError
from millstream.scheduler.errors import SchedulerError
from millstream.scheduler.names import SHARING_DEFAULT
from millstream.scheduler.spec import PolicySpec
from millstream.server.errors import ServerError
from millstream.server.host.contract import Context, Observer, Refresh
from millstream.server.host.engine_host import EngineHost
from millstream.server.host.runtime import RuntimeFactory
from millstream.server.journal.known import SPILL_FOLDER
from millstream.server.journal.store import POLICY_NOTE, Store
from millstream.server.lean import one_by_one
from millstream.server.watch.admission import AdmissionControl
from millstream.server.watch.watch import QosWatch

if TYPE_CHECKING:
    from millstream.engine.language.statements import Statement
    from millstream.server.config import Config
    from millstream.server.durability.journaling import Journaling
    from millstream.server.journal.disk import Disk
    from millstream.server.results.outcome import Outcome


def assemble(
    observer: Observer,
    store: Store,
    runtime: RuntimeFactory,
    policy: PolicySpec,
    *,
    rewrite: bool = True,
    sharing: str = SHARING_DEFAULT,
    shed_seed: int = 0,
    sheds_when_full: bool = False,
    admission: str = "off",
    optimise_settle_s: float | None = None,
    step_ns_max: int | None = None,
) -> EngineHost:
    """Return a host that executes statements and watches targets.

    `admission` is off, warn or refuse; `optimise_settle_s` is the settling time of the run-time optimiser, None for none;
    `step_ns_max` the processor time that a step may have, None for any.
    """
    host = EngineHost(
        observer,
        store,
        runtime,
        policy,
        rewrite=rewrite,
        sharing=sharing,
        shed_seed=shed_seed,
        sheds_when_full=sheds_when_full,
        step_ns_max=step_ns_max,
    )
    host.execute = partial(_execute, host)
    host.watch = watch = QosWatch(host)
    if optimise_settle_s is not None:
        from millstream.server.watch.optimiser import RuntimeOptimiser

        host.optimiser = RuntimeOptimiser(host, watch, optimise_settle_s)
    host.make_refresh = partial(_refreshing, host)
    host.admit = AdmissionControl(host, admission).check
    return host


def _refreshing(host: EngineHost, policy: str, bytes_per_s: float) -> Refresh:
    from millstream.server.watch.refreshing import Refreshing  # loaded by the first table that is polled

    return Refreshing(host, policy, bytes_per_s)


def _execute(host: EngineHost, statement: Statement | str, context: Context) -> Outcome:
    from millstream.server.statements import language  # a third of the start goes into it, and the server listens before it loads it

    parsed = language.parse_statement(statement) if isinstance(statement, str) else statement
    with host.store.change():
        return language.EXECUTORS[type(parsed)](host, parsed, context)


def open_journal(host: EngineHost, config: Config) -> Journaling:
    """Have a host use the journal of the data directory, and return that. StoreError when it cannot be used or is corrupt."""
    from millstream.server.durability.journaling import JournalBounds, Journaling

    _forget_spilled(host.store.disk, Path(config.data_dir) / SPILL_FOLDER)
    bounds = JournalBounds(config.journal_bytes_max, config.journal_kept_s, config.journal_fsync_s)
    bounds = replace(bounds, archive_file_bytes=config.archive_file_bytes, archive_wait_s=config.archive_wait_s)
    host.journaling = journaling = Journaling(host, Path(config.data_dir), bounds, host.store.disk)
    return journaling


def _forget_spilled(disk: Disk, folder: Path) -> None:
    """Remove what a server that died left of rows that waited: its queries are gone, and what must be kept is in the journal."""
    for name in disk.names(folder):
        with suppress(OSError):  # it takes room, and harms nobody
            disk.unlink(folder / name)


def restore(host: EngineHost, journaling: Journaling | None, *, policy_too: bool = True) -> list[str]:
    """Bring the stored catalogue back (case C37): definitions in their order, then queries in the state their user wants.

    `policy_too`: the policy that was set last is used again; whoever starts the server with one means that one.
    Returns a sentence for each thing that could not be brought back, which stays stored. What was accepted once is planned whatever work
    that takes: another release may count it differently.
    """
    with bounded_effort(sys.maxsize):
        return _restored(host, journaling, policy_too)


def _restored(host: EngineHost, journaling: Journaling | None, policy_too: bool) -> list[str]:
    problems: list[str] = []
    recovery = None
    if journaling is not None:
        from millstream.server.durability.recovery import Recovery

        host.recovery = recovery = Recovery(host, journaling)
    for definition in host.store.definitions():
        try:
            host.execute(definition.statement, Context(text=definition.statement, restoring=True, number=definition.position))
        except (EngineError, ServerError, SchedulerError) as error:
            problems.append(f"{definition.kind} {definition.name}: {error}")
    for query in one_by_one(host.store.queries()):
        from millstream.server.statements import language

        try:
            language.restore_query(host, query, Context(name=query.name, text=query.text or "", restoring=True))
        except (EngineError, ServerError, SchedulerError) as error:
            problems.append(f"query {query.name}: {error}")
    if recovery is not None:
        problems += recovery.run()
        if journaling is not None and journaling.archives is not None:
            host.network.ingress.advance_to(journaling.archives.end)
    if policy_too:
        _restore_policy(host, problems)
    return problems


def _restore_policy(host: EngineHost, problems: list[str]) -> None:
    remembered = host.store.note(POLICY_NOTE)
    if remembered is None:
        return
    try:
        spec = PolicySpec.parse(remembered)
        host.runtime.set_policy(spec)
        host.policy = spec
    except SchedulerError as error:
        problems.append(f"policy {remembered}: {error}")
