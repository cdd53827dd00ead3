"""One FETCH as data: what is asked, and of which rows. `answer_of` computes it, in this process or in one of its own.

Nothing in it points back to the running engine, so it may be computed while that goes on, and be sent elsewhere (`transport.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema, TableDefinition
from millstream.engine.data.train import Train
from millstream.engine.expressions.values import format_timestamp
from millstream.engine.plan.physical import PhysicalQuery
from millstream.engine.runtime.fork import Fork
from millstream.server.embedded.private_engine import PrivateEngine
from millstream.server.host.contract import HeldBlock, HeldPast, HeldRows
from millstream.server.once.held import net_rows
from millstream.server.results.outcome import NamedResult, Outcome
from millstream.server.results.trains import ResultShape

if TYPE_CHECKING:
    from millstream.engine.flow.replay import PastItem


@dataclass(frozen=True, slots=True)
class Question:
    """`physical` over `held` rows, by name, of which `tables` are tables, and over `derived` streams; or a `copied` query run to its end.

    `instead` answers where that gives no row: an aggregate without groups has one in SQL. `info` goes with the answer.
    """

    physical: PhysicalQuery
    held: Mapping[str, HeldRows | HeldPast] = field(default_factory=dict)
    tables: Mapping[str, TableDefinition] = field(default_factory=dict)
    derived: Mapping[str, PhysicalQuery] = field(default_factory=dict)
    copied: Fork | None = None
    instead: Question | None = None
    info: Mapping[str, Any] = field(default_factory=dict)

    def blocks(self) -> Iterator[tuple[str, HeldBlock | PastItem]]:
        """Yield what is held, block by block, each with the name of its input."""
        for name, rows in self.held.items():
            for block in rows.blocks():
                yield name, block

    def without_rows(self) -> Question:
        """Return the question as it goes ahead of its blocks."""
        return replace(self, held={name: rows.over(_nothing) for name, rows in self.held.items()})

    def with_rows(self, blocks: Mapping[str, list[Any]]) -> Question:
        """Return the question over blocks that were sent."""
        return replace(self, held={name: rows.over(_Blocks(blocks.get(name, []))) for name, rows in self.held.items()})


def _nothing() -> Iterator[Any]:
    return iter(())


@dataclass(frozen=True, slots=True)
class _Blocks:
    blocks: list[Any]

    def __call__(self) -> Iterator[Any]:
        """Yield them."""
        return iter(self.blocks)


def answer_of(question: Question, progress: Callable[[float], None] | None = None) -> Outcome:
    """Return the answer; `progress` is told which part of a history has been read. Raises the engine's errors."""
    physical = question.physical
    if question.copied is not None:
        trains, notices = question.copied.finish(changes=physical.change_kind is not None), list[str]()
    else:
        engine = PrivateEngine()
        trains = _run(question, engine, progress)
        notices = _notices(question.held, engine)
    schema = physical.schema
    batches = [ResultShape(schema).batch(train) for train in trains]
    if physical.change_kind is not None:
        schema = Schema(schema.fields[:-1])
        batches = net_rows(schema, batches)
    if question.instead is not None and not any(b.num_rows for b in batches):
        return replace(answer_of(question.instead), info=dict(question.info))
    return Outcome(notices=tuple(notices), info=dict(question.info), answer=NamedResult("answer", schema, batches))


def _run(question: Question, engine: PrivateEngine, progress: Callable[[float], None] | None) -> list[Train]:
    streams: list[HeldRows] = []
    pasts: dict[str, Iterator[PastItem]] = {}
    for name, rows in question.held.items():
        if isinstance(rows, HeldPast):
            engine.add_stream(rows.definition)
            pasts[name] = rows.items() if progress is None else _watched(rows, progress)
        elif name in question.tables:
            engine.add_table(question.tables[name], rows)
        else:
            engine.add_stream(rows.definition)
            streams.append(rows)
    for name, derived in question.derived.items():
        engine.add_derived(name, derived)
    return engine.replay(question.physical, pasts) if pasts else engine.run(question.physical, streams)


def _watched(held: HeldPast, progress: Callable[[float], None]) -> Iterator[PastItem]:
    """Yield what is held, and tell how far its arrival numbers have come: those of all streams are read in one order."""
    from millstream.engine.flow.replay import PastRows

    first: int | None = None
    for item in held.items():
        seq = int(item.seqs[-1]) if isinstance(item, PastRows) else item.seq
        first = seq if first is None else first
        progress(min(1.0, (seq - first) / max(1, held.position + 1 - first)))
        yield item


def _notices(held: Mapping[str, HeldRows | HeldPast], engine: PrivateEngine) -> list[str]:
    told = [f"{h.missing} older rows of {name} are held no longer" for name, h in held.items() if h.missing]
    for name, rows in held.items():
        gone_us = rows.past.gone_before_us if isinstance(rows, HeldPast) and rows.past is not None else None
        if gone_us is not None:
            told.append(f"of {name} rows before {format_timestamp(gone_us)} are kept no longer")
    if engine.late_rows:
        told.append(f"{engine.late_rows} rows came too late")
    if engine.failed_rows:
        told.append(f"{engine.failed_rows} rows had an expression that could not be computed; it is NULL")
    return told
