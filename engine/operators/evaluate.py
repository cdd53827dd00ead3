"""Evaluating compiled expressions inside an operator: the context, and what becomes of row-level errors (K8)."""

from __future__ import annotations

from millstream.engine.data.train import Train
from millstream.engine.expressions.kernel import EvaluationContext
from millstream.engine.operators.contract import Emitter, EvaluationErrors


def context_of(train: Train) -> EvaluationContext:
    """Return the surroundings of an evaluation over a train: W just before each row, and how many offered rows each stands for."""
    tally = train.tally
    weights = None if tally is None else lambda: tally.weights_of(train.seq.array())
    return EvaluationContext(lambda: train.track.before(train.seq.array()), weights)


def report_errors(context: EvaluationContext, train: Train, out: Emitter) -> None:
    """Pass on the rows at which operations failed."""
    for positions, reason in context.errors:
        out.errors.append(EvaluationErrors(reason, train.take(positions)))
