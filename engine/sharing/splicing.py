"""Changes of running operators when a query comes or goes, made while they are idle."""

from __future__ import annotations

from millstream.engine.flow.queues import OutputLog
from millstream.engine.flow.running import RunningOperator
from millstream.engine.sharing.ports import Subscription
from millstream.engine.synopses.shared_aggregate import SharedAggregate


def awaken(log: OutputLog) -> None:
    """Let a log that kept no bare progress carry it from now on, with all logs above it: a new reader waits for W.

    Its producer is idle, so what it has taken is also what it has answered; there the log goes on.
    """
    producer = log.producer
    if not isinstance(producer, RunningOperator):
        return
    for cursor in producer.inputs:
        awaken(cursor.log)
    if log.quiet:
        log.quiet = False
        log.hi = max(log.hi, min(c.position for c in producer.inputs))
        log.watermark_us = max(log.watermark_us, min(c.watermark_us for c in producer.inputs))


def put_in_force(subscription: Subscription, at: int, newest_us: int | None) -> None:
    """Open an output of a shared aggregate for a query that sees rows from `at` on."""
    running, log = subscription.running, subscription.log
    logic = running.logic
    assert isinstance(logic, SharedAggregate)
    if subscription.port is None:
        if logic.free_ports:
            subscription.port = logic.free_ports.pop()
            running.outputs[subscription.port] = log
        else:
            subscription.port = len(running.outputs)
            running.outputs.append(log)
        log.producer = running
        log.hi = at
        log.watermark_us = running.inputs[0].log.watermark_us
        log.idle = running.inputs[0].log.idle
    recipe, history = subscription.recipe, subscription.history
    logic.subscribe(recipe, at, subscription.port, subscription.shown, newest_us=newest_us, history=history)
    logic.set_loud(subscription.port, not log.quiet)


def take_out_of_force(subscription: Subscription) -> None:
    """Close an output; its number is free for the next query."""
    logic = subscription.running.logic
    assert isinstance(logic, SharedAggregate)
    if subscription.port is not None:
        logic.unsubscribe(subscription.port)
