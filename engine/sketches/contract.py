"""What a synopsis is: a summary of values in bounded memory, made group by group and pane by pane, and merged for an answer.

The answer of a synopsis depends on its values and the order in which they came, never on how they were cut into calls (K15), and a
question never changes it. As long as it has seen fewer values than it can hold it answers exactly.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from millstream.engine.data.column import Column
from millstream.engine.data.errors import Unsupported
from millstream.engine.data.records import dataclass
from millstream.engine.data.types import DataType
from millstream.engine.language.recipes import AggregateCall
from millstream.engine.state.forms import state_record

Int64Array = npt.NDArray[np.int64]


@state_record("values", 1)
@dataclass(frozen=True, slots=True)
class Values:
    """Values that count, in order of arrival. `codes` is whatever the kind's `encode` made of them, an array as long as the others."""

    codes: npt.NDArray[Any]
    times: Int64Array
    ordinals: Int64Array

    def part(self, start: int, stop: int) -> Values:
        """Return values start to stop (excluded)."""
        return Values(self.codes[start:stop], self.times[start:stop], self.ordinals[start:stop])


def parts_of(array: npt.NDArray[Any], sizes: Int64Array) -> list[npt.NDArray[Any]]:
    """Return an array cut into parts of these sizes. ValueError when they are not the whole."""
    ends = np.cumsum(sizes)
    if len(array) != (int(ends[-1]) if len(ends) else 0) or bool((sizes < 0).any()):
        raise ValueError("the parts of an array are not the whole")
    return [array[start:stop] for start, stop in zip((ends - sizes).tolist(), ends.tolist(), strict=True)]


class Synopsis(ABC):
    """The summary of one group in one pane. Each is held at one place only, so that many are written as one table."""

    __slots__ = ()

    @abstractmethod
    def add(self, values: Values) -> None:
        """Take in values that came after all earlier ones."""

    @abstractmethod
    def nbytes(self) -> int:
        """Return about how many bytes it holds."""


class SynopsisKind(ABC):
    """How one aggregate call summarises."""

    @property
    @abstractmethod
    def nbytes_max(self) -> int:
        """Return about how many bytes a synopsis can come to hold."""

    @abstractmethod
    def encode(self, column: Column) -> npt.NDArray[Any]:
        """Return codes for the values of a column without NULLs."""

    @abstractmethod
    def empty(self) -> Synopsis:
        """Return a synopsis of nothing."""

    @abstractmethod
    def answers(self, type_: DataType, groups: Sequence[Sequence[Any]]) -> Column:
        """Return one answer a group from the synopses of its panes, in order of time (perhaps none); they are not changed."""


SKETCHED = frozenset(("approx_count_distinct", "approx_percentile", "approx_top_k"))


def synopsis_kind(call: AggregateCall, argument: DataType) -> SynopsisKind:
    """Return how the call summarises its argument; Unsupported when it is none of SKETCHED. A kind is loaded with the first of it."""
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
