"""A row pattern as a machine: an NFA whose runs stand in the order in which the pattern prefers them (K27).

Of a match only the order counts: the run that comes first and reaches the end wins, so whoever reaches it cuts off all behind him. Two runs
in the same place have the same future where conditions look at rows alone, and then the first one stands for both. So all that there is to
know of such runs is the list of their places. Lists and the steps between them are kept when they are first needed (`QuickState`): a row
costs one look in a dictionary.

An iteration of `*`, `+` or `{n,}` that takes no row ends them.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.engine.language.recipes import Pattern

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
