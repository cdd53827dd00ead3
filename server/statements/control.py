"""Statements that steer what runs: START, STOP, PAUSE and RESUME QUERY; SET POLICY, from the next decision on; those about recordings.

A recording is of arrivals, for `millstream simulate`, or of decisions, for a trace viewer.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from millstream.engine.data.errors import Unsupported
from millstream.engine.language.statements import ChangeQuery, QueryVerb, Recorded, SetPolicy, SetRecording, ShowRecording
from millstream.scheduler.errors import PolicyError
from millstream.scheduler.spec import OptionValue, PolicySpec
from millstream.server.errors import IllegalMove
from millstream.server.host import running
from millstream.server.host.lifecycle import Verb
from millstream.server.host.recordings import ArrivalRecording, DecisionRecording, RecordingText, recorded_lately
from millstream.server.journal.store import POLICY_NOTE
from millstream.server.results.outcome import Outcome, said, table

if TYPE_CHECKING:
    from millstream.scheduler.drivers.live import LiveScheduler
    from millstream.server.host.contract import Context
    from millstream.server.host.engine_host import EngineHost

_VERBS = {QueryVerb.START: Verb.START, QueryVerb.STOP: Verb.STOP, QueryVerb.PAUSE: Verb.PAUSE, QueryVerb.RESUME: Verb.RESUME}


def change_query(host: EngineHost, statement: ChangeQuery, context: Context) -> Outcome:
    """Move a query to another state; a query that is there already stays, and that is said."""
    query = host.queries.get(statement.name.text)
    moved = running.move(host, query, _VERBS[statement.verb])
    word = (moved or query.state).value
    return said(f"query {query.name} is {word}" if moved else f"query {query.name} is already {word}", query=query.name)


def set_policy(host: EngineHost, statement: SetPolicy, context: Context) -> Outcome:
    """Check the policy, use it, remember it."""
    options = tuple((option.name.replace("-", "_"), option.value) for option in statement.options)
    spec = PolicySpec(statement.name.text, options if statement.name.text != "user" else _from_policy_dir(host, options))
    with host.store.change() as change:
        before = host.policy
        _use(host, spec)
        change.back(partial(_use, host, before))
        if not context.restoring:
            host.store.set_note(POLICY_NOTE, str(spec))
    return said(f"policy is {spec}")


def _use(host: EngineHost, spec: PolicySpec) -> None:
    host.runtime.set_policy(spec)
    host.policy = spec


def _from_policy_dir(host: EngineHost, options: tuple[tuple[str, OptionValue], ...]) -> tuple[tuple[str, OptionValue], ...]:
    """Return the options with the file's whole path: code comes only from the directory that whoever runs the server named."""
    if host.policy_dir is None:
        raise PolicyError("this server takes no policy files", hint="restart it with --policy-dir DIR, and put the file in DIR")
    folder = host.policy_dir.resolve()
    found = []
    for name, value in options:
        path = (folder / str(value)).resolve()
        if name == "file" and not path.is_relative_to(folder):
            raise PolicyError(
                f"policy file '{value}' is not in the server's policy directory", hint="give its path relative to that directory"
            )
        found.append((name, str(path) if name == "file" else value))
    return tuple(found)


def record(host: EngineHost, statement: SetRecording, context: Context) -> Outcome:
    """Begin a recording, or end it and return its lines."""
    scheduler = host.runtime.scheduler
    if scheduler is None:
        raise Unsupported("a run in virtual time cannot be recorded", hint="record a running server")
    return _begin_recording(host, scheduler, statement, context) if statement.begins else _end_recording(host, statement, context)


def _begin_recording(host: EngineHost, scheduler: LiveScheduler, statement: SetRecording, context: Context) -> Outcome:
    if statement.what in host.recordings:
        raise IllegalMove(f"{statement.what.value.lower()} are already being recorded", hint="wait for the end of that recording")
    now_ns = host.runtime.arrival_ns()
    if statement.what is Recorded.ARRIVALS:
        recording = ArrivalRecording(scheduler, host.network, now_ns)
        host.runtime.record(recording)
        host.recordings[statement.what] = (context.owner, recording)
    else:
        host.recordings[statement.what] = (context.owner, DecisionRecording(scheduler, now_ns))
    return said(f"recording {statement.what.value.lower()}")


def _end_recording(host: EngineHost, statement: SetRecording, context: Context) -> Outcome:
    owner, recording = host.recordings.get(statement.what, (None, None))
    if recording is None or owner is not context.owner:
        raise IllegalMove(
            f"this connection records no {statement.what.value.lower()}", hint=f"send START RECORDING {statement.what.value} first"
        )
    del host.recordings[statement.what]
    if statement.what is Recorded.ARRIVALS:
        host.runtime.record(None)
    return _lines(recording.end(host.runtime.arrival_ns()), "cut at the bound on the size of a recording")


def show_recording(host: EngineHost, statement: ShowRecording, context: Context) -> Outcome:
    """Return what arrived before now as the lines of a recording."""
    scheduler, ring = host.runtime.scheduler, host.runtime.ring
    if scheduler is None:
        raise Unsupported("a run in virtual time cannot be recorded", hint="record a running server")
    if host.runtime.ring_bounds is None:
        raise Unsupported("this server keeps no counts of what arrived", hint="restart it with recording_kept_s above 0")
    if ring is None:
        raise IllegalMove("nothing has arrived since the server started", hint="publish rows first")
    asked_ns = ring.bounds.kept_ns if statement.last_us is None else statement.last_us * 1_000
    told = recorded_lately(ring, scheduler, host.network, host.runtime.arrival_ns(), asked_ns)
    return _lines(told, "cut: no more is kept, or fits into a recording")


def _lines(told: RecordingText, when_cut: str) -> Outcome:
    outcome = table([("line", "TEXT")], [(line,) for line in told.lines])
    word = f"recorded {told.seconds:.1f} s"
    return Outcome(outcome.columns, outcome.values, (f"{word}, {when_cut}" if told.cut else word,))


def release_recordings(host: EngineHost, owner: object) -> None:
    """End the recordings of a connection that is gone; nobody gets them."""
    for what, (began, recording) in list(host.recordings.items()):
        if began is owner:
            del host.recordings[what]
            if what is Recorded.ARRIVALS:
                host.runtime.record(None)
            else:
                recording.end(host.runtime.arrival_ns())
