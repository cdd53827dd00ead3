"""A row pattern as a machine: an NFA whose runs stand in the order in which the pattern prefers them (K27).

Of a match only the order counts: the run that comes first and reaches the end wins, so whoever reaches it cuts off all behind him. Two runs
in the same place have the same future where conditions look at rows alone, and then the first one stands for both. So all that there is to
know of such runs is the list of their places. Lists and the steps between them are kept when they are first needed (`QuickState`): a row
costs one look in a dictionary.

An iteration of `*`, `+` or `{n,}` that takes no row ends them.

Where conditions read earlier rows of the match, each run keeps what these ask for (`PatternRuns`), and that is little: of `b.price <
LAST(a.price)` the place of one row, of `SUM(b.size) < 100` a number. Two runs in the same place that have kept the same have the same
future, so there too the first one stands for both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from millstream.engine.aggregates.table import aggregate_of
from millstream.engine.data.column import Column, numpy_dtype, with_nulls
from millstream.engine.data.errors import BoundReached
from millstream.engine.data.schema import Schema
from millstream.engine.data.train import Int64Array
from millstream.engine.data.types import DataType, Kind
from millstream.engine.expressions.bounds import may_fail
from millstream.engine.expressions.compile import compile_predicate, fold
from millstream.engine.expressions.ir import Call, Cast, ColumnRef, Expression, Literal, walk
from millstream.engine.expressions.kernel import EvaluationContext
from millstream.engine.expressions.program_writer import LeftToKernels, RowWriter
from millstream.engine.language.recipes import MatchSpec, MatchValue, Pattern

if TYPE_CHECKING:
    from millstream.engine.operators.match_recognize import MatchRecognize

ACCEPT = -1
STATES_MAX = 4_096  # lists of places kept; beyond, they are found anew


class Node:
    """A place of the NFA: a row of `variable` (≥ 0), or a choice among `targets` in order. A loop leaves by `exit`; `back` leads to one."""

    __slots__ = ("back", "exit", "targets", "variable")

    def __init__(self, variable: int = -1, targets: Sequence[int] = (), leaves: int | None = None, back: int | None = None) -> None:
        self.variable = variable
        self.targets = list(targets)
        self.exit = leaves
        self.back = back


class QuickState:
    """The places of all runs of one beginning, in order; `steps` are those known, by the variables that a row can be."""

    __slots__ = ("nodes", "steps", "variables")

    def __init__(self, nodes: tuple[int, ...], variables: tuple[int, ...]) -> None:
        self.nodes = nodes
        self.variables = variables
        self.steps: dict[int, QuickStep] = {}


class QuickStep:
    """What a row does to the runs of `before`: those that go on (None: none does), which run each came from, and which one reached the end
    (-1: none).
    """

    __slots__ = ("accepted", "before", "parents", "state")

    def __init__(self, before: QuickState, state: QuickState | None, parents: tuple[int, ...], accepted: int) -> None:
        self.before = before
        self.state = state
        self.parents = parents
        self.accepted = accepted


class RowPattern:
    """The NFA of a pattern. `variables` are those of its places; `after` holds for each where a run stands behind it, in order, ACCEPT
    the last of them if it is there. `begin` is the same before the first row.
    """

    def __init__(self, pattern: Pattern) -> None:
        self._nodes: list[Node] = []
        start = self._built(pattern, ACCEPT)
        self.begin = self._reached(start)
        self.is_empty = ACCEPT in self.begin  # a match may have no rows
        self.variables = [node.variable for node in self._nodes]
        self.after = [self._reached(node.targets[0]) if node.variable >= 0 else () for node in self._nodes]
        self.first = 0  # the variables that the first row of a match can be, a bit each
        for place in self.begin:
            self.first |= 0 if place == ACCEPT else 1 << self.variables[place]
        self._states: dict[tuple[int, ...], QuickState] = {}
        self.quick = self._state(tuple(place for place in self.begin if place != ACCEPT))

    # -- the NFA --------------------------------------------------------------------------------------------------------------

    def _add(self, node: Node) -> int:
        self._nodes.append(node)
        return len(self._nodes) - 1

    def _built(self, pattern: Pattern, then: int) -> int:
        """Return where a pattern begins behind which the place `then` comes."""
        kind = pattern[0]
        if kind == "row":
            return self._add(Node(pattern[1], (then,)))
        if kind == "then":
            for part in reversed(pattern[1]):
                then = self._built(part, then)
            return then
        if kind == "or":
            return self._add(Node(targets=[self._built(part, then) for part in pattern[1]]))
        _, part, least, most, reluctant = pattern
        if most is None:
            loop = self._add(Node(leaves=then))
            body = self._built(part, self._add(Node(back=loop)))
            self._nodes[loop].targets = [then, body] if reluctant else [body, then]
            begin = loop
        else:
            begin = then
            for _ in range(most - least):
                body = self._built(part, begin)
                begin = self._add(Node(targets=(then, body) if reluctant else (body, then)))
        for _ in range(least):
            begin = self._built(part, begin)
        return begin

    def _reached(self, start: int) -> tuple[int, ...]:
        """Return the rows that may come next, in order, up to the end of the pattern if that is reached."""
        found: list[int] = []
        seen: set[int] = set()
        waiting: list[tuple[int, frozenset[int]]] = [(start, frozenset())]
        while waiting:
            place, entered = waiting.pop()
            if place == ACCEPT:
                return (*found, ACCEPT)
            node = self._nodes[place]
            if node.back is not None:
                leaves = self._nodes[node.back].exit
                assert leaves is not None
                waiting.append((leaves if node.back in entered else node.back, entered))
                continue
            if place in seen:
                continue
            seen.add(place)
            if node.variable >= 0:
                found.append(place)
                continue
            inside = entered if node.exit is None else entered | {place}
            waiting += [(t, entered if t == node.exit else inside) for t in reversed(node.targets)]
        return tuple(found)

    # -- runs that look at rows alone -----------------------------------------------------------------------------------------

    def _state(self, nodes: tuple[int, ...]) -> QuickState:
        found = self._states.get(nodes)
        if found is None:
            if len(self._states) >= STATES_MAX:
                self._states.clear()
            found = self._states[nodes] = QuickState(nodes, tuple(self.variables[node] for node in nodes))
        return found

    def step(self, state: QuickState, mask: int) -> QuickStep:
        """Return what a row that can be the variables of `mask` does to the runs."""
        if len(state.steps) >= STATES_MAX:
            state.steps.clear()
        nodes: dict[int, int] = {}
        accepted = -1
        for run, (node, variable) in enumerate(zip(state.nodes, state.variables, strict=True)):
            if not mask >> variable & 1:
                continue
            for place in self.after[node]:
                if place == ACCEPT:
                    accepted = run
                    break
                nodes.setdefault(place, run)
            if accepted >= 0:
                break
        made = QuickStep(state, self._state(tuple(nodes)) if nodes else None, tuple(nodes.values()), accepted)
        state.steps[mask] = made
        return made


def mapped_by(trail: Sequence[QuickStep], rows: int) -> bytes:
    """Return the variable that each row of a match is mapped to, given the steps that its rows made."""
    if not rows:
        return b""
    run = trail[rows - 1].accepted
    found = []
    for place in range(rows - 1, -1, -1):
        found.append(trail[place].before.variables[run])
        run = trail[place - 1].parents[run] if place else 0
    found.reverse()
    return bytes(found)


# Runs that read the match ------------------------------------------------------------------------------------------------

RUNS_MAX = 1_000
"""Runs alive in one partition. Each is looked at for each row."""

Kept = tuple[Any, ...]
History = tuple[Any, int] | None
"""The variables of the rows so far, the last one outside."""


class PatternRun:
    """One way through the pattern: its place, what it has kept, and the variables of its rows."""

    __slots__ = ("history", "kept", "place")

    def __init__(self, place: int, kept: Kept, history: History) -> None:
        self.place = place
        self.kept = kept
        self.history = history


class _Rows:
    """What some runs see at one row: the columns near it, the same for all of them, then what each has kept."""

    def __init__(self, runs: PatternRuns, operator: MatchRecognize, row: int, id_: int, begin: int, kept: Sequence[Kept]) -> None:
        self.rows = len(kept)
        self._runs, self._operator = runs, operator
        self._row, self._id, self._begin = row, id_, begin
        self._kept = kept

    def column(self, position: int) -> Column:
        """Return one value a run."""
        near = self._operator.spec.near
        if position < len(near):
            source, shift = near[position]
            ids = np.full(self.rows, self._id, dtype=np.int64)
            return self._operator.shifted(source, np.full(self.rows, self._row, dtype=np.int64), ids, shift)
        place = position - len(near)
        value = self._operator.spec.past[place]
        kept = [one[place] for one in self._kept]
        if value.call is not None:
            return self._runs.answers(place, kept)
        at: Int64Array = np.array([_place_of(value, places) for places in kept], dtype=np.int64)
        there = at >= 0
        at = np.where(there, at + self._begin + value.shift, self._row)
        there &= at >= self._operator.oldest(self._id)
        assert value.column is not None
        ids = np.full(self.rows, self._id, dtype=np.int64)
        return with_nulls(self._operator.shifted(value.column, np.where(there, at, self._row), ids, 0), there)


def _place_of(value: MatchValue, places: tuple[int, ...]) -> int:
    """Return the row that is asked for, counted from the match's first one; -1 where there is none."""
    if len(places) <= value.offset:
        return -1
    return places[value.offset if value.first else -1 - value.offset]


