"""A query whose changes are added up as they come: the rows that stand after them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from millstream.engine.runtime import fork
from millstream.engine.runtime.blueprint import Blueprint

from tests.support.engine_run import SqlEngine, rows_of


def plain(row: Any) -> tuple[Any, ...]:
    """Return a row as it compares with another program's: each number as a float."""
    return tuple(v if v is None or isinstance(v, str) else float(v) for v in row)


class AddedUp:
    """The changes of query `q` of an engine, whose last column says '+' or '-'."""

    def __init__(self, engine: SqlEngine, text: str) -> None:
        self.engine = engine
        self.text = text
        self.standing: Counter[Any] = Counter()
        self.seen = 0

    @property
    def _blueprint(self) -> Blueprint:
        return self.engine.network.queries[self.engine.deltas["q"].query.id].blueprint

    def cut_off(self) -> None:
        """Cut the query off; it goes on from its state."""
        copied = fork.take([self._blueprint], self.engine.network.ingress.next_seq)
        states, _ = copied.advance()
        self.engine.drop("q")
        self.engine.select(self.text)
        self.seen = 0
        fork.restore(self._blueprint, states[0])

    def now(self) -> Counter[Any]:
        """Return the rows that stand once all that waits is worked off; no change takes back a row that does not stand."""
        self.engine.work()
        rows = self.engine.rows("q")
        for *row, op in rows[self.seen :]:
            self.standing[plain(row)] += 1 if op == "+" else -1
            assert self.standing[plain(row)] >= 0, (self.text, row)
        self.seen = len(rows)
        return +self.standing

    def fetched(self) -> Counter[Any]:
        """Return what a copy of the query says of the rows that stand."""
        copied = fork.take([self._blueprint], self.engine.network.ingress.next_seq)
        found: Counter[Any] = Counter()
        for *row, op in rows_of(copied.finish(changes=True)):
            found[plain(row)] += 1 if op == "+" else -1
        return +found
