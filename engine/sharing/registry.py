"""What runs and can be used by a new query of the same class, found without a look at each: ten thousand queries may read one stream.

A filter stands under one of its conjuncts, as all of them must follow from those of the new filter, and a projection under each of its
columns. Changed only where the network changes (attach, remove).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeVar

from millstream.engine.data.graph import ClassId, EdgeId, LogId, OperatorId
from millstream.engine.data.records import dataclass
from millstream.engine.expressions.bounds import may_fail
from millstream.engine.expressions.ir import ColumnRef, Expression
from millstream.engine.flow.queues import OutputLog
from millstream.engine.flow.running import RunningOperator
from millstream.engine.flow.sources import Source
from millstream.engine.language.recipes import AggregateRecipe, ProjectRecipe, SelectRecipe
from millstream.engine.sharing.containment import NormalRecipe, Part, all_implied, normal_expression, parts_beyond, parts_of
from millstream.engine.synopses.answers import OutputColumns

COMPARED_MAX = 16  # of the filters with a bound on a column, those that a new one is compared with: the nearest, which drop most

AnyKey = TypeVar("AnyKey")
AnyIndex = TypeVar("AnyIndex", "FilterIndex", "ProjectionIndex")
_Over = tuple[ClassId, LogId]
_Places = dict[Expression, tuple[int, bool]]  # of each column in normal form: its place, and whether it may fail


@dataclass(frozen=True, slots=True)
class Port:
    """An output that can be read: its log, who fills it, the source if it is a stream's, the streams and base streams behind it.

    `flushes`: silence on one of the base streams closes what is open (IDLE … FLUSH). `lineages`: how many parts the tallies of its trains
    have, 0 where nothing is shed. `keeper`: the operator that keeps the rows of a view, which fills the log.
    """

    log: OutputLog
    producer: OperatorId
    source: Source | None
    base_streams: frozenset[str]
    derived: str | None = None
    streams: frozenset[str] = frozenset()
    raw: bool = True
    flushes: bool = False
    lineages: int = 0
    keeper: RunningOperator | None = None


@dataclass(slots=True)
class Wire:
    """An input to be: which port of the consumer reads which log through which edge. `stream` names an external log's stream."""

    consumer: RunningOperator
    edge: EdgeId
    port: Port
    stream: str | None


@dataclass(slots=True, eq=False)
class SharedOutput:
    """An output of a shared aggregate that one query asked for. `port` is its number, None until it is in force.

    With `history` it begins with the windows that it sees whole, panes that are held included.
    """

    running: RunningOperator
    recipe: AggregateRecipe
    shown: OutputColumns
    log: OutputLog
    port: int | None = None
    history: bool = False


Key = tuple[ClassId, NormalRecipe, tuple[LogId, ...]]


@dataclass(slots=True, eq=False)
class Shared:
    """A running operator with its ports. `history` are the counts of its base streams' logs when it came into force."""

    key: Key
    running: RunningOperator
    ports: list[Port]
    base_logs: tuple[OutputLog, ...] = ()
    history: tuple[tuple[int, int], ...] = ()

    def is_untouched(self) -> bool:
        """Nothing has come on its streams since it came into force, so its state is that of a new operator."""
        return counts_of(self.base_logs) == self.history


def counts_of(logs: tuple[OutputLog, ...]) -> tuple[tuple[int, int], ...]:
    """Return rows and control items ever appended to each log."""
    return tuple((log.rows_total, log.controls_total) for log in logs)


