"""Runs queries on the engine without a scheduler: rows in, rounds of work orders in any order, rows out."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.data.arrow import arrow_type, column_from_arrow, column_to_arrow
from millstream.engine.data.column import Column
from millstream.engine.data.graph import ClassNode, GraphDelta, QueryId
from millstream.engine.data.schema import Field, Schema, StreamDefinition, TimeRule
from millstream.engine.data.train import Train
from millstream.engine.data.types import BOOLEAN, DataType
from millstream.engine.data.work import OrderId, Step, WorkOrder, WorkReceipt
from millstream.engine.expressions.ir import Call, ColumnRef, Expression, Literal
from millstream.engine.language.parse import parse_statement
from millstream.engine.language.recipes import EmitSpec, Recipe
from millstream.engine.language.statements import CreateStream, CreateTable
from millstream.engine.operators.contract import EvaluationErrors
from millstream.engine.plan.catalog import Catalog
from millstream.engine.plan.physical import InputRef, PhysicalNode, PhysicalQuery, QueryOptions, SourceNode
from millstream.engine.plan.plan import plan_select
from millstream.engine.runtime.executor import Executor
from millstream.engine.runtime.network import DEFAULT_CLASS_NODE, Hooks, Network

SECOND = 1_000_000
Rows = list[tuple[Any, ...]]


def schema_of(**columns: DataType) -> Schema:
    return Schema(tuple(Field(name, type_) for name, type_ in columns.items()))


def ref(schema: Schema, name: str) -> ColumnRef:
    position = schema.position(name)
    assert position is not None
    return ColumnRef(schema.fields[position].type, position, name)


def compare(operator: str, left: Expression, value: Any) -> Expression:
    right = value if isinstance(value, Expression) else Literal(left.type, value)
    return Call(BOOLEAN, operator, (left, right))


def node(recipe: Recipe, *inputs: PhysicalNode | SourceNode | InputRef) -> PhysicalNode:
    return PhysicalNode(recipe, tuple(i if isinstance(i, InputRef) else InputRef(i) for i in inputs))


def columns_of(schema: Schema, rows: Sequence[Sequence[Any]]) -> list[Column]:
    """Turn Python rows into columns; values are in storage form (µs for times)."""
    columns = []
    for i, f in enumerate(schema.fields):
        values = [row[i] for row in rows]
        if f.type.is_arrow or f.type.kind.value == "DECIMAL":
            columns.append(column_from_arrow(pa.array(values, type=arrow_type(f.type)), f.type))
            continue
        valid = np.array([v is not None for v in values], dtype=np.bool_)
        dtype = {"DOUBLE": np.float64, "INT": np.int32, "DATE": np.int32, "BOOLEAN": np.bool_}.get(f.type.kind.value, np.int64)
        array = np.array([0 if v is None else v for v in values], dtype=dtype)
        columns.append(Column(f.type, array, None if valid.all() else valid))
    return columns


def values_of(column: Column) -> list[Any]:
    """Python values of a column in storage form; DECIMAL as Decimal."""
    if column.type.is_arrow or column.type.kind.value == "DECIMAL":
        result: list[Any] = column_to_arrow(column).to_pylist()
        return result
    values = column.values.tolist()
    if column.valid is None:
        return list(values)
    return [v if ok else None for v, ok in zip(values, column.valid.tolist(), strict=True)]


def rows_of(trains: Iterable[Train]) -> Rows:
    rows: Rows = []
    for train in trains:
        rows.extend(zip(*(values_of(c) for c in train.columns()), strict=True))
    return rows


@dataclass
class Recorder(Hooks):
    """Hooks that remember."""

    late_rows: list[tuple[str, str, Train]] = field(default_factory=list)
    errors: list[tuple[str, str | None, EvaluationErrors]] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)

    def late(self, query: str, stream: str, rows: Train) -> None:
        self.late_rows.append((query, stream, rows))

    def evaluation_errors(self, query: str, stream: str | None, errors: EvaluationErrors) -> None:
        self.errors.append((query, stream, errors))

    def query_failed(self, query: QueryId, operator: Any, error: Exception) -> None:
        self.failures.append(error)


class Engine:
    """A network with an executor and a counter for a clock. `train` bounds rows a step; `shuffle` runs operators in random order."""

    def __init__(
        self, *, train: int | None = None, shuffle: int | None = None, fuse: bool = True, seed: int = 0, sharing: bool = False
    ) -> None:
        self.hooks = Recorder()
        self.network = Network(self.hooks, seed=seed, sharing=sharing)
        self.executor = Executor(self.network, fuse=fuse)
        self.train = train
        self._random = None if shuffle is None else random.Random(shuffle)
        self.results: dict[str, list[Train]] = {}
        self.deltas: dict[str, GraphDelta] = {}
        self.receipts: list[WorkReceipt] = []
        self._now = 0
        self._orders = 0
        self.now_us = 0
        self.failures_expected = False

    def clock_ns(self) -> int:
        self._now += 1
        return self._now

    def stream(self, name: str, schema: Schema, time: str | None = "ts", **rule: Any) -> SourceNode:
        extra = {k: rule.pop(k) for k in ("late_into", "errors_into") if k in rule}
        self.network.create_stream(StreamDefinition(name, schema, TimeRule(column=time, **rule), **extra))
        return SourceNode(name, schema)

    def query(
        self, name: str, root: PhysicalNode | SourceNode, *, class_node: ClassNode = DEFAULT_CLASS_NODE, options: QueryOptions | None = None
    ) -> GraphDelta:
        schema = root.schema if isinstance(root, SourceNode) else root.recipe.schema
        self.results[name] = []
        plan = PhysicalQuery(root, schema, EmitSpec(), options or QueryOptions())
        delta = self.network.add_query(name, plan, self.results[name].append, class_node=class_node)
        self.network.attach(delta.query.id)
        self.deltas[name] = delta
        return delta

    def drop(self, name: str) -> None:
        """Take a query out; its results so far stay."""
        self.network.remove_query(self.deltas.pop(name).query.id)

    def put(self, stream: str, rows: Sequence[Sequence[Any]], *, chunk: int | None = None) -> None:
        schema = self.network.sources[stream].definition.schema
        size = chunk or max(1, len(rows))
        for start in range(0, len(rows), size):
            columns = columns_of(schema, rows[start : start + size])
            self.network.ingest(stream, columns, arrival_ns=self.clock_ns(), now_us=self.now_us)

    def end(self, *streams: str) -> None:
        for stream in streams or list(self.network.sources):
            self.network.end(stream, arrival_ns=self.clock_ns())

    def tick(self, now_us: int) -> None:
        self.now_us = now_us
        self.network.ticks.tick(now_us, arrival_ns=self.clock_ns())

    def run_order(self, *steps: Step, budget_ns: int | None = None) -> WorkReceipt:
        self._orders += 1
        receipt = self.executor.run(WorkOrder(OrderId(self._orders), steps, budget_ns), self.clock_ns)
        self.receipts.append(receipt)
        return receipt

    def work(self) -> None:
        """Run until nothing waits that can be taken."""
        while True:
            moved = False
            for delta in list(self.deltas.values()):
                operators = [o for o in delta.query.operators if o in self.network.operators]
                if self._random is not None:
                    self._random.shuffle(operators)
                groups = [[o] for o in operators] if self._random is not None or self.train is not None else [operators]
                for group in groups:
                    receipt = self.run_order(*(Step(o, self.train) for o in group))
                    moved = moved or any(c.rows or c.controls for s in receipt.each_step() for c in (*s.consumed, *s.produced))
            if not moved:
                return

    def rows(self, name: str) -> Rows:
        if self.hooks.failures and not self.failures_expected:
            raise self.hooks.failures[0]
        return rows_of(self.results[name])

    def account(self, name: str) -> dict[str, Any]:
        return {a.stream: a for a in self.network.conservation(self.deltas[name].query.id)}


class SqlEngine(Engine):
    """An engine that takes statements of the language: CREATE STREAM in order, then queries by name."""

    def __init__(self, *statements: str, **how: Any) -> None:
        super().__init__(**how)
        self.catalog = Catalog()
        for text in statements:
            statement = parse_statement(text)
            assert isinstance(statement, CreateStream | CreateTable)
            definition = statement.definition
            self.catalog.add(definition)
            if isinstance(statement, CreateTable):
                self.network.create_table(definition)
            else:
                self.network.create_stream(definition)

    def select(self, text: str, name: str = "q", *, class_node: ClassNode = DEFAULT_CLASS_NODE) -> GraphDelta:
        return self.start(plan_select(text, self.catalog).physical, name, class_node=class_node)

    def start(self, plan: PhysicalQuery, name: str, *, class_node: ClassNode = DEFAULT_CLASS_NODE) -> GraphDelta:
        """Bring a plan into force."""
        self.results[name] = []
        delta = self.network.add_query(name, plan, self.results[name].append, class_node=class_node)
        self.network.attach(delta.query.id)
        self.deltas[name] = delta
        return delta