class _ConditionWriter(RowWriter):
    """Writes a condition on values none of which is NULL, NaN or infinite: then DOUBLEs compare as Python does."""

    def _double_comparison(self, function: str, left: Expression, right: Expression) -> str:
        if not all(isinstance(side, ColumnRef | Literal | Cast) or _is_one_step(side) for side in (left, right)):
            raise LeftToKernels
        return self.compared(function, self.text(left), self.text(right))


def _is_one_step(side: Expression) -> bool:
    """Arithmetic on finite values, which may become infinite but not NaN."""
    return isinstance(side, Call) and all(isinstance(a, ColumnRef | Literal | Cast) for a in side.arguments)


class _QuickCondition:
    """A condition as a Python function of the values at `reads`; these may be NULL or odd, and then the kernels answer."""

    def __init__(self, function: Callable[..., bool], reads: tuple[int, ...], doubles: tuple[int, ...]) -> None:
        self.function = function
        self.reads = reads
        self.doubles = doubles  # which of them must be looked at

    def holds(self, values: list[Any]) -> bool | None:
        """Return the answer, None where it is the kernels'."""
        if None in values:
            return None
        for place in self.doubles:
            if values[place] - values[place] != 0.0:
                return None
        return self.function(*values)


def _quick(condition: Expression, width: int) -> _QuickCondition | None:
    """Return the condition as a function, None where it is left to the kernels; `width` columns are read at most."""
    if may_fail(condition):
        return None
    writer = _ConditionWriter(width)
    try:
        writer.lines.append(f"return {writer.text(fold(condition))}")
    except LeftToKernels:
        return None
    reads = tuple(writer.reads)
    types = {e.position: e.type for e in walk(condition) if isinstance(e, ColumnRef)}
    function = writer.function("condition", [f"c{p}" for p in reads], {})
    return _QuickCondition(function, reads, tuple(i for i, p in enumerate(reads) if types[p].kind is Kind.DOUBLE))


