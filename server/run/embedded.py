"""`millstream run`: the same engine and scheduler in this process, in virtual time, over files.

The statements of the script run in order; then the inputs are replayed, merged by event time, or a timeline says what happens; then every
stream that has not ended does. Nothing takes time but what the timeline says, so an answer depends on the script and the rows alone.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from millstream.engine.data.durations import parse_duration
from millstream.engine.data.errors import ColumnMissing, EngineError
from millstream.engine.data.nearest import SHOWN_RELATIONS
from millstream.engine.data.records import dataclass
from millstream.engine.data.train import Int64Array
from millstream.engine.flow.sources import MergedPart
from millstream.engine.language.parse import parse_script, placed_in_script
from millstream.engine.language.statements import CreateQuery, SelectStatement, Statement
from millstream.protocol.values.names import MAP_HINT
from millstream.scheduler.errors import SchedulerError
from millstream.scheduler.names import SHARING_DEFAULT
from millstream.scheduler.spec import PolicySpec
from millstream.server.assembly import assemble
from millstream.server.embedded.virtual_runtime import VirtualRuntime
from millstream.server.errors import BadInput, ServerError
from millstream.server.host import running
from millstream.server.host.contract import Context
from millstream.server.host.inputs import FilesInOrder, RowInput, open_input, read_input, unread_columns
from millstream.server.host.lifecycle import QueryState, Verb
from millstream.server.host.runtime import Runtime
from millstream.server.host.side_streams import DeferredFeeder
from millstream.server.journal.store import Store
from millstream.server.results.outcome import NamedResult, Outcome
from millstream.server.run.order import FedStreams, joined, merged_order
from millstream.server.run.output import Collector, outcome_result
from millstream.server.run.timeline import QueryCancelled, RowArrives, StreamEnds, TimeAdvances, TimelineEvent, read_timeline

if TYPE_CHECKING:
    from millstream.protocol.values.mapping import ColumnMap
    from millstream.server.host.intake import StreamIntake

TRAIN_ROWS = 16_384  # of a replayed input: large enough for the kernels, small enough for the caches
COUNTED = {
    "late": "late row",
    "partly_late": "partly late row",
    "failed": "failed row",
    "failed_results": "failed result",
    "shed": "shed row",
}
IN_ORDER_HINT = (
    "the files of a folder or pattern are read one after the other, by name; to merge them by event time, give each an --input of its own"
)
REASONS_SHOWN_MAX = 5


@dataclass(frozen=True, slots=True)
class Replay:
    """What to run: the script's text, inputs as (stream, file, files in order or Arrow stream in memory), a timeline, how.

    `declared` are statements that come before the script and do not count in its lines. `rules_off` names rewrites of plans to leave out
    ("all" for every one), `sharing` lets queries share equal operators (K15). `maps` and `time_formats` are those of `--map` and
    `--time-format`.
    """

    script: str
    inputs: Sequence[tuple[str, Path | Sequence[Path] | pa.Buffer]] = ()
    timeline: Path | None = None
    policy: str = "fcfs"
    workers: int = 1
    train: int | None = None
    rules_off: frozenset[str] = frozenset()
    sharing: str = SHARING_DEFAULT
    maps: Sequence[str] = ()
    time_formats: Sequence[str] = ()
    declared: str = ""


@dataclass(slots=True)
class ReplayOutcome:
    """What came of it: results in script order, sentences for standard error, and what went wrong, if anything did."""

    results: list[NamedResult] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    failure: str | None = None


def run_replay(replay: Replay) -> ReplayOutcome:
    """Return what came of a script. What is wrong with the script, the inputs or the rows is in `failure`; nothing is raised for it."""
    outcomes = ReplayOutcome()
    try:
        _Run(replay, outcomes).run()
    except (EngineError, SchedulerError, ServerError) as error:
        # There is nothing to list in a script.
        outcomes.failure = str(error).replace(SHOWN_RELATIONS, "CREATE STREAM makes one, or an input of that name does")
    return outcomes


def _opened(
    intake: StreamIntake, source: Path | Sequence[Path] | pa.Buffer, column_map: ColumnMap | None, unread: Sequence[str]
) -> AbstractContextManager[RowInput]:
    if isinstance(source, Path):
        return open_input(intake, source, column_map, unread)
    if isinstance(source, Sequence):
        return nullcontext(FilesInOrder(intake, source, column_map, unread))
    return read_input(intake, Path(f"{intake.name}.arrow"), lambda: io.BytesIO(source), column_map)


class _Run:
    """One run: host, virtual runtime, collector."""

    def __init__(self, replay: Replay, outcomes: ReplayOutcome) -> None:
        self.replay = replay
        self.outcomes = outcomes
        self.collector = Collector()
        policy = PolicySpec.parse(replay.policy if replay.policy != "auto" else "fcfs")  # as a server without a load manager
        self.host = assemble(
            self.collector, Store(None), lambda e, n, told: self._runtime(e, n, told, policy), policy, sharing=replay.sharing
        )
        self.host.rules_off = replay.rules_off
        self.host.is_durable = False
        self.feeder = DeferredFeeder(self.host.feed)
        self.host.feeder = self.feeder
        self.shown: list[str | NamedResult] = []
        self.owner = object()
        self.bare = 0
        self.hints: set[str] = set()  # what may help where rows were refused
        self.came: dict[str, tuple[int, int]] = {}  # by stream: rows offered, rows refused

    def _runtime(self, executor: Any, network: Any, told: Any, policy: PolicySpec) -> Runtime:
        self.runtime = VirtualRuntime(executor, network, policy, told, workers=self.replay.workers, train=self.replay.train)
        return self.runtime

    def run(self) -> None:
        """Do it all."""
        try:
            self._run()
        finally:
            self.host.close_functions()

    def _run(self) -> None:
        for statement, span in [*parse_script(self.replay.declared), *parse_script(self.replay.script)]:
            try:
                self._execute(statement, span.text)
            except EngineError as problem:
                raise placed_in_script(problem, span.place) from None
            self._settle()
        try:
            self._replay_inputs()
        except ColumnMissing as problem:
            raise BadInput(problem.message, hint=f"{problem.hint}; {MAP_HINT}") from None
        if self.replay.timeline is not None:
            for event in self._grouped(read_timeline(self.replay.timeline, parse_duration)):
                self._happen(event)
        self._end_all()
        self._report()

    # --- the script ---

    def _execute(self, statement: Statement, text: str) -> None:
        name = None
        if isinstance(statement, SelectStatement):
            self.bare += 1
            name = f"q{self.bare}"
        outcome = self.host.execute(statement, Context(self.owner, text, name))
        if isinstance(statement, SelectStatement | CreateQuery) and "query" in outcome.info:
            if str(outcome.info["query"]) not in self.shown:
                self.shown.append(str(outcome.info["query"]))
        elif outcome.answer is not None:
            self.shown.append(replace(outcome.answer, name=" ".join(text.split())))
            self.outcomes.messages += outcome.notices
        elif outcome.columns:
            self.shown.append(outcome_result(" ".join(text.split()), outcome))
        self._note(outcome)

    def _note(self, outcome: Outcome) -> None:
        self.outcomes.messages += [notice for notice in outcome.notices if notice.startswith("warning")]

    # --- inputs ---

    def _replay_inputs(self) -> None:
        rows_max = 1 if FedStreams(self.host).are_tangled() else self.replay.train or TRAIN_ROWS
        with ExitStack() as open_files:
            intakes = [self.host.intake(name) for name, _ in self.replay.inputs]
            maps = self._column_maps(intakes)
            files = [
                open_files.enter_context(_opened(intake, source, maps.get(intake.name), unread_columns(self.host, intake)))
                for intake, (_, source) in zip(intakes, self.replay.inputs, strict=True)
            ]
            for table in [f for f in files if f.intake.table is not None]:
                self._replay_one(table, rows_max)
            streams = [f for f in files if f.intake.table is None]
            if len(streams) == 1:
                self._replay_one(streams[0], rows_max)
            elif streams:
                self._replay_merged(streams, rows_max)
            for file in files:
                self.outcomes.messages += file.told()
                self._came(file.intake.name, file.rows, file.refused)
                if file.refused:
                    from millstream.protocol.values.mapping import hints  # few runs need it

                    self.hints.update(hints([reason for _, reason in file.first_refusals], all_refused=file.rows == file.refused))

    def _column_maps(self, intakes: Sequence[StreamIntake]) -> dict[str, ColumnMap]:
        if not (self.replay.maps or self.replay.time_formats):
            return {}
        from millstream.protocol.values.mapping import column_maps

        columns = {intake.name: {f.name: str(f.type) for f in intake.definition.schema.fields} for intake in intakes}
        try:
            return column_maps(self.replay.maps, self.replay.time_formats, columns)
        except ValueError as error:
            raise BadInput(str(error)) from None

    def _came(self, name: str, rows: int, refused: int) -> None:
        """Count the rows that came for a stream, and those of them that were refused."""
        before = self.came.get(name, (0, 0))
        self.came[name] = before[0] + rows, before[1] + refused

    def _replay_one(self, file: RowInput, rows_max: int) -> None:
        for block in file.chunks():
            for start in range(0, block.rows, rows_max):
                columns, numbers = block.slice(start, min(start + rows_max, block.rows))
                file.intake.take_columns(columns, numbers)
                self._settle()

    def _replay_merged(self, files: Sequence[RowInput], rows_max: int) -> None:
        whole = [file.read_all() for file in files]
        times = [file.event_times(block, self.runtime.now_us()) for file, block in zip(files, whole, strict=True)]
        of_stream: dict[str, list[int]] = {}  # the files of each stream
        for number, file in enumerate(files):
            of_stream.setdefault(file.intake.name, []).append(number)
        blocks = [joined([whole[n] for n in numbers], [times[n] for n in numbers]) for numbers in of_stream.values()]
        stream_of = np.empty(len(files), np.int64)
        for stream, numbers in enumerate(of_stream.values()):
            stream_of[numbers] = stream
        merged = stream_of[merged_order(times)]
        at = [0] * len(blocks)
        for start in range(0, len(merged), rows_max):
            block = merged[start : start + rows_max]
            parts: list[MergedPart] = []
            places: list[Int64Array] = []
            for stream, name in enumerate(of_stream):
                positions = np.flatnonzero(block == stream)
                if len(positions):
                    stop = at[stream] + len(positions)
                    columns, rows = blocks[stream].slice(at[stream], stop)
                    parts.append(MergedPart(self.host.network.sources[name], columns, positions))
                    places.append(rows)
                    at[stream] = stop
            self.host.take_merged(parts, places, len(block))
            self._settle()

    def _settle(self) -> None:
        """Run until nothing is left to do, what the server feeds to its own streams included."""
        self.runtime.run()
        while self.feeder.flush():
            self.runtime.run()

    # --- timeline ---

    def _grouped(self, events: Any) -> Any:
        """Join rows that follow one another on one stream, so that they are taken in together."""
        rows: list[RowArrives] = []
        fed = FedStreams(self.host)
        # An error output that is read shows in which order bad rows and failing ones came.
        singly = fed.are_tangled() or any(i.definition.errors_into in fed.read_ones() for i in self.host.intakes.values())
        limit = 1 if singly else self.replay.train or TRAIN_ROWS
        for event in events:
            if rows and (not isinstance(event, RowArrives) or event.name != rows[0].name or len(rows) >= limit):
                yield rows
                rows = []
            if isinstance(event, RowArrives):
                rows.append(event)
            else:
                yield event
        if rows:
            yield rows

    def _happen(self, event: list[RowArrives] | TimelineEvent) -> None:
        if isinstance(event, list):
            self._take_rows(event)
        elif isinstance(event, TimeAdvances):
            self._advance(event.by_us)
        elif isinstance(event, StreamEnds):
            self.host.end_stream(event.name)
        elif isinstance(event, QueryCancelled):
            query = self.host.queries.get(event.name)
            running.move(self.host, query, Verb.STOP, "cancelled")
            self.outcomes.messages.append(f"query {query.name} was cancelled")
        self._settle()

    def _take_rows(self, events: list[RowArrives]) -> None:
        intake = self.host.intake(events[0].name)
        taken = intake.take_rows([e.row for e in events], bare_instants=False)
        self._came(intake.name, len(events), taken.rejected)
        if taken.rejected:
            reasons = "; ".join(f"line {events[i].line}: {reason}" for i, reason in taken.rejections[:REASONS_SHOWN_MAX])
            self.outcomes.messages.append(f"{intake.name}: {taken.rejected} of {len(events)} rows refused: {reasons}")
            intake.check_failed(taken, [f"line {e.line}" for e in events])

    def _advance(self, by_us: int) -> None:
        """Move time on, stopping wherever a clock has something to do on the way."""
        target = self.runtime.now_us() + by_us
        self.host.tick()
        while True:
            times = [t for t in (self.host.network.ticks.next_us(), running.next_due_us(self.host)) if t is not None]
            next_us = min(times, default=target)
            if next_us >= target:
                break
            self._tick_at(max(next_us, self.runtime.now_us() + 1))
        self._tick_at(target)

    def _tick_at(self, now_us: int) -> None:
        self.runtime.advance_to(now_us)
        self.host.tick()
        running.due(self.host, now_us)
        self._settle()

    # --- the end ---

    def _end_all(self) -> None:
        """End every stream: first those that rows came to, then those that the server itself feeds, each after what feeds it."""
        for name in FedStreams(self.host).ending_order():
            self.host.end_stream(name)
            self._settle()

    def _report(self) -> None:
        outcomes, collector = self.outcomes, self.collector
        for shown in self.shown:
            outcomes.results.append(shown if isinstance(shown, NamedResult) else collector.result(shown))
        for name in [s for s in self.shown if isinstance(s, str)]:
            counts = self._counts(name)
            told = [f"{count} {COUNTED[word]}{'' if count == 1 else 's'}" for word, count in counts.items() if count]
            if told:
                outcomes.messages.append(f"{name}: {', '.join(told)}")
            if counts["late"] and any(isinstance(source, Sequence) for _, source in self.replay.inputs):
                self.hints.add(IN_ORDER_HINT)
        outcomes.messages += collector.messages
        useless = [f"{name}: none of {rows} rows was accepted" for name, (rows, refused) in self.came.items() if 0 < rows == refused]
        outcomes.messages += sorted(self.hints)
        if collector.failures or useless:
            outcomes.failure = "; ".join([*collector.failures, *useless])
        broken = [f"{name}: {account}" for name, account in self.host.unbalanced()]
        if broken:
            raise BadInput(f"the accounts do not balance, which is a fault of the program: {'; '.join(broken)}")

    def _counts(self, name: str) -> dict[str, int]:
        query = self.host.queries.find(name)
        counts = self.host.counts(query) if query is not None and query.state is not QueryState.STOPPED else {}
        counts = counts or self.collector.counts.get(name, {})
        return {word: counts.get(word, 0) for word in COUNTED}
