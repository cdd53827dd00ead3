"""One feed from beginning to end: ask the daemon about the streams, prepare the data on Spark, pace, report, keep the position."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from millstream.feeder.errors import SourceError
from millstream.feeder.job import Counted, FeedJob, FeedPlan, split_values
from millstream.feeder.pace import Ahead, Clock, Pacer, Tally
from millstream.feeder.position import NamedRows, Position, fingerprint_of, load_position
from millstream.feeder.targets import describe, split_stream_name

LOOK_SECONDS = 0.2  # between two looks at the numbers; the state file is written as often


@dataclass(frozen=True, slots=True)
class Feed:
    """A prepared feed: its plan, what the first pass found, and how far an earlier run came."""

    plan: FeedPlan
    job: FeedJob
    counted: Counted
    position: Position
    fingerprint: str
    named: NamedRows | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a feed: the tally, the rows that could not be read, whether all was sent.

    `is_useless`: rows came, and none has been accepted, in this run or an earlier one.
    """

    tally: Tally
    refused: dict[str, int]
    complete: bool
    is_useless: bool = False


def targets_by_value(client: Any, session: Any, plan: FeedPlan, base: str) -> FeedPlan:
    """Return the plan with a target for each value of its split column: stream `base_value`, which must exist."""
    assert plan.split_by is not None
    values = split_values(session, plan.paths, plan.read, plan.split_by)
    if not values:
        raise SourceError(f"column {plan.split_by} holds no value")
    names = [split_stream_name(base, value) for value in values]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise SourceError(f"two values of {plan.split_by} both make the stream name {twice}", hint="name the streams by conditions instead")
    targets = tuple(describe(client, name) for name in names)
    return replace(plan, targets=targets, conditions=(None,) * len(targets), split_values=values)


def prepare(session: Any, plan: FeedPlan, state: Path | None, client: Any = None) -> Feed:
    """Run the first pass; take up the position of an earlier run if there is a state file.

    Then the rows go to `client` under the name that stands in the file.
    """
    fingerprint = fingerprint_of(plan)
    streams = tuple(target.stream for target in plan.targets)
    position = Position(streams) if state is None else load_position(state, fingerprint, streams)
    named = None
    if state is not None and client is not None:
        named = NamedRows(client, streams, position)
        position.save(state, fingerprint)  # with the name, before the first row
    job = FeedJob(session, plan)
    counted = job.count(dict(enumerate(position.acked())))
    return Feed(plan, job, counted, position, fingerprint, named)


def run(
    feed: Feed,
    client: Any,
    *,
    finish: bool = True,
    state: Path | None = None,
    look: Callable[[Tally, float], None] | None = None,
    stopping: Callable[[threading.Event], AbstractContextManager[None]] | None = None,
    clock: Clock | None = None,
) -> Result:
    """Feed all rows that are left.

    `look(tally, rate)` is called a few times a second, and once at the end, with the numbers and the rate asked for now (rows per
    second of all streams, 0 without pacing). `stopping` installs whatever sets the event that stops the feed. Raises what the client
    or Spark raised.
    """
    plan = feed.plan
    pacer = Pacer(
        feed.named or client, plan.targets, feed.counted.rows, feed.position, paced=plan.rule.kind != "max", finish=finish, clock=clock
    )
    with (stopping or _never)(pacer.stop), Ahead(lambda: feed.job.batches(feed.counted)) as batches:
        failure: list[BaseException] = []
        thread = threading.Thread(target=_pace, args=(pacer, batches, failure), name="feeder-pace")
        thread.start()
        try:
            while thread.is_alive():
                thread.join(LOOK_SECONDS)
                if look is not None:
                    look(pacer.tally, rate_now(plan, pacer.tally, pacer.now_ns()))
                if state is not None:
                    feed.position.save(state, feed.fingerprint)
        finally:
            pacer.stop.set()
            thread.join()
    if state is not None:
        feed.position.save(state, feed.fingerprint)
    if failure:
        raise failure[0]
    if look is not None:  # a short feed may have ended before the first look
        look(pacer.tally, rate_now(plan, pacer.tally, pacer.now_ns()))
    tally, refused = pacer.tally, dict(feed.counted.refused)
    is_useless = bool(tally.rejected or refused) and sum(feed.position.acked()) <= tally.rejected
    return Result(tally, refused, feed.position.acked() == feed.counted.rows, is_useless)


def rate_now(plan: FeedPlan, tally: Tally, now_ns: int) -> float:
    """Return the rows per second asked for at this moment, all streams together; 0 when nothing is asked."""
    return 0.0 if tally.started_ns is None else plan.rule.rate_at(now_ns - tally.started_ns, len(plan.targets))


def _pace(pacer: Pacer, batches: Ahead, failure: list[BaseException]) -> None:
    try:
        pacer.run(batches)
    except BaseException as error:  # raised again by `run`, in the thread that waits
        failure.append(error)


@contextmanager
def _never(_: threading.Event) -> Iterator[None]:
    yield