class Attempt:
    """What has been found out about the match that begins at a partition's first undecided row. Places count from that row.

    `trail` are the steps of rows so far, where runs look at rows alone.
    """

    __slots__ = ("at", "best", "mapped", "runs", "state", "trail")

    def __init__(self, state: QuickState, runs: list[PatternRun], best: int) -> None:
        self.at = 0  # the next row
        self.state = state
        self.trail: list[QuickStep] = []
        self.runs = runs
        self.best = best  # the rows of the match that stands, -1: none
        self.mapped = b""


class PatternRuns:
    """Steps the runs of an attempt over rows. `conditions` are those parts that read the match, None where a variable has none."""

    def __init__(self, pattern: RowPattern, spec: MatchSpec, conditions: Sequence[Expression | None], inputs: Schema) -> None:
        self._pattern = pattern
        self._spec = spec
        self._conditions = [None if c is None else compile_predicate(c) for c in conditions]
        self._near = len(spec.near)
        width = self._near + len(spec.past)
        self._quick = [None if c is None else _quick(c, width) for c in conditions]
        self._types: list[DataType | None] = [
            inputs.fields[v.call.arguments[0]].type if v.call is not None and v.call.arguments else None for v in spec.past
        ]
        self._fresh: Kept = tuple(() if value.call is None else (0, None) for value in spec.past)
        # Of each variable, what a row that is mapped to it changes.
        self._touches = [
            [i for i, value in enumerate(spec.past) if not value.variables or variable in value.variables]
            for variable in range(len(spec.variables))
        ]

    def begin(self) -> list[PatternRun]:
        """Return the runs before the first row."""
        return [PatternRun(place, self._fresh, None) for place in self._pattern.begin if place != ACCEPT]

    def step(self, attempt: Attempt, mask: int, begin: int, row: int, id_: int, operator: MatchRecognize) -> bool:
        """Let all runs take a row, `row` behind the one at `begin` of the arena; return whether one is left."""
        pattern = self._pattern
        variables = pattern.variables
        going: list[tuple[PatternRun, int, Kept]] = []
        for run in attempt.runs:
            variable = variables[run.place]
            if mask >> variable & 1:
                going.append((run, variable, self._with_row(run.kept, variable, begin + row, row, operator)))
        going = self._passing(going, begin, row, id_, operator)
        found: dict[tuple[int, Kept], PatternRun] = {}
        accepted = False
        for run, variable, kept in going:
            history = (run.history, variable)
            for place in pattern.after[run.place]:
                if place == ACCEPT:
                    attempt.best, attempt.mapped = row + 1, _mapped(history, row + 1)
                    accepted = True
                    break
                found.setdefault((place, kept), PatternRun(place, kept, history))
            if accepted:
                break
        attempt.runs = list(found.values())
        if len(attempt.runs) > RUNS_MAX:
            raise BoundReached(
                f"one partition of MATCH_RECOGNIZE has more than {RUNS_MAX} ways to go on with a match, and each keeps rows of its own",
                hint="make WITHIN shorter, quantifiers reluctant (+?), or let the conditions read fewer earlier rows",
            )
        return bool(attempt.runs)

    def _passing(
        self, going: list[tuple[PatternRun, int, Kept]], begin: int, row: int, id_: int, operator: MatchRecognize
    ) -> list[tuple[PatternRun, int, Kept]]:
        """Return those whose variable's condition holds, each condition evaluated once for all runs."""
        gone: set[int] = set()
        for variable in {v for _, v, _ in going if self._conditions[v] is not None}:
            predicate = self._conditions[variable]
            assert predicate is not None
            asked = [i for i, (_, v, _) in enumerate(going) if v == variable]
            quick = self._quick[variable]
            if quick is not None:
                asked = self._asked_quickly(quick, asked, going, gone, (begin, row, id_), operator)
                if not asked:
                    continue
            rows = _Rows(self, operator, begin + row, id_, begin, [going[i][2] for i in asked])
            context = EvaluationContext()
            holds = predicate(rows, context)
            gone.update(i for i, held in zip(asked, holds.tolist(), strict=True) if not held)
            if context.errors:
                operator.failed_at(begin + row, context.errors[0][1])
        return [one for i, one in enumerate(going) if i not in gone] if gone else going

    def _asked_quickly(
        self,
        condition: _QuickCondition,
        asked: list[int],
        going: list[tuple[PatternRun, int, Kept]],
        gone: set[int],
        at: tuple[int, int, int],
        operator: MatchRecognize,
    ) -> list[int]:
        """Ask one run after the other; return those that the kernels must be asked about."""
        begin, row, id_ = at
        known = {p: operator.near_cell(p, begin + row, id_) for p in condition.reads if p < self._near}
        left = []
        for i in asked:
            kept = going[i][2]
            values = [known[p] if p < self._near else self._cell(p - self._near, kept, begin, id_, operator) for p in condition.reads]
            held = condition.holds(values)
            if held is None:
                left.append(i)
            elif not held:
                gone.add(i)
        return left

    def _cell(self, place: int, kept: Kept, begin: int, id_: int, operator: MatchRecognize) -> Any:
        """Return what a run has kept as Python's value, None for NULL."""
        value = self._spec.past[place]
        if value.call is None:
            assert value.column is not None
            found = _place_of(value, kept[place])
            at = begin + found + value.shift
            return None if found < 0 or at < operator.oldest(id_) else operator.cell(value.column, at)
        count, total = kept[place]
        if value.call.function == "count":
            return count
        if count == 0:
            return None
        if value.call.type.kind is Kind.INTERVAL:
            answer = self.answers(place, [kept[place]])
            return answer.values.item(0) if answer.valid is None or answer.valid.item(0) else None
        return float(total) / count if value.call.function == "avg" else total

    def _with_row(self, kept: Kept, variable: int, at: int, row: int, operator: MatchRecognize) -> Kept:
        """Return what is kept once a row is mapped to a variable."""
        touched = self._touches[variable]
        if not touched:
            return kept
        made = list(kept)
        for i in touched:
            value = self._spec.past[i]
            if value.call is not None:
                made[i] = self._folded(made[i], value, at, operator)
            elif not value.first:
                made[i] = (*made[i], row)[-1 - value.offset :]
            elif len(made[i]) <= value.offset:
                made[i] = (*made[i], row)
        return tuple(made)

    # -- aggregates: the rows that count, and their sum or extreme ------------------------------------------------------------

    def _folded(self, state: tuple[int, Any], value: MatchValue, at: int, operator: MatchRecognize) -> tuple[int, Any]:
        call = value.call
        assert call is not None
        if call.filter is not None and not operator.cell(call.filter, at):
            return state
        count, total = state
        if not call.arguments:
            return count + 1, None
        cell = operator.cell(call.arguments[0], at)
        if cell is None:
            return state
        if call.function == "count":
            return count + 1, None
        if count == 0:
            return 1, cell + 0.0 if isinstance(cell, float) else cell
        if call.function in ("sum", "avg"):
            return count + 1, total + cell
        if total != total or cell != cell:  # a NaN stays (K7)
            return count + 1, float("nan")
        return count + 1, (min if call.function == "min" else max)(total, cell)

    def answers(self, place: int, states: Sequence[tuple[int, Any]]) -> Column:
        """Return the aggregate of each state, as the aggregate itself answers."""
        call, type_ = self._spec.past[place].call, self._types[place]
        assert call is not None
        counts = np.array([count for count, _ in states], dtype=np.int64)
        if call.function == "count":
            return Column(call.type, counts)
        assert type_ is not None
        aggregate = aggregate_of(call.function)
        assert aggregate.answer is not None
        totals = np.empty(len(states), dtype=np.object_)
        totals[:] = [_neutral(type_) if count == 0 else total for count, total in states]
        summed = call.function in ("sum", "avg")
        if type_.kind is Kind.DOUBLE:
            totals = totals.astype(np.float64)
        elif not summed and not type_.is_arrow and not type_.is_wide:
            totals = totals.astype(numpy_dtype(type_))
        made = aggregate.answer(call, type_, [counts, totals] if call.function == "avg" else [totals])
        return with_nulls(made, counts > 0)


def _neutral(type_: DataType) -> Any:
    return None if type_.is_arrow else 0


def _mapped(history: History, rows: int) -> bytes:
    found = bytearray(rows)
    for place in range(rows - 1, -1, -1):
        assert history is not None
        history, found[place] = history
    return bytes(found)
