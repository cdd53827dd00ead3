"""The catalogue, derived streams, and the rows of INSERT."""

from __future__ import annotations

from typing import Any

import pytest
from millstream.engine.data.column import Column
from millstream.engine.data.errors import EngineError, InUse, InvalidDefinition, NameTaken, UnknownName
from millstream.engine.data.schema import StreamDefinition, TableDefinition
from millstream.engine.language.parse import parse_statement
from millstream.engine.language.recipes import EmitKind
from millstream.engine.language.statements import InsertValues
from millstream.engine.plan.catalog import Catalog, NamedQuery, TimeOffset
from millstream.engine.plan.insert import bind_rows
from millstream.engine.plan.plan import derived_stream

from tests.support.plans import make_catalog, plan


def with_derived(name: str, text: str, catalog: Catalog | None = None) -> Catalog:
    catalog = catalog or make_catalog()
    catalog.add(derived_stream(name, plan(text, catalog=catalog)))
    return catalog


# -- catalogue ----------------------------------------------------------------------------------------------------------------


def test_streams_and_tables_share_one_space_of_names() -> None:
    catalog = make_catalog()
    with pytest.raises(NameTaken, match="the name tab is taken by a table"):
        with_derived("tab", "SELECT k FROM s", catalog)
    with pytest.raises(NameTaken):
        catalog.add(catalog.relation("s"))


def test_what_is_read_cannot_be_dropped_and_cascade_goes_leaves_first() -> None:
    catalog = with_derived("d", "SELECT k, v FROM s")
    with_derived("e", "SELECT k FROM d", catalog)
    catalog.add(NamedQuery("q", plan("SELECT k FROM e", catalog=catalog).physical.schema, "…", ("e",)))
    with pytest.raises(InUse, match="s is read by d"):
        catalog.drop_relation("s")
    assert catalog.dependents("s") == ("q", "e", "d")
    catalog.drop_query("q")
    for name in ("e", "d", "s"):
        catalog.drop_relation(name)
    assert catalog.find("s") is None


def test_unknown_names_come_with_the_nearest() -> None:
    catalog = make_catalog()
    for look, message in ((catalog.relation, "did you mean tab"), (catalog.query_class, "did you mean gold")):
        with pytest.raises(UnknownName, match=message):
            look("tba" if look == catalog.relation else "golt")
    catalog.add(NamedQuery("means", plan("SELECT k FROM s", catalog=catalog).physical.schema, "…", ("s",)))
    with pytest.raises(UnknownName, match=r"means is a query.*FETCH SELECT … FROM means"):
        plan("SELECT k FROM means", catalog=catalog)
    with pytest.raises(InvalidDefinition, match="default cannot be dropped"):
        catalog.drop_class("default")


# -- derived streams ----------------------------------------------------------------------------------------------------------


def test_a_derived_stream_keeps_the_event_time_it_selects() -> None:
    catalog = with_derived("d", "SELECT ts AS at, k FROM s WHERE v > 1")
    planned = plan("SELECT x.k FROM d x JOIN s y ON x.k = y.k AND y.ts BETWEEN x.at AND x.at + 5 SECONDS", catalog=catalog)
    assert planned.streams == ("d", "s")
    assert plan("SELECT COUNT(*) FROM TUMBLE(d, at, 10 SECONDS)", catalog=catalog).streams == ("d",)


def test_the_bounds_of_a_window_tell_the_time_of_a_derived_stream() -> None:
    text = "SELECT k, COUNT(*) AS n, window_start AS b, window_end AS e FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k"
    assert plan(text).times == {"b": TimeOffset(1 - 10_000_000, 1 - 10_000_000), "e": TimeOffset(1, 1)}


@pytest.mark.parametrize("name", ["window_start", "window_end"])
def test_a_derived_stream_must_alias_the_bounds_of_its_windows(name: str) -> None:
    with pytest.raises(InvalidDefinition, match=f"selects {name}; give it an alias"):
        with_derived("d", f"SELECT {name} FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY k")


def test_a_derived_change_log_is_followed_with_its_retractions() -> None:
    catalog = with_derived("d", "SELECT k, COUNT(*) AS n FROM s GROUP BY k")
    assert [f.name for f in catalog.relation("d").schema.fields] == ["k", "n", "op"]
    planned = plan("SELECT n, COUNT(*) FROM d GROUP BY n", catalog=catalog)
    assert planned.physical.emit.kind is EmitKind.CHANGES
    aggregate = planned.bound.root.inputs[0]
    assert getattr(aggregate, "retracts", None) == 1
    with pytest.raises(UnknownName, match="no column op"):
        plan("SELECT op FROM d", catalog=catalog)


# -- INSERT -------------------------------------------------------------------------------------------------------------------


def insert(text: str) -> list[Column]:
    statement = parse_statement(text)
    assert isinstance(statement, InsertValues)
    relation = make_catalog().relation(statement.name.text)
    assert isinstance(relation, StreamDefinition | TableDefinition)
    return bind_rows(statement, relation)


def values(column: Column) -> list[Any]:
    raw = column.values.to_pylist() if column.type.is_arrow else column.values.tolist()
    valid = column.validity()
    return [v if valid is None or valid[i] else None for i, v in enumerate(raw)]


def test_rows_become_columns_in_the_order_of_the_schema() -> None:
    columns = insert(
        "INSERT INTO s (k, ts, d, name) VALUES (1 + 1, '1970-01-01T00:00:01Z', 2.5, 'x' || 'y'), (-3, TIMESTAMP '1970-01-02', '1.25', NULL)"
    )
    assert [values(c) for c in columns] == [[1_000_000, 86_400_000_000], [2, -3], [None, None], ["xy", None], [250, 125], [None, None]]


def test_numbers_take_the_type_of_their_column() -> None:
    columns = insert("INSERT INTO s VALUES (TIMESTAMP '1970-01-01', 9007199254740993, 3, NULL, 7, 2.0 + 1)")
    assert [values(c) for c in columns] == [[0], [9007199254740993], [3.0], [None], [700], [3]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("INSERT INTO s (k) VALUES (1)", "row 1: .*ts is NULL"),
        ("INSERT INTO tab VALUES (NULL, 'x')", "row 1: column k is .*NULL"),
        ("INSERT INTO tab VALUES (1, 'x'), (1)", "row 2 has 1 values for 2 columns"),
        ("INSERT INTO tab VALUES (1, 'x'), ('2', 'y')", "row 2, column k: a TEXT is not a BIGINT"),
        ("INSERT INTO tab VALUES (1, k)", "row 1, column label: there is no column k"),
        ("INSERT INTO tab (k, lable) VALUES (1, 'x')", "tab has no column lable.*did you mean label"),
        ("INSERT INTO tab (k, k) VALUES (1, 2)", "column k is named twice"),
        ("INSERT INTO tab VALUES (1 / 0, 'x')", "row 1, column k: the value cannot be stored"),
        ("INSERT INTO tab VALUES (99999999999999999999, 'x')", "row 1, column k"),
        ("INSERT INTO s (ts) VALUES ('yesterday')", "row 1, column ts: .*is not TIMESTAMP"),
    ],
)
def test_a_row_that_does_not_fit_refuses_the_statement(text: str, message: str) -> None:
    with pytest.raises(EngineError, match=f"(?s){message}"):
        insert(text)