class FilterIndex:
    """The filters over one log that cannot fail, so that nobody is told of errors that are another query's."""

    def __init__(self) -> None:
        self._parts: dict[OperatorId, tuple[Shared, Sequence[Part]]] = {}
        self._equal: dict[object, list[OperatorId]] = {}  # by a conjunct, or by a column and the constant that it equals
        self._bounds: dict[tuple[ColumnRef, bool], list[tuple[Any, OperatorId]]] = {}  # a column's lower or upper bounds, ascending

    def add(self, shared: Shared, condition: Expression) -> None:
        """Enter a filter."""
        parts = parts_of(condition)
        if parts is None:
            return
        self._parts[shared.running.id] = shared, parts
        equal, bound = _place_of(parts)
        if bound is None:
            self._equal.setdefault(equal, []).append(shared.running.id)
        else:
            insort(self._bounds.setdefault(bound[0], []), (bound[1], shared.running.id))

    def remove(self, shared: Shared) -> None:
        """Strike a filter out."""
        number = shared.running.id
        if number not in self._parts:
            return
        equal, bound = _place_of(self._parts.pop(number)[1])
        if bound is None:
            _leave(self._equal, equal, number)
        else:
            bounds = self._bounds[bound[0]]
            del bounds[bisect_left(bounds, (bound[1], number))]

    def __len__(self) -> int:
        return len(self._parts)

    def looser(self, ours: Sequence[Part]) -> tuple[Shared, Sequence[Part]] | None:
        """Return the running filter that drops most of what one with these conjuncts drops and nothing else, with those left to do."""
        best: tuple[int, Shared, Sequence[Part]] | None = None
        candidates = self._candidates(ours)
        for number in sorted(candidates) if len(candidates) > 1 else candidates:
            shared, theirs = self._parts[number]
            if shared.running.failed or not all_implied(ours, theirs):
                continue
            left = parts_beyond(ours, theirs)
            if left and (best is None or len(theirs) > best[0]):
                best = len(theirs), shared, left
        return None if best is None else (best[1], best[2])

    def _candidates(self, ours: Sequence[Part]) -> Collection[OperatorId]:
        if len(self._parts) <= COMPARED_MAX:
            return self._parts
        found: set[OperatorId] = set()
        for expression, bounded in ours:
            found.update(self._equal.get(expression, ()))
            if bounded is None:
                continue
            column, lower, upper = bounded
            if lower is not None and upper is not None:
                found.update(self._equal.get((column, lower[0]), ()))
            if lower is not None:
                bounds = self._bounds.get((column, True), [])
                at = bisect_right(bounds, lower[0], key=_value)
                found.update(number for _, number in bounds[max(0, at - COMPARED_MAX) : at])
            if upper is not None:
                bounds = self._bounds.get((column, False), [])
                at = bisect_left(bounds, upper[0], key=_value)
                found.update(number for _, number in bounds[at : at + COMPARED_MAX])
        return found


class ProjectionIndex:
    """The projections over one log."""

    def __init__(self) -> None:
        self._places: dict[OperatorId, tuple[Shared, _Places]] = {}
        self._with: dict[Expression, list[OperatorId]] = {}

    def add(self, shared: Shared, columns: Sequence[Expression]) -> None:
        """Enter a projection."""
        places = {normal_expression(c): (i, may_fail(c)) for i, c in reversed(list(enumerate(columns)))}
        self._places[shared.running.id] = shared, places
        for column in places:
            self._with.setdefault(column, []).append(shared.running.id)

    def remove(self, shared: Shared) -> None:
        """Strike a projection out."""
        for column in self._places.pop(shared.running.id)[1]:
            _leave(self._with, column, shared.running.id)

    def __len__(self) -> int:
        return len(self._places)

    def wider(self, columns: Iterable[Expression]) -> tuple[Shared, list[int]] | None:
        """Return the oldest projection that computes all these columns, with the place of each."""
        wanted = [normal_expression(c) for c in columns]
        rarest = min((self._with.get(c, []) for c in wanted), key=len, default=[])
        for number in rarest:
            shared, places = self._places[number]
            if shared.running.failed or not all(c in places for c in wanted):
                continue
            if not any(fails for c, (_, fails) in places.items() if c not in wanted):
                return shared, [places[c][0] for c in wanted]
        return None


