"""One FETCH as data: what is asked, and of which rows. `answer_of` computes it, in this process or in one of its own.

Nothing in it points back to the running engine, so it may be computed while that goes on, and be sent elsewhere (`transport.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any

from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema, TableDefinition
from millstream.engine.plan.physical import PhysicalQuery
from millstream.engine.runtime.fork import Fork
from millstream.server.embedded.private_engine import PrivateEngine
from millstream.server.host.contract import HeldBlock, HeldRows
from millstream.server.once.held import net_rows
from millstream.server.results.outcome import NamedResult, Outcome
from millstream.server.results.trains import ResultShape


@dataclass(frozen=True, slots=True)
class Question:
    """`physical` over `held` rows, by name, of which `tables` are tables, and over `derived` streams; or a `copied` query run to its end.

    `instead` answers where that gives no row: an aggregate without groups has one in SQL. `info` goes with the answer.
    """

    physical: PhysicalQuery
    held: Mapping[str, HeldRows] = field(default_factory=dict)
    tables: Mapping[str, TableDefinition] = field(default_factory=dict)
    derived: Mapping[str, PhysicalQuery] = field(default_factory=dict)
    copied: Fork | None = None
    instead: Question | None = None
    info: Mapping[str, Any] = field(default_factory=dict)

    def blocks(self) -> Iterator[tuple[str, HeldBlock]]:
        """Yield what is held, block by block, each with the name of its input."""
        for name, rows in self.held.items():
            for block in rows.blocks():
                yield name, block

    def without_rows(self) -> Question:
        """Return the question as it goes ahead of its blocks."""
        return replace(self, held={name: replace(rows, blocks=_nothing) for name, rows in self.held.items()})

    def with_rows(self, blocks: Mapping[str, list[HeldBlock]]) -> Question:
        """Return the question over blocks that were sent."""
        return replace(self, held={name: replace(rows, blocks=_Blocks(blocks.get(name, []))) for name, rows in self.held.items()})


def _nothing() -> Iterator[HeldBlock]:
    return iter(())


@dataclass(frozen=True, slots=True)
class _Blocks:
    blocks: list[HeldBlock]

    def __call__(self) -> Iterator[HeldBlock]:
        """Yield them."""
        return iter(self.blocks)


def answer_of(question: Question) -> Outcome:
    """Return the answer. Raises the engine's errors."""
    physical = question.physical
    if question.copied is not None:
        trains, notices = question.copied.finish(changes=physical.change_kind is not None), list[str]()
    else:
        engine = PrivateEngine()
        for name, table in question.tables.items():
            engine.add_table(table, question.held[name])
        streams = [rows for name, rows in question.held.items() if name not in question.tables]
        for rows in streams:
            engine.add_stream(rows)
        for name, derived in question.derived.items():
            engine.add_derived(name, derived)
        trains = engine.run(physical, streams)
        notices = _notices(question.held, engine)
    schema = physical.schema
    batches = [ResultShape(schema).batch(train) for train in trains]
    if physical.change_kind is not None:
        schema = Schema(schema.fields[:-1])
        batches = net_rows(schema, batches)
    if question.instead is not None and not any(b.num_rows for b in batches):
        return replace(answer_of(question.instead), info=dict(question.info))
    return Outcome(notices=tuple(notices), info=dict(question.info), answer=NamedResult("answer", schema, batches))


def _notices(held: Mapping[str, HeldRows], engine: PrivateEngine) -> list[str]:
    told = [f"{h.missing} older rows of {name} are held no longer" for name, h in held.items() if h.missing]
    if engine.late_rows:
        told.append(f"{engine.late_rows} rows came too late")
    if engine.failed_rows:
        told.append(f"{engine.failed_rows} rows had an expression that could not be computed; it is NULL")
    return told
