"""What is stored is there again, also after the process is killed between two calls."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from millstream.server.errors import StoreError
from millstream.server.journal.store import Store, StoredQuery


def test_definitions_and_queries_come_back_in_order_with_every_member(tmp_path: Path) -> None:
    plan = {"version": 1, "root": {"op": "source", "stream": "s"}}
    queries = [
        StoredQuery("q2", text="SELECT 1"),
        StoredQuery("q1", plan=plan, options={"class": "gold"}, desired="stopped", start_at_us=5, lifetime_us=7),
    ]
    store = Store(tmp_path)
    store.add_definition("stream", "b", "CREATE STREAM b (v INT)")
    store.add_definition("stream", "a", "CREATE STREAM a (v INT)")
    for query in queries:
        store.add_query(query)
    identity = store.server_id
    again = Store(tmp_path)  # the first one was never closed, as after SIGKILL
    assert [(d.kind, d.name, d.statement) for d in again.definitions()] == [
        ("stream", "b", "CREATE STREAM b (v INT)"),
        ("stream", "a", "CREATE STREAM a (v INT)"),
    ]
    assert again.queries() == queries
    assert again.server_id == identity
    again.close()
    store.close()


def test_a_desired_state_is_kept(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add_query(StoredQuery("q", text="SELECT 1"))
    store.set_desired("q", "stopped")
    store.close()
    again = Store(tmp_path)
    assert again.queries()[0].desired == "stopped"
    again.close()


def test_forgetting_is_one_change_and_frees_the_names() -> None:
    store = Store(None)
    for _ in range(2):
        store.add_definition("stream", "s", "CREATE STREAM s (v INT)")
        store.add_query(StoredQuery("q", text="SELECT v FROM s"))
        store.forget([("stream", "s")], ["q"])
        assert (store.definitions(), store.queries()) == ([], [])
    store.close()


def test_a_second_query_of_the_same_name_is_refused() -> None:
    store = Store(None)
    store.add_query(StoredQuery("q", text="SELECT 1"))
    with pytest.raises(sqlite3.IntegrityError):
        store.add_query(StoredQuery("q", text="SELECT 2"))
    store.close()


def test_a_file_of_another_format_is_refused_by_its_number(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.set_note("format", "99")
    store.close()
    with pytest.raises(StoreError, match="format 99"):
        Store(tmp_path)


def test_a_data_directory_that_cannot_be_made_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(StoreError, match=r"file/data"):
        Store(tmp_path / "file" / "data")
