"""The states a query goes through, and which verb leads from which to which. Data first; the functions only read it.

submitted   accepted, its start time has not come
running     reads and answers
paused      keeps its state and its queues (bounded), reads nothing
stopped     has no state and reads nothing; START begins anew
finished    its inputs have ended, or its lifetime is over; results that are kept can still be had
dropped     gone; the name is free
"""

from __future__ import annotations

from enum import Enum

from millstream.server.errors import IllegalMove


class QueryState(Enum):
    """Where a query stands."""

    SUBMITTED = "submitted"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    FINISHED = "finished"
    DROPPED = "dropped"


class Verb(Enum):
    """What can be done to a query, by its user or by the server itself (finish, expire)."""

    START = "start"
    STOP = "stop"
    PAUSE = "pause"
    RESUME = "resume"
    DROP = "drop"
    FINISH = "finish"
    EXPIRE = "expire"


MOVES: dict[tuple[QueryState, Verb], QueryState] = {
    (QueryState.SUBMITTED, Verb.START): QueryState.RUNNING,
    (QueryState.SUBMITTED, Verb.STOP): QueryState.STOPPED,
    (QueryState.SUBMITTED, Verb.DROP): QueryState.DROPPED,
    (QueryState.RUNNING, Verb.PAUSE): QueryState.PAUSED,
    (QueryState.RUNNING, Verb.STOP): QueryState.STOPPED,
    (QueryState.RUNNING, Verb.FINISH): QueryState.FINISHED,
    (QueryState.RUNNING, Verb.EXPIRE): QueryState.FINISHED,
    (QueryState.RUNNING, Verb.DROP): QueryState.DROPPED,
    (QueryState.PAUSED, Verb.RESUME): QueryState.RUNNING,
    (QueryState.PAUSED, Verb.STOP): QueryState.STOPPED,
    (QueryState.PAUSED, Verb.EXPIRE): QueryState.FINISHED,
    (QueryState.PAUSED, Verb.DROP): QueryState.DROPPED,
    (QueryState.STOPPED, Verb.START): QueryState.RUNNING,
    (QueryState.STOPPED, Verb.DROP): QueryState.DROPPED,
    (QueryState.FINISHED, Verb.START): QueryState.RUNNING,
    (QueryState.FINISHED, Verb.STOP): QueryState.STOPPED,
    (QueryState.FINISHED, Verb.DROP): QueryState.DROPPED,
}


_TARGETS = {Verb.START: QueryState.RUNNING, Verb.RESUME: QueryState.RUNNING, Verb.STOP: QueryState.STOPPED, Verb.PAUSE: QueryState.PAUSED}
_ALLOWED_HINT = {
    QueryState.SUBMITTED: "it can be started, stopped or dropped",
    QueryState.RUNNING: "it can be paused, stopped or dropped",
    QueryState.PAUSED: "it can be resumed, stopped or dropped",
    QueryState.STOPPED: "it can be started or dropped",
    QueryState.FINISHED: "it can be started anew, stopped or dropped",
    QueryState.DROPPED: "submit it again",
}


def next_state(name: str, state: QueryState, verb: Verb) -> QueryState | None:
    """Return the state that `verb` leads to, or None when the query is there already. Raises IllegalMove for any other verb."""
    moved = MOVES.get((state, verb))
    if moved is not None:
        return moved
    if _TARGETS.get(verb) is state and not (verb is Verb.RESUME or state is QueryState.DROPPED):
        return None
    raise IllegalMove(f"query {name} is {state.value}, so it cannot {verb.value}", hint=_ALLOWED_HINT[state])
