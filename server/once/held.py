"""What the server holds of each input that a SELECT may name: the rows of a table, the kept results of a query, a journal's rows.

Each is a finite set of rows in arrival order. All that is read here is read at one point in arrival order, save kept results, which
stand at the last result of their query: `HeldRows.position` says where.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.data.arrow import arrow_schema, column_from_arrow, column_to_arrow
from millstream.engine.data.column import concat_columns
from millstream.engine.data.errors import InvalidDefinition
from millstream.engine.data.keys import key_encoder
from millstream.engine.data.schema import Schema, StreamDefinition, TimeRule
from millstream.engine.data.types import Kind
from millstream.engine.language.recipes import KeptRowsRecipe, StandingRowsRecipe
from millstream.engine.operators.build import build_operator
from millstream.engine.plan.catalog import DerivedStream, TimeOffset
from millstream.server.host.contract import HeldBlock, HeldRows, KeptResults
from millstream.server.host.engine_host import EngineHost
from millstream.server.host.queries import Query, QueryKind
from millstream.server.results.trains import ResultRows

NO_ROW_IS_LATE_US = 1 << 60  # a delay that keeps W below every row: a set of rows that stand has no late ones
_UNITS = {1_000_000: "s", 1_000: "ms", 1: "us"}


def fetchable_queries(host: EngineHost) -> dict[str, Query]:
    """Return the queries whose kept results FETCH may name: those that no stream or table has the name of."""
    return {q.name: q for q in host.queries if q.kind is QueryKind.SELECT and q.is_durable and host.catalog.find(q.name) is None}


def as_relation(query: Query) -> DerivedStream:
    """Return a query as something that may stand in FROM; of one that gives changes, the rows that stand."""
    from millstream.engine.plan.plan import derived_stream  # with the planner, which is loaded when the server listens already

    made = derived_stream(query.name, query.planned)
    return replace(made, schema=_standing(made.schema), changes=False) if made.changes else made


def _standing(schema: Schema) -> Schema:
    return Schema(schema.fields[:-1])


def time_of(query: Query) -> TimeRule:
    """Return how the event time is read off a query's results; without a column when it is not among them."""
    for attribute in query.planned.logical.root.attributes:
        unit = _UNITS.get(attribute.time_unit_us)
        if attribute.time == TimeOffset() and unit is not None and not attribute.nullable:
            kind = attribute.type.kind
            return TimeRule(attribute.name, None if kind is Kind.TIMESTAMP else unit, delay_us=NO_ROW_IS_LATE_US)
    return TimeRule(delay_us=NO_ROW_IS_LATE_US)


def table_rows_held(host: EngineHost, table: str, name: str) -> HeldRows:
    """Return the standing rows of a table as a stream called `name`. To be called under the ingress lock."""
    source = host.network.sources[table]
    assert source.table is not None
    at = host.network.ingress.next_seq
    train = source.table.content(at)
    columns = [train.column(i) for i in range(len(source.table.schema))]
    definition = StreamDefinition(name, source.table.schema, TimeRule(delay_us=NO_ROW_IS_LATE_US))
    blocks = [HeldBlock(-1, columns)] if train.rows else []
    return HeldRows(definition, at - 1, lambda: iter(blocks))


def results_held(query: Query, kept: KeptResults) -> HeldRows:
    """Return the kept results of a query; of one that gives changes, what stands after them. InvalidDefinition where some are gone."""
    schema = query.planned.physical.schema
    entries = kept.entries
    if query.planned.physical.change_kind is not None:
        schema = _standing(schema)
        if kept.missing:
            message = f"the first {kept.missing} changes of {query.name} are kept no longer, so what stands is not known from them"
            raise InvalidDefinition(message, hint=f"FETCH QUERY {query.name} asks its operators")
    definition = StreamDefinition(query.name, schema, time_of(query))

    def blocks() -> Iterator[HeldBlock]:
        standing = ((position, _arrow(batch)) for position, batch in entries)
        if schema is not query.planned.physical.schema and entries:
            standing = ((entries[-1][0], batch) for batch in net_rows(schema, [b for _, b in standing]))
        for position, batch in standing:
            yield HeldBlock(position, [column_from_arrow(batch.column(i), f.type) for i, f in enumerate(schema.fields)])

    return HeldRows(definition, kept.entries[-1][0] if kept.entries else -1, blocks, kept.missing)


def view_held(host: EngineHost, query: Query) -> HeldRows:
    """Return the rows of a materialized view. To be called while nothing runs. InvalidDefinition when the view does not run."""
    running = None if query.id is None else host.network.queries[query.id].blueprint.operators
    if running is None:
        message = f"materialized view {query.name} is {query.state.value}, so its rows are not known"
        raise InvalidDefinition(message, hint=f"START QUERY {query.name}")
    keeper = next(operator for operator in running if isinstance(operator.recipe, StandingRowsRecipe | KeptRowsRecipe))
    inputs = [cursor.log.schema for cursor in keeper.inputs]
    recipe, state, schema = keeper.recipe, bytes(keeper.snapshot()), _standing(query.planned.physical.schema)

    def blocks() -> Iterator[HeldBlock]:
        logic = build_operator(recipe, inputs)
        logic.restore(state)
        train = logic.standing(0, 0)
        if train is not None and train.rows:
            yield HeldBlock(-1, [train.column(i) for i in range(len(schema))])

    return HeldRows(StreamDefinition(query.name, schema, time_of(query)), keeper.inputs[0].position - 1, blocks)


def _arrow(batch: Any) -> Any:
    """Return kept rows as a record batch, which nobody else keeps."""
    return batch.shape.batch_of(batch.columns) if isinstance(batch, ResultRows) else batch


def without_sides(definition: StreamDefinition) -> StreamDefinition:
    """Return a stream as a private copy needs it: late rows and errors are only counted."""
    return replace(definition, late_into=None, errors_into=None, time=replace(definition.time, skew_us=None, idle_us=None))


def net_rows(schema: Schema, batches: list[Any]) -> list[Any]:
    """Return the rows that stand after a change log: given with "+" and not taken back with "-", in order of first standing.

    The batches have `schema` and, last, the kind of each change.

    InvalidDefinition when a '-' takes back what was never given: the beginning of the log is not there.
    """
    if not batches:
        return []
    width = len(schema)
    columns = [concat_columns([column_from_arrow(b.column(i), f.type) for b in batches]) for i, f in enumerate(schema.fields)]
    plus = np.concatenate([np.asarray([op == "+" for op in b.column(width).to_pylist()], dtype=np.bool_) for b in batches])
    ids = key_encoder([f.type for f in schema.fields]).encode(columns)
    order = np.argsort(ids, kind="stable")
    count = np.bincount(ids, weights=np.where(plus, 1, -1)).astype(np.int64)
    if (count < 0).any():
        raise InvalidDefinition("older changes are no longer kept, so the current rows are unknown")
    # Of each row the last `count` additions stand: an earlier one was taken back before.
    kept = []
    for position in reversed(order.tolist()):
        if plus[position] and count[ids[position]]:
            count[ids[position]] -= 1
            kept.append(position)
    index = np.sort(np.asarray(kept, dtype=np.int64))
    return [pa.record_batch([column_to_arrow(c.take(index)) for c in columns], schema=arrow_schema(schema))]
