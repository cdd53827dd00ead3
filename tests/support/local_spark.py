"""A session that runs RDDs in this process, with what `feeder/spark` asks of one: the same tasks in the same cuts, without Java."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from operator import itemgetter
from typing import Any


class LocalRows:
    """An RDD: its partitions are made when they are asked for. What crosses a shuffle is pickled, as in Spark."""

    def __init__(self, parts: Callable[[], list[Iterable[Any]]]) -> None:
        self._parts = parts

    def mapPartitionsWithIndex(self, function: Any) -> LocalRows:  # noqa: N802
        return LocalRows(lambda: [function(i, iter(part)) for i, part in enumerate(self._parts())])

    def mapPartitions(self, function: Any) -> LocalRows:  # noqa: N802
        return self.mapPartitionsWithIndex(lambda _, items: function(items))

    def map(self, function: Any) -> LocalRows:
        return self.mapPartitions(lambda items: map(function, items))

    def flatMap(self, function: Any) -> LocalRows:  # noqa: N802
        return self.mapPartitions(lambda items: (made for item in items for made in function(item)))

    def partitionBy(self, count: int, place: Callable[[int], int]) -> LocalRows:  # noqa: N802
        def parts() -> list[Iterable[Any]]:
            found: list[list[Any]] = [[] for _ in range(count)]
            for part in self._parts():
                for item in part:
                    key, value = pickle.loads(pickle.dumps(item))
                    found[place(key) % count].append((key, value))
            return list(found)

        return LocalRows(parts)

    def repartitionAndSortWithinPartitions(self, count: int, place: Callable[[Any], int]) -> LocalRows:  # noqa: N802
        return self.partitionBy(count, place).mapPartitions(lambda items: iter(sorted(items, key=itemgetter(0))))

    def persist(self, level: object = None) -> LocalRows:
        kept = [list(part) for part in self._parts()]
        return LocalRows(lambda: list(kept))

    def unpersist(self) -> None:
        """Nothing is held elsewhere."""

    def collect(self) -> list[Any]:
        return list(self.toLocalIterator())

    def toLocalIterator(self) -> Iterator[Any]:  # noqa: N802
        for part in self._parts():
            yield from part


class LocalAccumulator:
    """What tasks add to, merged as Spark merges it."""

    def __init__(self, value: Any, param: Any) -> None:
        self.value, self._param = value, param

    def add(self, term: Any) -> None:
        self.value = self._param.addInPlace(self.value, pickle.loads(pickle.dumps(term)))


class LocalContext:
    defaultParallelism = 2  # noqa: N815

    def accumulator(self, value: Any, param: Any) -> LocalAccumulator:
        return LocalAccumulator(value, param)

    def parallelize(self, items: Iterable[Any], slices: int = 1) -> LocalRows:
        kept = list(items)
        cuts = [i * len(kept) // slices for i in range(slices + 1)]
        return LocalRows(lambda: [kept[a:b] for a, b in pairwise(cuts)])

    def union(self, parts: list[LocalRows]) -> LocalRows:
        return LocalRows(lambda: [part for rows in parts for part in rows._parts()])


class LocalSession:
    def __init__(self) -> None:
        self.sparkContext = LocalContext()
