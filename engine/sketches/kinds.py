"""From an aggregate call to its kind of synopsis: one table, by which a kind is loaded when the first of it is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.engine.data.errors import Unsupported
from millstream.engine.data.types import DataType
from millstream.engine.language.recipes import AggregateCall

if TYPE_CHECKING:
    from millstream.engine.sketches.contract import SynopsisKind

SKETCHED = frozenset(("approx_count_distinct", "approx_percentile", "approx_top_k"))


def synopsis_kind(call: AggregateCall, argument: DataType) -> SynopsisKind:
    """Return how the call summarises its argument; Unsupported when it is none of SKETCHED."""
    if call.function == "approx_count_distinct":
        from millstream.engine.sketches.distinct_count import DistinctCount

        return DistinctCount()
    if call.function == "approx_percentile":
        from millstream.engine.sketches.percentile import Percentile

        return Percentile(call.options[0])
    if call.function == "approx_top_k":
        from millstream.engine.sketches.frequent_values import FrequentValues

        return FrequentValues(call.options[0], argument)
    raise Unsupported(f"the aggregate {call.function.upper()} has no synopsis")
