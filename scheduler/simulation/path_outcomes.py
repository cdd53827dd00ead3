"""Outcomes of whole paths for many tuples at once: the same draws that the cost model makes one by one.

A tuple of identity i passes box x when the hash of (seed, x, i) lies under the selectivity. The hash is SplitMix64's finaliser over
columns; the n-th tuple of a log has the same identity, and so the same fate, under every policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np
from millstream.engine.data.graph import LogId, OperatorId, OperatorNode
from millstream.scheduler.hashing import MASK, mix_many, salt
from numpy.typing import NDArray

BoolMatrix = NDArray[np.bool_]


class Draws(Protocol):
    """Decides which tuples pass which operators."""

    def passes(self, operators: Sequence[OperatorId], log: LogId, first: int, last: int) -> BoolMatrix:
        """Return by operator and tuple `first` to `last` of a source's log whether it passes."""
        ...


class PathOutcomes:
    """How far tuples get on paths, from draws for single operators."""

    def __init__(self, draws: Draws) -> None:
        self.draws = draws

    def codes(self, log: LogId, paths: Sequence[Sequence[OperatorId]], first: int, last: int) -> NDArray[np.uint8]:
        """Return by path and tuple the number of the operator that drops it, or one more than the path is long."""
        codes = np.ones((len(paths), last - first), dtype=np.uint8)
        alive = np.ones(codes.shape, dtype=np.bool_)
        for position in range(max(map(len, paths), default=0)):
            rows = [index for index, path in enumerate(paths) if len(path) > position]
            passed = self.draws.passes([paths[index][position] for index in rows], log, first, last)
            alive[rows] &= passed
            codes[rows] += alive[rows]
        return codes


class HashedDraws:
    """Draws by a seeded hash of (operator, tuple)."""

    def __init__(self, seed: int, nodes: Iterable[OperatorNode]) -> None:
        self._salts: dict[OperatorId, int] = {}
        self._bounds: dict[OperatorId, int] = {}
        for node in nodes:
            self._salts[node.id] = salt(seed, node.id)
            self._bounds[node.id] = min(MASK, int(node.selectivity * (MASK + 1))) if node.selectivity < 1.0 else -1

    def passes(self, operators: Sequence[OperatorId], log: LogId, first: int, last: int) -> BoolMatrix:
        """Return whether each tuple passes each operator."""
        identities = np.uint64(log << 40) + np.arange(first, last, dtype=np.uint64)
        salts = np.array([self._salts[one] for one in operators], dtype=np.uint64)
        always = np.array([self._bounds[one] < 0 for one in operators])
        bounds = np.array([max(0, self._bounds[one]) for one in operators], dtype=np.uint64)
        drawn = mix_many(salts[:, None] ^ identities[None, :]) < bounds[:, None]
        drawn[always] = True
        return drawn


class AttributeDraws:
    """Draws by predicates on attributes of the tuples: a tuple passes an operator when its attribute is at most the operator's bound.

    `columns` holds for each log the attributes, one row an attribute; `predicates` names for each operator the attribute and the bound.
    """

    def __init__(self, columns: Mapping[LogId, NDArray[np.float64]], predicates: Mapping[OperatorId, tuple[int, float]]) -> None:
        self._columns = columns
        self._predicates = predicates

    def passes(self, operators: Sequence[OperatorId], log: LogId, first: int, last: int) -> BoolMatrix:
        """Return whether each tuple passes each operator; beyond the last known tuple nothing passes."""
        known = self._columns[log]
        asked = [self._predicates.get(one, (0, np.inf)) for one in operators]
        which, bounds = np.array([one for one, _ in asked]), np.array([bound for _, bound in asked])
        values = np.full((len(known), last - first), np.inf)
        part = known[:, first:last]
        values[:, : part.shape[1]] = part
        drawn: BoolMatrix = values[which] <= bounds[:, None]
        drawn[np.isinf(bounds)] = True
        return drawn
