"""A chain written down as a program of a row, or of columns, gives what its kernels give: values to the bit, and counts."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.chains.column_program import column_program
from millstream.engine.chains.fused_program import FusedProgram
from millstream.engine.data.arrivals import ArrivalTimes
from millstream.engine.data.arrow import arrow_schema, arrow_type, column_from_arrow
from millstream.engine.data.column import CellColumn, Column, concat_columns, one_cell
from millstream.engine.data.schema import Field, Schema
from millstream.engine.data.train import Deferred, Numbers, Selection, Train
from millstream.engine.data.types import BIGINT, BOOLEAN, DOUBLE, INT, TEXT, TIMESTAMP, DataType, Kind
from millstream.engine.data.watermarks import TIME_MIN, RowsTrack, RowTrack
from millstream.engine.expressions.bounds import may_fail
from millstream.engine.expressions.ir import Call, Cast, ColumnRef, Expression, Literal
from millstream.engine.language.recipes import ProjectRecipe, Recipe, SelectRecipe
from millstream.server.results.trains import ResultShape

INT64, INT32 = 2**63 - 1, 2**31 - 1
VALUES: dict[DataType, st.SearchStrategy[Any]] = {
    INT: st.sampled_from([0, 1, -1, INT32, -INT32 - 1, 80]),
    BIGINT: st.sampled_from([0, 1, -1, 80, 2**53 + 1, INT64, -INT64 - 1]),
    TIMESTAMP: st.sampled_from([0, -1, 1_700_000_000_000_000, INT64]),
    DOUBLE: st.sampled_from([0.0, -0.0, 1.1, -22.0, 1e308, -1e308, 5e-324, float("inf"), float("-inf"), float("nan"), -float("nan")]),
    BOOLEAN: st.booleans(),
    TEXT: st.sampled_from(["", "a", "Z", "ä", "a\0", "😀", "\uffff"]),
}
SCHEMA = Schema(tuple(Field(f"c{i}", type_) for i, type_ in enumerate((INT, BIGINT, TIMESTAMP, DOUBLE, DOUBLE, BOOLEAN, TEXT))))
COMPARISONS = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])


def leaves(type_: DataType, columns: list[DataType]) -> st.SearchStrategy[Expression]:
    references = [ColumnRef(type_, i) for i, one in enumerate(columns) if one == type_]
    constants = VALUES[type_].map(lambda value: Literal(type_, value))
    return st.one_of(st.sampled_from(references), constants) if references else constants


def numbers(type_: DataType, columns: list[DataType]) -> st.SearchStrategy[Expression]:
    plain = leaves(type_, columns)
    if type_ == DOUBLE:
        operators = st.sampled_from("+-*")
        whole = leaves(BIGINT, columns).map(lambda e: Cast(DOUBLE, e))
        return st.recursive(
            st.one_of(plain, whole), lambda e: st.builds(lambda f, a, b: Call(DOUBLE, f, (a, b)), operators, e, e), max_leaves=4
        )
    if type_ == BIGINT:
        narrow = leaves(INT, columns)
        summed = st.builds(lambda f, a, b: Call(BIGINT, f, (a, b)), st.sampled_from("+-*"), narrow, narrow)
        return st.one_of(plain, summed, narrow.map(lambda e: Cast(BIGINT, e)))
    return plain


def conditions(columns: list[DataType]) -> st.SearchStrategy[Expression]:
    compared = st.sampled_from([INT, BIGINT, TIMESTAMP, DOUBLE, DOUBLE, BOOLEAN, TEXT]).flatmap(
        lambda t: st.builds(lambda f, a, b: Call(BOOLEAN, f, (a, b)), COMPARISONS, numbers(t, columns), numbers(t, columns))
    )
    mixed = st.builds(lambda f, a, b: Call(BOOLEAN, f, (a, b)), COMPARISONS, leaves(INT, columns), numbers(BIGINT, columns))
    between = st.builds(lambda a, b, c: Call(BOOLEAN, "between", (a, b, c)), *[numbers(DOUBLE, columns)] * 3)
    leaf = st.one_of(compared, mixed, between, leaves(BOOLEAN, columns))
    return st.recursive(
        leaf,
        lambda e: st.one_of(
            st.builds(lambda f, a, b: Call(BOOLEAN, f, (a, b)), st.sampled_from(["and", "or"]), e, e),
            e.map(lambda a: Call(BOOLEAN, "not", (a,))),
        ),
        max_leaves=4,
    )


@st.composite
def chains(draw: st.DrawFn) -> list[Recipe]:
    recipes: list[Recipe] = []
    schema = SCHEMA
    for _ in range(draw(st.integers(1, 4))):
        columns = [f.type for f in schema.fields]
        if draw(st.booleans()):
            condition = draw(conditions(columns))
            if not may_fail(condition):
                recipes.append(SelectRecipe(schema, condition))
            continue
        types = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=5))
        made = tuple(draw(conditions(columns) if t == BOOLEAN else numbers(t, columns)) for t in types)
        if any(may_fail(e) for e in made):
            continue
        schema = Schema(tuple(Field(f"p{i}", t) for i, t in enumerate(types)))
        recipes.append(ProjectRecipe(schema, made))
    return recipes or [SelectRecipe(SCHEMA, Literal(BOOLEAN, True))]


rows_of = st.lists(st.tuples(*[VALUES[f.type] for f in SCHEMA.fields]), min_size=1, max_size=5)


def trains(rows: list[tuple[Any, ...]]) -> tuple[Train, Train]:
    """The same rows as cells and as arrays."""
    cells = [CellColumn(f.type, values) for f, values in zip(SCHEMA.fields, zip(*rows, strict=True), strict=True)]
    arrays = [Column(c.type, c.values) for c in cells]
    made = []
    for columns in (cells, arrays):
        count, times = len(rows), np.arange(len(rows)) + 5
        numbered = {"seq": Numbers(count, start=7, step=1), "time": Numbers(count, array=times), "arrival": ArrivalTimes(7, 3)}
        track = RowsTrack(7, 7 + count, 0, times, 0)
        made.append(Train(SCHEMA, columns, rows=count, lo=7, hi=7 + count, track=track, **numbered))
    return made[0], made[1]


def bits(column: Column) -> Any:
    values = column.values
    valid = column.validity()
    if valid is not None and not valid.all():
        return values.dtype.str, [v if ok else None for v, ok in zip([v.tobytes() for v in values], valid, strict=True)]
    return values.to_pylist() if column.type.is_arrow else (values.dtype.str, values.tobytes())


def by_kernels(recipes: list[Recipe]) -> FusedProgram:
    """The chain of which nothing is written down."""
    program = FusedProgram(recipes, SCHEMA)
    program._program = column_program((), len(SCHEMA))
    return program


@settings(max_examples=120, deadline=None)
@given(chains(), rows_of)
def test_rows_and_columns_give_the_same(recipes: list[Recipe], rows: list[tuple[Any, ...]]) -> None:
    cells, arrays = trains(rows)
    check_same(FusedProgram(recipes, SCHEMA).run(cells), by_kernels(recipes).run(arrays))


NULLABLE = st.sets(st.integers(0, len(SCHEMA) - 2), max_size=2)


@settings(max_examples=120, deadline=None)
@given(chains(), rows_of, st.integers(1, 12), NULLABLE, st.integers(0, 2**32), st.booleans())
def test_written_columns_and_kernels_give_the_same(
    recipes: list[Recipe], rows: list[tuple[Any, ...]], times: int, nullable: set[int], seed: int, deferred: bool
) -> None:
    """Long trains, NULLs in some columns, columns that were selected from and not gathered."""
    random = np.random.default_rng(seed)
    drawn = random.integers(0, len(rows), len(rows) * times)
    outcomes = []
    for program in (FusedProgram(recipes, SCHEMA), by_kernels(recipes)):
        _, train = trains([rows[i] for i in drawn])
        nulls = np.random.default_rng(seed)
        for position in sorted(nullable):
            train.slots[position] = Column(SCHEMA.fields[position].type, train.column(position).values, nulls.random(train.rows) < 0.7)
        if deferred:
            everything = Selection(np.arange(train.rows))
            train.slots = [Deferred(slot, everything) for slot in train.columns()]
        outcomes.append(program.run(train))
    check_same(*outcomes)


def check_same(one: tuple[Train, list[int]], other: tuple[Train, list[int]]) -> None:
    (made, counts), (wanted, wanted_counts) = one, other
    assert counts == wanted_counts
    assert {type(count) for count in counts} <= {int}  # they leave the process, in answers and stories
    assert (made.rows, made.lo, made.hi, made.schema) == (wanted.rows, wanted.lo, wanted.hi, wanted.schema)
    for name in ("seq", "time"):
        assert getattr(made, name).array().tolist() == getattr(wanted, name).array().tolist()
    assert [part.tolist() for part in made.arrival.steps()] == [part.tolist() for part in wanted.arrival.steps()]
    # Of text that is selected from but not gathered, `slot_nbytes` is a share of the whole; which columns are gathered is each way's own.
    assert [c.nbytes() for c in made.columns()] == [c.nbytes() for c in wanted.columns()]
    assert [bits(c) for c in made.columns()] == [bits(c) for c in wanted.columns()]


def test_the_chain_of_the_benchmarks_is_told_by_rows() -> None:
    raised = Call(DOUBLE, "*", (ColumnRef(DOUBLE, 3), Literal(DOUBLE, 1.1)))
    schema = Schema((Field("a", INT), Field("p", DOUBLE)))
    recipes = [
        SelectRecipe(SCHEMA, Call(BOOLEAN, "<=", (ColumnRef(INT, 0), Literal(INT, 80)))),
        ProjectRecipe(schema, (ColumnRef(INT, 0), raised)),
        SelectRecipe(schema, Call(BOOLEAN, ">", (ColumnRef(DOUBLE, 1), Literal(DOUBLE, 22.0)))),
    ]
    cells, _ = trains([(1, 2, 3, 25.0, 1.0, True, "x"), (81, 2, 3, 25.0, 1.0, True, "x"), (1, 2, 3, 1.0, 1.0, True, "x")])
    made, counts = FusedProgram(recipes, SCHEMA).run(cells)
    assert counts == [2, 2, 1]
    assert type(made.slots[1]) is CellColumn
    assert made.slots[1].cells == (25.0 * 1.1,)


def test_the_chain_of_the_benchmarks_is_written_down_whole() -> None:
    raised = Call(DOUBLE, "*", (ColumnRef(DOUBLE, 3), Literal(DOUBLE, 1.1)))
    stages: list[tuple[list[Expression], Expression | None]] = [
        ([], Call(BOOLEAN, "<=", (ColumnRef(INT, 0), Literal(INT, 80)))),
        ([raised], None),
        ([], Call(BOOLEAN, ">", (ColumnRef(DOUBLE, len(SCHEMA)), Literal(DOUBLE, 22.0)))),
    ]
    _, train = trains([(1, 2, 3, 25.0, 1.0, True, "x"), (81, 2, 3, 25.0, 1.0, True, "x"), (1, 2, 3, 1.0, 1.0, True, "x")])
    done, mask, live, counts, computed = column_program(stages, len(SCHEMA))(train, train.rows)
    assert (done, live, counts) == (3, 1, [2, 2, 1])
    assert mask is not None
    assert mask.tolist() == [True, False, False]
    assert computed[0].values.tolist() == [25.0 * 1.1, 25.0 * 1.1, 1.1]


@given(st.sampled_from(list(VALUES)).flatmap(lambda t: st.tuples(st.just(t), st.lists(VALUES[t], min_size=1, max_size=70))))
def test_cells_are_a_column_like_any_other(made: tuple[DataType, list[Any]]) -> None:
    type_, values = made
    cells = CellColumn(type_, values)
    plain = Column(type_, CellColumn(type_, values).values)
    assert (len(cells), cells.nbytes(), cells.validity()) == (len(plain), plain.nbytes(), plain.validity())
    assert bits(cells.slice(0, 1)) == bits(plain.slice(0, 1))
    assert bits(concat_columns([cells, cells])) == bits(concat_columns([plain, plain]))
    assert bits(concat_columns([cells, plain])) == bits(concat_columns([plain, cells]))
    index = np.array([len(values) - 1])
    assert bits(cells.take(index)) == bits(plain.take(index))
    assert bits(copy.copy(cells)) == bits(pickle.loads(pickle.dumps(cells))) == bits(plain)
    if type_ in (INT, BIGINT, TIMESTAMP):
        assert cells.bounds() == plain.bounds()


@given(st.tuples(*[VALUES[t] for t in (INT, TEXT, DOUBLE, TIMESTAMP, TEXT)]))
def test_the_payload_of_one_row_is_that_of_a_batch_of_one(row: tuple[Any, ...]) -> None:
    schema = Schema(tuple(Field(f"c{i}", t) for i, t in enumerate((INT, TEXT, DOUBLE, TIMESTAMP, TEXT))))
    for width in (1, 5):
        shape = ResultShape(Schema(schema.fields[:width]))
        cells: list[Column] = [CellColumn(f.type, [value]) for f, value in zip(schema.fields[:width], row[:width], strict=True)]
        arrays = [Column(c.type, c.values) for c in cells]
        written = [b"".join(shape.payload(columns, 1) or []) for columns in (cells, arrays)]
        assert written[0] == written[1]
        batch = pa.ipc.read_record_batch(pa.py_buffer(written[0]), arrow_schema(Schema(schema.fields[:width])))
        assert batch.equals(shape.batch_of(arrays)) or row[2] != row[2]


@given(st.tuples(*[st.one_of(st.none(), VALUES[t]) for t in VALUES]), st.booleans())
def test_one_row_of_a_longer_column_is_the_same_plain_or_gathered(row: tuple[Any, ...], first: bool) -> None:
    for type_, value in zip(VALUES, row, strict=True):
        filler = {TEXT: "x", BOOLEAN: False}.get(type_, 0)
        place = 0 if first else 1
        values = [value, filler] if first else [filler, value]
        column = column_from_arrow(pa.array(values, arrow_type(type_)), type_)
        cell = one_cell(column, place)
        if value is None:
            assert cell is None
            continue
        assert cell is not None
        gathered = column.take(np.array([place]))
        assert repr(list(cell.cells)) == repr(gathered.values.tolist() if type_ != TEXT else gathered.values.to_pylist())
        assert type(cell.cells[0]) is type(value)
    assert one_cell(column_from_arrow(pa.array([1], pa.decimal128(5, 2)), DataType(Kind.DECIMAL, 5, 2)), 0) is None


@given(st.integers(-5, 5), st.one_of(st.just(TIME_MIN), st.integers(-8, 8)), st.integers(0, 3))
def test_the_track_of_one_row_is_that_of_a_chunk_of_one(start: int, time_us: int, delay_us: int) -> None:
    one = RowTrack(3, 9, start, time_us, delay_us, 5)
    many = RowsTrack(3, 9, start, np.array([time_us], dtype=np.int64), delay_us, first=5)
    assert (one.lo, one.hi, one.start, one.end) == (many.lo, many.hi, many.start, many.end)
    assert (one.in_order, one.sorted_span(), one.step_count) == (many.in_order, many.sorted_span(), many.step_count)
    assert [a.tolist() for a in one.steps()] == [a.tolist() for a in many.steps()]
    seqs = np.arange(3, 9)
    assert one.before(seqs).tolist() == many.before(seqs).tolist()
    reached = np.arange(one.start + 1, one.end + 1)
    assert one.first_reaching(reached).tolist() == many.first_reaching(reached).tolist()
