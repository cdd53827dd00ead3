"""Shared operators: which of the segments behind one run with it (Sharaf 2007, 3.6: PDT, priority-defining tree).

An operator x that feeds N branches has segments i = 1…N, segment i being x and the i-th branch, with

    S_i = s_x S(branch)     Cbar_i = c_x + s_x Cbar(branch)     T_i of its query     SC = Σ Cbar_i - (N - 1) c_x

    sum   all run with x, rank Σ (S_i / T_i) / SC
    max   all run with x, rank that of the best segment
    pdt   segments in descending priority S_i / (Cbar_i T_i) are added while Σ (S_i / T_i) / (Σ Cbar_i - (m - 1) c_x) grows; those left
          out are scheduled by themselves, from the operator after x

For HR the T_i are 1, for BSD their squares take their place. Each operator keeps a unit of its own, so what is left out is not lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import ClassVar

from millstream.scheduler.contracts import Cutter
from millstream.scheduler.errors import PolicyError
from millstream.scheduler.estimates import Estimates
from millstream.scheduler.ledger import Ledger
from millstream.scheduler.unit_set import FloatColumn
from millstream.scheduler.units.cuts import OperatorToEndUnits

STRATEGIES = ("sum", "max", "pdt")

Segment = tuple[float, float]
"""Weighted output Σ S/T (or S, or S/T²) and cost Cbar of one segment, x included."""


def priority_defining(segments: list[Segment], shared_cost_ns: float) -> list[int]:
    """Return the indices of the segments that run with the shared operator, best first."""
    order = sorted(range(len(segments)), key=lambda index: (-segments[index][0] / segments[index][1], index))
    chosen = [order[0]]
    output, cost = segments[order[0]]
    for index in order[1:]:
        more_output, more_cost = output + segments[index][0], cost + segments[index][1] - shared_cost_ns
        if more_output / more_cost <= output / cost:
            break
        chosen.append(index)
        output, cost = more_output, more_cost
    return chosen


class SharedTreeUnits(OperatorToEndUnits):
    """Units from each operator to the ends, of a shared operator only along the segments that the strategy keeps."""

    name: ClassVar[str] = "shared-trees"
    depends_on_estimates: ClassVar[bool] = True

    def __init__(self, ledger: Ledger, estimates: Estimates, *, strategy: str, weighing: str) -> None:
        super().__init__(ledger, estimates)
        self.strategy = strategy
        self.weighing = weighing
        self._output: dict[int, float] = {}
        self._cost: dict[int, float] = {}
        self._branches: dict[int, list[int]] = {}
        self._choose_all()

    def holds(self) -> bool:
        """Choose anew; whether the same branches were chosen."""
        before, self._branches = self._branches, {}
        self._choose_all()
        return self._branches == before

    def _choose_all(self) -> None:
        for slot in reversed(self.topology.order):
            self._choose(slot)

    def _choose(self, slot: int) -> None:
        """Fix the branches, Σ and Cbar of the unit that begins at `slot`; those below are fixed already."""
        estimates = self.estimates
        selectivity, cost = estimates.selectivity.item(slot), estimates.cost_ns.item(slot)
        own = selectivity * self._rooted(slot)
        branches = list(dict.fromkeys(self.topology.consumers[slot]))
        segments = [(selectivity * self._output[branch], cost + selectivity * self._cost[branch]) for branch in branches]
        chosen: Iterable[int] = range(len(branches))
        if len(branches) > 1 and self.strategy == "pdt":
            chosen = sorted(priority_defining(segments, cost))
        self._branches[slot] = [branches[index] for index in chosen]
        self._output[slot] = own + sum(segments[index][0] for index in chosen)
        self._cost[slot] = cost + sum(segments[index][1] - cost for index in chosen)
        if len(branches) > 1 and self.strategy == "max":
            best = max(segments, key=lambda segment: segment[0] / segment[1])
            self._output[slot], self._cost[slot] = best

    def _rooted(self, slot: int) -> float:
        power = {"output_per_tuple": 0, "normalized_output": 1, "normalized_square": 2}[self.weighing]
        return sum(self.estimates.ideal_of_query[query] ** -power for query in self.topology.roots_of.get(slot, ()))

    def _find_members(self, unit: int) -> tuple[int, ...]:
        entry = int(self.entries[unit])
        found = {entry}
        stack = [entry]
        while stack:
            for branch in self._branches[stack.pop()]:
                if branch not in found:
                    found.add(branch)
                    stack.append(branch)
        return tuple(sorted(found, key=self.topology.place.__getitem__))

    def query_came(self, operators: Sequence[int]) -> bool:
        """The choice depends on all branches: cut anew."""
        return False

    def adjust(self, name: str, column: FloatColumn) -> FloatColumn:
        """Put the chosen segments' sums in the place of the whole tree's."""
        table = self._output if name == self.weighing else self._cost if name == "cost_to_end_ns" else None
        if table is None:
            return column
        for unit, entry in enumerate(self._entry_at):
            column[unit] = table[entry]
        return column


def shared_trees(strategy: str, weighing: str) -> Cutter:
    """Return the cut with this strategy; PolicyError when there is none.

    `weighing` names the estimate that the ranking divides by the cost.
    """
    if strategy not in STRATEGIES:
        raise PolicyError(f"policy option sharing={strategy} is none of {', '.join(STRATEGIES)}")
    return partial(SharedTreeUnits, strategy=strategy, weighing=weighing)
