"""What comes late at a shared synopsis: rows behind W, and the answers of queries with SLIDE WITHIN.

For whom a row is late is each query's own affair (K4). Answers are late in overload: then all of a group's are given together and once
(Golab 2006, 4.4). A task is late when a synopsis update and more has gone by, by the clock, since what closed its window arrived: d(T) <
0. Then it runs once, with the window that ends at the newest border of panes that W has passed; those it missed are left out, and its
next deadline is a period from there. While nobody is late every window is answered. So the bound of K16 is exceeded in overload only.

What an output of a shared synopsis asks and shows, and the train of its answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import lcm

import numpy as np
import numpy.typing as npt
from millstream.engine.data.column import Column, concat_columns
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array, Train, empty_train
from millstream.engine.data.watermarks import TIME_MIN, WatermarkTrack
from millstream.engine.language.recipes import AggregateRecipe
from millstream.engine.operators.contract import Emitter
from millstream.engine.operators.outputs import for_each_row, timestamps
from millstream.engine.state.forms import state_record
from millstream.engine.synopses.frames import Due, Frame
from millstream.engine.synopses.pane_layers import Layer, VisiblePanes
from millstream.engine.windows.pane_values import Accumulator

NS_PER_US = 1_000


@dataclass(frozen=True, slots=True)
class LateRule:
    """Who runs with a late task. `age_ns` tells how long ago something arrived; `all_due`: whatever is due, else what is late too."""

    age_ns: Callable[[int], int]
    all_due: bool


def late_frames(rule: LateRule, due: Iterable[Frame], train: Train, track: WatermarkTrack, step_us: int) -> list[Frame]:
    """Return which of the due frames are to be answered together and once; none while nobody is late."""
    tasks = [f for f in due if f.may_be_late and f.next_end_us > track.start]
    if not tasks:
        return []
    ends, which = np.unique(np.array([f.next_end_us for f in tasks], dtype=np.int64), return_inverse=True)
    arrivals = train.arrival.at(track.first_reaching(ends))[which].tolist()
    late = [f for f, arrived in zip(tasks, arrivals, strict=True) if rule.age_ns(arrived) >= step_us * NS_PER_US]
    return tasks if late and rule.all_due else late


def run_late(frame: Frame, watermark_us: int, layers: Mapping[int, Layer], panes: VisiblePanes) -> list[Due]:
    """Return the window that a frame answers late, if it holds rows; the next one ends a period later."""
    border = lcm(*(layer.step_us for number, layer in layers.items() if number >= frame.layer))
    return frame.close_once(watermark_us // border * border, panes)


def told_late(frames: Iterable[Frame], train: Train, behind: Int64Array, watermark: Int64Array, out: Emitter) -> npt.NDArray[np.bool_]:
    """Tell each output which of the rows at `behind` are late or partly late for it; return which of them somebody wants."""
    times, seqs = train.time.array()[behind], train.seq.array()[behind]
    wanted = np.zeros(len(behind), dtype=np.bool_)
    for frame in frames:
        first, last = frame.assigner.closings(times)
        inside = last != TIME_MIN
        seen = inside & (seqs >= frame.from_seq)
        late = seen & (last <= watermark)
        partly = seqs[seen & ~late & (first <= watermark)]
        wanted |= (inside if frame.only_whole else seen) & (last > watermark)
        if len(partly) or late.any():
            rows = train.take(behind[late]) if late.any() else None
            for port in frame.ports:
                out.late_of_output.append((port, rows, partly))
    return wanted


def border_crossings(track: WatermarkTrack, step_us: int) -> list[tuple[int, int]]:
    """Return (seq, W then) for the items that moved W past a border of panes: only there a window can close."""
    if track.end == track.start:
        return []
    seqs, reached = track.steps()
    borders = np.floor_divide(reached, step_us)
    before = np.concatenate((np.array([track.start // step_us], dtype=np.int64), borders[:-1]))
    places = np.flatnonzero(borders > before)
    return list(zip(seqs[places].tolist(), reached[places].tolist(), strict=True))


@state_record("output_columns", 1)
@dataclass(frozen=True, slots=True)
class OutputColumns:
    """What an output shows: its schema, and which of (keys, aggregates, window_start, window_end), None for all."""

    schema: Schema
    columns: tuple[int, ...] | None = None


@state_record("member", 1)
@dataclass(slots=True, eq=False)
class Member:
    """One output: what its query asks, the frame of its window, the accumulators behind its columns.

    `key_places` tell where its keys stand among the synopsis's, `cells_read` what it has read so far, for its bill.
    """

    recipe: AggregateRecipe
    shown: OutputColumns
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
        empty = empty_train(schema, lo, hi, track, arrival=train.arrival, ended=train.ended)
        empty.idle, empty.notes = train.idle, train.notes
        return empty
    sizes = [a.rows for a in answers]
    gaps = member.frame.empty
    seqs = for_each_row([a.seq for a in answers], sizes)
    rows = seqs.rows
    return Train(
        schema,
        _columns(member, answers, sizes),
        rows=rows,
        lo=lo,
        hi=hi,
        seq=seqs,
        time=for_each_row([a.due.end_us - 1 for a in answers], sizes),
        arrival=train.arrival,
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
