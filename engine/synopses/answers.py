"""What an output of a shared synopsis asks and shows, and the train of its answers."""

from __future__ import annotations

from millstream.engine.data.column import Column, concat_columns
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Numbers, Train, empty_train
from millstream.engine.data.watermarks import WatermarkTrack
from millstream.engine.language.recipes import AggregateRecipe
from millstream.engine.operators.outputs import for_each_row, timestamps
from millstream.engine.synopses.frames import Due, Frame
from millstream.engine.windows.pane_values import Accumulator


@dataclass(frozen=True, slots=True)
class Shown:
    """What an output shows: its schema, and which of (keys, aggregates, window_start, window_end), None for all."""

    schema: Schema
    columns: tuple[int, ...] | None = None


@dataclass(slots=True, eq=False)
class Member:
    """One output: what its query asks, the frame of its window, the accumulators behind its columns.

    `key_places` tell where its keys stand among the synopsis's, `cells_read` what it has read so far, for its bill.
    """

    recipe: AggregateRecipe
    shown: Shown
    frame: Frame
    accumulators: list[Accumulator]
    key_places: tuple[int, ...] = ()
    cells_read: int = 0


@dataclass(slots=True)
class Answer:
    """One closed window for one output."""

    due: Due
    seq: int
    keys: list[Column]
    aggregates: list[Column]
    rows: int


def answer_train(train: Train, track: WatermarkTrack, member: Member, answers: list[Answer]) -> Train:
    """Return what an output gets of one call: its answers in order, over the part of the interval that its query sees."""
    schema = member.shown.schema
    lo, hi = train.lo, train.hi
    if member.frame.from_seq > lo:
        lo = min(member.frame.from_seq, hi)
        track = track.split_at(lo)[1]
    if not answers:
        empty = empty_train(schema, lo, hi, track, arrival_ns=train.newest_arrival(), ended=train.ended)
        empty.idle, empty.notes = train.idle, train.notes
        return empty
    sizes = [a.rows for a in answers]
    gaps = member.frame.empty
    seqs = for_each_row([a.seq for a in answers], sizes)
    rows = seqs.rows
    constant = train.rows == 0 or train.arrival.is_constant
    return Train(
        schema,
        _columns(member, answers, sizes),
        rows=rows,
        lo=lo,
        hi=hi,
        seq=seqs,
        time=for_each_row([a.due.end_us - 1 for a in answers], sizes),
        arrival=Numbers(rows, start=train.arrival.start) if constant else Numbers(rows, array=train.arrivals_at(seqs.array())),
        track=track,
        ended=train.ended,
        idle=train.idle,
        notes=train.notes if gaps is None or gaps.notes is None else gaps.notes,
    )


def _columns(member: Member, answers: list[Answer], sizes: list[int]) -> list[Column]:
    parts = [[*a.keys, *a.aggregates] for a in answers]
    width = len(parts[0])
    shown = range(width + 2) if member.shown.columns is None else member.shown.columns
    columns: list[Column] = []
    for place in shown:
        if place == width:
            columns.append(timestamps([a.due.start_us for a in answers], sizes))
        elif place > width:
            columns.append(timestamps([a.due.end_us for a in answers], sizes))
        else:
            columns.append(parts[0][place] if len(parts) == 1 else concat_columns([part[place] for part in parts]))
    return columns