class Registry:
    """Shared operators by key and by id; filters, projections and aggregates by the first log they read."""

    def __init__(self) -> None:
        self._by_key: dict[Key, list[Shared]] = {}
        self._by_operator: dict[OperatorId, Shared] = {}
        self._filters: dict[_Over, FilterIndex] = {}
        self._projections: dict[_Over, ProjectionIndex] = {}
        self._aggregates: dict[tuple[_Over, tuple[int, ...]], list[Shared]] = {}

    def add(self, shared: Shared) -> None:
        """Offer an operator."""
        class_id, _, logs = shared.key
        recipe, over = shared.running.recipe, (class_id, logs[0])
        self._by_key.setdefault(shared.key, []).append(shared)
        self._by_operator[shared.running.id] = shared
        if type(recipe) is SelectRecipe:
            self._filters.setdefault(over, FilterIndex()).add(shared, recipe.condition)
        elif isinstance(recipe, ProjectRecipe):
            self._projections.setdefault(over, ProjectionIndex()).add(shared, recipe.columns)
        elif isinstance(recipe, AggregateRecipe):
            self._aggregates.setdefault((over, tuple(sorted(recipe.keys))), []).append(shared)

    def remove(self, operator: OperatorId) -> None:
        """Offer an operator no longer."""
        shared = self._by_operator.pop(operator, None)
        if shared is None:
            return
        class_id, _, logs = shared.key
        recipe, over = shared.running.recipe, (class_id, logs[0])
        _leave(self._by_key, shared.key, shared)
        if type(recipe) is SelectRecipe:
            self._strike_out(self._filters, over, shared)
        elif isinstance(recipe, ProjectRecipe):
            self._strike_out(self._projections, over, shared)
        elif isinstance(recipe, AggregateRecipe):
            _leave(self._aggregates, (over, tuple(sorted(recipe.keys))), shared)

    @staticmethod
    def _strike_out(table: dict[_Over, AnyIndex], over: _Over, shared: Shared) -> None:
        index = table.get(over)
        if index is not None:
            index.remove(shared)
            if not len(index):
                del table[over]

    def find(self, key: Key, *, with_state: bool = True) -> Shared | None:
        """Return an operator that does the same; one with state only while nothing has reached it."""
        for shared in self._by_key.get(key, ()):
            if not shared.running.failed and (not shared.running.logic.stateful or (with_state and shared.is_untouched())):
                return shared
        return None

    def looser_filter(self, class_id: ClassId, log: LogId, parts: Sequence[Part]) -> tuple[Shared, Sequence[Part]] | None:
        """Return what FilterIndex.looser does, of the filters of a class that read a log."""
        index = self._filters.get((class_id, log))
        return None if index is None else index.looser(parts)

    def wider_projection(self, class_id: ClassId, log: LogId, columns: Iterable[Expression]) -> tuple[Shared, list[int]] | None:
        """Return what ProjectionIndex.wider does, of the projections of a class that read a log."""
        index = self._projections.get((class_id, log))
        return None if index is None else index.wider(columns)

    def aggregates(self, class_id: ClassId, log: LogId, keys: Iterable[int]) -> list[Shared]:
        """Return the aggregates of a class over a log by these keys, in whatever order; the oldest first."""
        found = self._aggregates.get(((class_id, log), tuple(sorted(keys))), ())
        return [shared for shared in found if not shared.running.failed]


def _place_of(parts: Sequence[Part]) -> tuple[object, tuple[tuple[ColumnRef, bool], Any] | None]:
    """Return where a filter stands: at a conjunct or constant that ours must equal, if it has one, else at a bound of a column."""
    for expression, bounded in parts:
        if bounded is None:
            return expression, None
        column, lower, upper = bounded
        if lower is not None and upper is not None:
            return (column, lower[0]), None
    assert parts[0][1] is not None
    column, lower, upper = parts[0][1]
    bound = upper if lower is None else lower
    assert bound is not None
    return None, ((column, lower is not None), bound[0])


def _leave(table: dict[AnyKey, list[Any]], key: AnyKey, gone: object) -> None:
    left = [one for one in table[key] if one != gone]
    if left:
        table[key] = left
    else:
        del table[key]


def _value(bound: tuple[Any, OperatorId]) -> Any:
    return bound[0]
