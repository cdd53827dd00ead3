"""What a policy sees: columns over the units of its cut, read only. Nothing here changes the ledger."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from millstream.engine.graph import QueryNode
from millstream.scheduler.estimates import Estimates
from millstream.scheduler.ledger import Ledger
from millstream.scheduler.units.base import UnitSet
from numpy.typing import NDArray

FloatColumn = NDArray[np.float64]
IntColumn = NDArray[np.int64]
BoolColumn = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class UnitView:
    """One unit with the values a simple policy of a user's own needs. Times in ns."""

    unit: int
    label: str
    rows: int
    wait_ns: int
    output_per_tuple: float
    cost_to_end_ns: float
    ideal_time_ns: float
    selectivity: float
    cost_ns: float
    weight: float
    deadline_ns: int


class View:
    """Columns over units; index i of every column is unit i (or the i-th of a restricted view, see `only`).

    Letters of the papers: S is `output_per_tuple`, Cbar `cost_to_end_ns`, T `ideal_time_ns`, W `wait_ns(now)`, N `rows`, each at the
    unit's entry; Σ S_i/T_i is `normalized_output`, Σ S_i/T_i² `normalized_square`.
    """

    def __init__(self, ledger: Ledger, estimates: Estimates, units: UnitSet) -> None:
        self.ledger = ledger
        self.estimates = estimates
        self.units = units
        self._version = -1
        self._columns: dict[str, FloatColumn] = {}
        self._shape: dict[str, FloatColumn] = {}
        self._index: IntColumn | None = None

    def only(self, units: IntColumn) -> View:
        """Return the same view restricted to these units, in this order."""
        part = View.__new__(View)
        part.__dict__.update(self.__dict__)
        part._index = units
        part._sync()
        return part

    @property
    def index(self) -> IntColumn:
        """The units this view shows."""
        return np.arange(self.units.count) if self._index is None else self._index

    def query_came(self) -> None:
        """Forget the columns: there are more units now."""
        self._columns.clear()
        self._shape.clear()

    def _sync(self) -> None:
        if self._version != self.estimates.version:
            self._columns.clear()
            self._version = self.estimates.version

    def _cut(self, column: FloatColumn) -> FloatColumn:
        return column if self._index is None else column[self._index]

    def _estimate(self, name: str) -> FloatColumn:
        self._sync()
        column = self._columns.get(name)
        if column is None:
            source: FloatColumn = getattr(self.estimates, name)
            column = self._columns[name] = source[self.units.entries]
        return self._cut(column)

    # ---- from the estimates

    @property
    def output_per_tuple(self) -> FloatColumn:
        """S: outputs expected of one tuple from the entry to the ends."""
        return self._estimate("output_per_tuple")

    @property
    def cost_to_end_ns(self) -> FloatColumn:
        """Cbar: ns expected for one tuple from the entry to the ends."""
        return self._estimate("cost_to_end_ns")

    @property
    def normalized_output(self) -> FloatColumn:
        """Σ S_i / T_i over the queries below the entry, in 1/ns."""
        return self._estimate("normalized_output")

    @property
    def normalized_square(self) -> FloatColumn:
        """Σ S_i / T_i² over the queries below the entry, in 1/ns²."""
        return self._estimate("normalized_square")

    @property
    def ideal_time_ns(self) -> FloatColumn:
        """T of the query below the entry, of the quickest where there are several."""
        return self._estimate("ideal_time_ns")

    @property
    def selectivity(self) -> FloatColumn:
        """s of the entry alone."""
        return self._estimate("selectivity")

    @property
    def cost_ns(self) -> FloatColumn:
        """c of the entry alone, in ns per tuple."""
        return self._estimate("cost_ns")

    # ---- from the ledger

    @property
    def rows(self) -> IntColumn:
        """N: tuples waiting at the entry."""
        return self.units.rows if self._index is None else self.units.rows[self._index]

    @property
    def head_ns(self) -> IntColumn:
        """Arrival of the tuple at the head of the entry's queue; `limits.NEVER_NS` when it is empty."""
        return self.units.head_ns if self._index is None else self.units.head_ns[self._index]

    @property
    def available(self) -> BoolColumn:
        """Units that could run now."""
        return self.units.available if self._index is None else self.units.available[self._index]

    def wait_ns(self, now_ns: int) -> FloatColumn:
        """W: now less the head's arrival, 0 for an empty queue."""
        return np.maximum(now_ns - self.head_ns, 0).astype(np.float64)

    # ---- from the network's shape

    def _from_queries(self, name: str) -> FloatColumn:
        column = self._shape.get(name)
        if column is None:
            values = [float(getattr(self.query_of(unit), name)) for unit in range(self.units.count)]
            column = self._shape[name] = np.array(values, dtype=np.float64)
        return self._cut(column)

    def query_of(self, unit: int) -> QueryNode:
        """Return the query the unit's entry serves, the first added where there are several."""
        network = self.units.ledger.network
        return network.queries[self.units.topology.queries_of[int(self.units.entries[unit])][0]]

    @property
    def weight(self) -> FloatColumn:
        """Weight of the unit's query."""
        return self._from_queries("weight")

    @property
    def deadline_ns(self) -> FloatColumn:
        """Relative deadline of the unit's query."""
        return self._from_queries("deadline_ns")

    def unit(self, unit: int, now_ns: int) -> UnitView:
        """Return one unit by itself."""
        entry, estimates, query = int(self.units.entries[unit]), self.estimates, self.query_of(unit)
        rows = int(self.units.rows[unit])
        return UnitView(
            unit=unit,
            label=self.ledger.network.node(entry).label or f"operator {self.ledger.network.operators.identity(entry)}",
            rows=rows,
            wait_ns=max(0, now_ns - int(self.units.head_ns[unit])) if rows else 0,
            output_per_tuple=float(estimates.output_per_tuple[entry]),
            cost_to_end_ns=float(estimates.cost_to_end_ns[entry]),
            ideal_time_ns=float(estimates.ideal_time_ns[entry]),
            selectivity=float(estimates.selectivity[entry]),
            cost_ns=float(estimates.cost_ns[entry]),
            weight=query.weight,
            deadline_ns=query.deadline_ns,
        )
