"""Tables that are polled: their files are read again when the policy says so, and what differs becomes changes of the table.

`scheduler/refresh/polling.py` chooses; this tells it how often each table is read (rows of queries that read it, FETCHes) and what each
poll found. All of it but `read` belongs to the thread that executes statements.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.engine.data.errors import EngineError
from millstream.engine.data.schema import TableDefinition
from millstream.scheduler.refresh.polling import NS_PER_S, Poller
from millstream.scheduler.spec import PolicySpec
from millstream.server.errors import BadInput, ServerError
from millstream.server.host.contract import PolledTable
from millstream.server.host.server_files import Asks
from millstream.server.host.table_files import Signature, TablePoll, TableRows, changes_to, read_table_file

if TYPE_CHECKING:
    from millstream.server.host.engine_host import EngineHost
    from millstream.server.host.queries import Query

POLL_BYTES_MIN = 65_536
"""What a poll of a small file counts against the budget: opening it costs as well."""
_COUNTED_NS = NS_PER_S
_NS_PER_US = 1_000


class Refreshing:
    """Polls the tables of a host within a budget of bytes a second. Raises `PolicyError` for a policy that is not there."""

    def __init__(self, host: EngineHost, policy: str, budget: float) -> None:
        self._host = host
        spec = PolicySpec.parse(policy)
        self._poller = Poller(spec.name, dict(spec.options), budget)
        self._tables: dict[str, TableDefinition] = {}
        self._known: dict[str, Signature] = {}
        self._errors: dict[str, str] = {}
        self._last: dict[str, TablePoll] = {}
        self._processed: dict[tuple[str, int], int] = {}  # by query and run
        self._counted_ns = 0
        self._wake_ns: int | None = None

    def begin(self, definition: TableDefinition) -> None:
        """Poll a table from now on. Its first poll reads the file whatever it looks like, as it may have changed since it was loaded."""
        assert definition.fresh_min is not None
        self._tables[definition.name] = definition
        size = max(POLL_BYTES_MIN, _size(definition))
        self._poller.add(definition.name, size, self._now_ns(), fresh_min=definition.fresh_min)
        self._settle()

    def forget(self, name: str) -> None:
        """Poll a table no longer, if it was."""
        if self._tables.pop(name, None) is not None:
            self._poller.remove(name)
            for book in (self._known, self._errors, self._last):
                book.pop(name, None)
            self._settle()

    def asked(self, names: Iterable[str]) -> None:
        """Note that somebody read these streams and tables."""
        for name in names:
            if name in self._tables:
                self._poller.asked(name)

    def standing(self, name: str) -> PolledTable | None:
        """Return how fresh a table is; None where it is not polled."""
        copy = self._poller.copies.get(name)
        if copy is None:
            return None
        period_us = round(1e6 / copy.polls_a_second) if copy.polls_a_second else None
        age_us = (self._now_ns() - copy.polled_ns) // _NS_PER_US
        return PolledTable(age_us, copy.freshness, copy.polls, copy.changes, period_us, self._errors.get(name))

    def wake_ns(self) -> int | None:
        """Return when there may be something to poll, in arrival time; None while there is nothing. From any thread."""
        return self._wake_ns

    def _settle(self) -> None:
        wake_ns = self._poller.wake_ns()
        # Requests are counted at the least so often, and with them comes what demand wants.
        self._wake_ns = None if wake_ns is None else min(wake_ns, self._counted_ns + _COUNTED_NS)

    def take(self) -> TablePoll | None:
        """Return the poll that is due now, if one is. A table whose last read hangs has its turn without one."""
        now_ns = self._now_ns()
        if now_ns - self._counted_ns >= _COUNTED_NS:
            self._counted_ns = now_ns
            self._count_reads()
        name = self._poller.next(now_ns)
        self._settle()
        if name is None:
            return None
        last = self._last.get(name)
        if last is not None and not last.ended:
            self._poller.polled(name, now_ns, changed=False)
            return None
        self._last[name] = poll = TablePoll(self._tables[name], self._known.get(name))
        return poll

    def read(self, poll: TablePoll, given_up: Asks) -> TableRows | None:
        """Read the file of a poll, from any thread; None where it is as it was. BadInput, GivenUp, the engine's errors.

        A file with a bad row changes nothing: it may be half written.
        """
        try:
            poll.seen = _signature(poll.definition)
            if poll.seen == poll.known:
                return None
            rows = read_table_file(self._host, poll.definition, given_up)
            if rows.refused:
                raise BadInput(rows.notices[-1], hint="write a new file beside it and rename that, so that no poll meets half a file")
            return rows
        finally:
            poll.ended = True

    def put(self, poll: TablePoll, found: TableRows | Exception | None) -> None:
        """Let a poll's outcome change its table: rows, None where the file is as it was, or why it could not be read."""
        definition, name = poll.definition, poll.definition.name
        if self._tables.get(name) is not definition:
            return  # it was dropped meanwhile
        changed = False
        if not isinstance(found, Exception) and found is not None:
            try:
                changed = self._change(definition, found)
            except (EngineError, ServerError) as problem:
                found = problem
        if isinstance(found, Exception):
            self._fail(name, str(found))
        else:
            self._errors.pop(name, None)
            if poll.seen is not None:
                self._known[name] = poll.seen
        size = None if poll.seen is None else float(max(POLL_BYTES_MIN, poll.seen[1]))
        self._poller.polled(name, self._now_ns(), changed=changed, size=size)

    def _change(self, definition: TableDefinition, rows: TableRows) -> bool:
        host, name = self._host, definition.name
        source = host.network.sources[name]
        assert source.table is not None
        with host.network.ingress.lock:
            content = source.table.content(host.network.ingress.next_seq)
            standing = [content.column(i) for i in range(len(definition.schema))]
        changes = changes_to(definition, standing, rows)
        if changes is None:
            return False
        host.intake(name).insert(changes)
        return True

    def _fail(self, name: str, reason: str) -> None:
        if self._errors.get(name) != reason:
            self._errors[name] = reason
            self._host.observer.reported("poll_failed", f"table {name} stays as it is: {reason}")

    def _count_reads(self) -> None:
        """Count a request for each row that a query took since it was last looked at, for the tables that it reads."""
        before, self._processed = self._processed, {}
        for query in (*self._host.queries, *self._host.derived.values()):
            read = [name for name in query.planned.tables if name in self._tables]
            if read:
                self._count_query(query, read, before)

    def _count_query(self, query: Query, read: list[str], before: dict[tuple[str, int], int]) -> None:
        run = (query.name, query.run)
        self._processed[run] = processed = self._host.counts(query).get("processed", 0)
        rows = processed - before.get(run, 0)
        for name in read if rows > 0 else ():
            self._poller.asked(name, rows)

    def _now_ns(self) -> int:
        return self._host.runtime.arrival_ns()


def _signature(definition: TableDefinition) -> Signature:
    assert definition.file is not None
    try:
        found = os.stat(definition.file)
    except OSError as error:
        raise BadInput(f"cannot read {Path(definition.file)}: {error.strerror or error}") from error
    return found.st_mtime_ns, found.st_size, found.st_ino


def _size(definition: TableDefinition) -> int:
    try:
        return _signature(definition)[1]
    except BadInput:  # its next poll tells
        return 0
