"""START RECORDING and STOP RECORDING: of arrivals for `millstream simulate`, of decisions for a trace viewer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.engine.data.errors import Unsupported
from millstream.engine.language.statements import Record, Recorded
from millstream.server.errors import IllegalMove
from millstream.server.host.recordings import ArrivalRecording, DecisionRecording
from millstream.server.results.outcome import Outcome, said, table

if TYPE_CHECKING:
    from millstream.scheduler.live import LiveScheduler
    from millstream.server.host.contract import Context
    from millstream.server.host.engine_host import EngineHost


def record(host: EngineHost, statement: Record, context: Context) -> Outcome:
    """Begin a recording, or end it and return its lines."""
    scheduler = host.runtime.scheduler
    if scheduler is None:
        raise Unsupported("a run in virtual time records nothing", hint="record a live server")
    return _begin(host, scheduler, statement, context) if statement.begins else _end(host, statement, context)


def _begin(host: EngineHost, scheduler: LiveScheduler, statement: Record, context: Context) -> Outcome:
    if statement.what in host.recordings:
        raise IllegalMove(f"{statement.what.value.lower()} are being recorded already", hint="only one recording of a kind at a time")
    now_ns = host.runtime.arrival_ns()
    if statement.what is Recorded.ARRIVALS:
        recording = ArrivalRecording(scheduler, host.network, now_ns)
        host.runtime.record(recording)
        host.recordings[statement.what] = (context.owner, recording)
    else:
        host.recordings[statement.what] = (context.owner, DecisionRecording(scheduler, now_ns))
    return said(f"recording {statement.what.value.lower()}")


def _end(host: EngineHost, statement: Record, context: Context) -> Outcome:
    owner, recording = host.recordings.get(statement.what, (None, None))
    if recording is None or owner is not context.owner:
        raise IllegalMove(
            f"this connection records no {statement.what.value.lower()}", hint=f"START RECORDING {statement.what.value} comes first"
        )
    del host.recordings[statement.what]
    if statement.what is Recorded.ARRIVALS:
        host.runtime.record(None)
    told = recording.end(host.runtime.arrival_ns())
    outcome = table([("line", "TEXT")], [(line,) for line in told.lines])
    word = f"recorded {told.seconds:.1f} s"
    return Outcome(outcome.columns, outcome.values, (word + (", cut at the bound of what a recording holds" if told.cut else ""),))


def release(host: EngineHost, owner: object) -> None:
    """End the recordings of a connection that is gone; nobody gets them."""
    for what, (began, recording) in list(host.recordings.items()):
        if began is owner:
            del host.recordings[what]
            if what is Recorded.ARRIVALS:
                host.runtime.record(None)
            else:
                recording.end(host.runtime.arrival_ns())
