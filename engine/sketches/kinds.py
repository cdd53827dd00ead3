"""From an aggregate call to its kind of synopsis: one table."""

from __future__ import annotations

from millstream.engine.data.errors import Unsupported
from millstream.engine.data.types import DataType
from millstream.engine.language.recipes import AggregateCall
from millstream.engine.sketches.contract import SynopsisKind
from millstream.engine.sketches.distinct_count import DistinctCount
from millstream.engine.sketches.frequent_values import FrequentValues
from millstream.engine.sketches.percentile import Percentile

SKETCHED = frozenset(("approx_count_distinct", "approx_percentile", "approx_top_k"))


def synopsis_kind(call: AggregateCall, argument: DataType) -> SynopsisKind:
    """Return how the call summarises its argument; Unsupported when it is none of SKETCHED."""
    if call.function == "approx_count_distinct":
        return DistinctCount()
    if call.function == "approx_percentile":
        return Percentile(call.options[0])
    if call.function == "approx_top_k":
        return FrequentValues(call.options[0], argument)
    raise Unsupported(f"the aggregate {call.function.upper()} has no synopsis")
