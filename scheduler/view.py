"""What a policy sees: columns over the units of its cut, read only. Nothing here changes the ledger."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from millstream.engine.data.graph import QueryNode
from millstream.engine.data.records import dataclass
from millstream.scheduler.estimates import Estimates
from millstream.scheduler.ledger import Ledger
from millstream.scheduler.unit_set import UnitSet
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

    def __init__(self, ledger: Ledger, estimates: Estimates, units: UnitSet, part: tuple[View, IntColumn] | None = None) -> None:
        """Show all units, or of another view those at an index, with the columns that it has."""
        self.ledger = ledger
        self.estimates = estimates
        self.units = units
        whole = part[0] if part else None
        self._index: IntColumn | None = part[1] if part else None
        self._version: int = whole._version if whole else -1
        self._columns: dict[str, FloatColumn] = whole._columns if whole else {}
        self._shape: dict[str, FloatColumn] = whole._shape if whole else {}
        self._table: IntColumn | None = whole._table if whole else None
        self.shared: dict[str, object] = whole.shared if whole else {}
        """What a policy keeps beside a column until the units change."""

    def only(self, units: IntColumn) -> View:
        """Return the same view restricted to these units, in this order."""
        part = View(self.ledger, self.estimates, self.units, (self, units))
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
        self._table = None
        self.shared.clear()

    def remembered(self, name: str, make: Callable[[], FloatColumn]) -> FloatColumn:
        """Return a column over all units that follows from the network's shape, made when first asked for."""
        column = self._shape.get(name)
        if column is None:
            column = self._shape[name] = make()
        return self._cut(column)

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
            column = self._columns[name] = self.units.adjust(name, source[self.units.entries])
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

    # ---- along the members of a unit, where it is a chain of operators

    def _chain(self) -> tuple[FloatColumn, FloatColumn]:
        """Cost of one tuple through the unit, and outputs of it: Σ c_j Π_{i<j} s_i and Π s_j over its members."""
        self._sync()
        if "chain_cost" not in self._columns:
            table = self._member_table()
            inside = table >= 0
            selectivity = np.where(inside, self.estimates.selectivity[table], 1.0)
            reaching: FloatColumn = np.cumprod(selectivity, axis=1, dtype=np.float64)
            before = np.concatenate((np.ones((len(table), 1)), reaching[:, :-1]), axis=1)
            costs: FloatColumn = np.where(inside, self.estimates.cost_ns[table], 0.0)
            self._columns["chain_cost"] = np.add.reduce(costs * before, axis=1)
            self._columns["chain_output"] = reaching[:, -1]
        return self._cut(self._columns["chain_cost"]), self._cut(self._columns["chain_output"])

    def _member_table(self) -> IntColumn:
        if self._table is None:
            members = [self.units.members(unit) for unit in range(self.units.count)]
            table = np.full((len(members), max(map(len, members), default=1)), -1, dtype=np.int64)
            for unit, slots in enumerate(members):
                table[unit, : len(slots)] = slots
            self._table = table
        return self._table

    @property
    def chain_cost_ns(self) -> FloatColumn:
        """Expected ns of one tuple through all members of the unit."""
        return self._chain()[0]

    @property
    def chain_output(self) -> FloatColumn:
        """Expected outputs of one tuple through all members of the unit."""
        return self._chain()[1]

    @property
    def bytes_in(self) -> FloatColumn:
        """Size of a tuple that enters the unit."""
        return self._member_bytes("row_bytes_in", 0)

    @property
    def bytes_out(self) -> FloatColumn:
        """Size of a tuple that leaves the unit's last member."""
        return self._member_bytes("row_bytes_out", -1)

    def _member_bytes(self, name: str, place: int) -> FloatColumn:
        node, units = self.ledger.network.node, self.units
        return self.remembered(
            name,
            lambda: np.array([float(getattr(node(units.members(unit)[place]), name)) for unit in range(units.count)]),
        )

    # ---- from the ledger

    @property
    def newest_ns(self) -> IntColumn:
        """Arrival of the newest tuple appended to an input of the entry."""
        return self.ledger.newest_ns[self.units.entries[self.index]]

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
        return self.remembered(name, lambda: np.array([float(getattr(self.query_of(unit), name)) for unit in range(self.units.count)]))

    def query_of(self, unit: int) -> QueryNode:
        """Return the query the unit's entry serves, the first added where there are several."""
        network = self.units.ledger.network
        return network.queries[self.units.topology.queries_of[int(self.units.entries[unit])][0]]

    def queries_of(self, unit: int) -> list[QueryNode]:
        """Return all queries the unit's entry serves, first added first."""
        network = self.units.ledger.network
        return [network.queries[query] for query in self.units.topology.queries_of[int(self.units.entries[unit])]]

    @property
    def weight(self) -> FloatColumn:
        """Weight of the unit's query."""
        return self._from_queries("weight")

    @property
    def deadline_ns(self) -> FloatColumn:
        """Relative deadline of the unit's query."""
        return self._from_queries("deadline_ns")

    @property
    def period_ns(self) -> FloatColumn:
        """SLIDE of the unit's query, 0 where it has none."""
        return self.remembered(
            "period_ns", lambda: np.array([float(self.query_of(unit).period_ns or 0) for unit in range(self.units.count)])
        )

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
