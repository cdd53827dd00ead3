"""One feed from beginning to end: ask the server about the streams, prepare the data on Spark, pace, report, keep the position."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from millstream.feeder.desk import Desk
from millstream.feeder.errors import SourceError
from millstream.feeder.job import Counted, FeedJob, FeedPlan, split_values
from millstream.feeder.pace import Ahead, Clock, Pacer, Tally, WallClock
from millstream.feeder.position import NamedRows, Position, fingerprint_of, load_position
from millstream.feeder.publishing import RemotePublisher
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

    @property
    def has_rows(self) -> bool:
        """Whether some row can be read, or there is none at all: else the streams go on, for the rows as they are once mended."""
        return any(self.counted.rows) or not self.counted.refused


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

    Then the rows go to `client` under the name that stands in the file. Publishers in Spark's tasks leave out by themselves what the
    daemon has taken.
    """
    fingerprint = fingerprint_of(plan)
    streams = tuple(target.stream for target in plan.targets)
    position = Position(streams) if state is None else load_position(state, fingerprint, streams)
    named = None
    if plan.publishers:
        position.set_parts(position.parts or [[0] * len(streams) for _ in range(plan.publishers)])
        if state is not None:
            position.save(state, fingerprint)
    elif state is not None and client is not None:
        named = NamedRows(client, streams, position)
        position.save(state, fingerprint)  # with the name, before the first row
    job = FeedJob(session, plan)
    counted = job.count({} if plan.publishers else dict(enumerate(position.acked())))
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
    finish = finish and feed.has_rows
    pacer = Pacer(
        feed.named or client, plan.targets, feed.counted.rows, feed.position, paced=plan.rule.kind != "max", finish=finish, clock=clock
    )

    def tick() -> None:
        if look is not None:
            look(pacer.tally, rate_now(plan, pacer.tally, pacer.now_ns()))
        if state is not None:
            feed.position.save(state, feed.fingerprint)

    with (stopping or _never)(pacer.stop), Ahead(lambda: feed.job.batches(feed.counted)) as batches:
        failure = _beside(lambda: pacer.run(batches), tick, pacer.stop.set)
    if failure is not None:
        raise failure
    return _result(feed, pacer.tally)


def run_in_tasks(
    feed: Feed,
    client: Any,
    connect: Callable[[], Any],
    *,
    in_order: bool = True,
    finish: bool = True,
    state: Path | None = None,
    look: Callable[[Tally, float], None] | None = None,
    stopping: Callable[[threading.Event], AbstractContextManager[None]] | None = None,
) -> Result:
    """Have Spark's tasks publish all rows that are left, over clients that `connect` gives there. What else is as in `run`.

    `in_order`: the streams' rows come in one order of due time, whichever publisher sends them. Raises FeederError with what a publisher
    failed of, or when not all can run at once.
    """
    plan, position, stop = feed.plan, feed.position, threading.Event()
    host, bind = feed.job.driver
    clock = WallClock()

    def tick() -> None:
        if stop.is_set():
            desk.stop()
        desk.check()
        position.set_parts(desk.acked())
        if look is not None:
            look(desk.tally(), rate_now(plan, desk.tally(), clock.now_ns()))
        if state is not None:
            position.save(state, feed.fingerprint)

    def give_up() -> None:
        desk.stop()
        feed.job.cancel()

    with (stopping or _never)(stop), Desk(host, position.parts, in_order=in_order, bind=bind, clock=clock) as desk:
        remote = RemotePublisher(desk.address, desk.key, position.name, connect, plan.targets, plan.rule.kind != "max")
        failure = _beside(partial(feed.job.publish, feed.counted, remote.in_task), tick, give_up)
    if failure is not None:
        raise failure
    result = _result(feed, desk.tally())
    for target, acked, rows in zip(plan.targets, position.acked(), feed.counted.rows, strict=True):
        if finish and acked == rows and not result.is_useless:
            client.finish(target.stream)
    return result


def _beside(work: Callable[[], None], tick: Callable[[], None], give_up: Callable[[], None]) -> BaseException | None:
    """Do work in a thread, and call `tick` a few times a second and once behind it; return what the work raised.

    When `tick` or Ctrl-C raises, `give_up` is to end the work, which is waited for.
    """
    failure: list[BaseException] = []

    def caught() -> None:
        try:
            work()
        except BaseException as error:  # handed to the thread that waits
            failure.append(error)

    thread = threading.Thread(target=caught, name="feeder-pace")
    thread.start()
    try:
        while thread.is_alive():
            thread.join(LOOK_SECONDS)
            tick()
    except BaseException:
        give_up()
        raise
    finally:
        thread.join()
    tick()
    return failure[0] if failure else None


def _result(feed: Feed, tally: Tally) -> Result:
    refused = dict(feed.counted.refused)
    is_useless = bool(tally.rejected or refused) and sum(feed.position.acked()) <= tally.rejected
    return Result(tally, refused, feed.position.acked() == feed.counted.rows, is_useless)


def rate_now(plan: FeedPlan, tally: Tally, now_ns: int) -> float:
    """Return the rows per second asked for at this moment, all streams together; 0 when nothing is asked."""
    return 0.0 if tally.started_ns is None else plan.rule.rate_at(now_ns - tally.started_ns, len(plan.targets))


@contextmanager
def _never(_: threading.Event) -> Iterator[None]:
    yield
