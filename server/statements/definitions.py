"""CREATE STREAM, CREATE STREAM … AS, CREATE TABLE, CREATE CLASS."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from millstream.engine.language.statements import CreateClass, CreateDerivedStream, CreateStream, CreateTable
from millstream.engine.plan.plan import derived_stream
from millstream.server.host import running, side_streams
from millstream.server.host.inputs import open_input
from millstream.server.host.lifecycle import QueryState
from millstream.server.host.queries import Query, QueryKind
from millstream.server.results.outcome import Outcome, said

if TYPE_CHECKING:
    from millstream.server.host.contract import Context
    from millstream.server.host.engine_host import EngineHost


def create_stream(host: EngineHost, statement: CreateStream, context: Context) -> Outcome:
    """Register a stream, and the streams of its late rows and errors where they do not exist."""
    definition = statement.definition
    if statement.if_not_exists and host.catalog.find(definition.name) is not None:
        return said(f"there is a stream {definition.name} already")
    host.check_durable(f"stream {definition.name}", definition.durability)
    sides = side_streams.definitions_for(host.catalog, definition)
    host.catalog.add(definition)
    host.register_stream(definition)
    for side in sides:
        host.catalog.add(side)
        host.register_stream(side)
    number = context.number if context.restoring else host.store.add_definition("stream", definition.name, context.text.strip())
    host.keep(definition.name, definition.durability, number)
    return said(f"stream {definition.name} created", *(f"stream {side.name} created" for side in sides))


def create_derived_stream(host: EngineHost, statement: CreateDerivedStream, context: Context) -> Outcome:
    """Start the SELECT and let others read what it gives under the stream's name."""
    if statement.if_not_exists and host.catalog.find(statement.name) is not None:
        return said(f"there is a stream {statement.name} already")
    planned = running.plan(host, statement.query, {}, statement.text)
    derived = derived_stream(statement.name, planned)
    host.catalog.add(derived)
    query = Query(statement.name, planned, QueryKind.DERIVED, text=statement.text, target=statement.name)
    host.derived[statement.name] = query
    try:
        running.begin_or_defer(host, query)
    except BaseException:
        del host.derived[statement.name]
        host.catalog.drop_relation(statement.name)
        raise
    query.state = QueryState.RUNNING
    if not context.restoring:
        host.store.add_definition("stream", statement.name, context.text.strip())
    return said(f"stream {statement.name} created", *planned.notes)


def create_table(host: EngineHost, statement: CreateTable, context: Context) -> Outcome:
    """Register a stored relation, and load its file if it names one."""
    definition = statement.definition
    if statement.if_not_exists and host.catalog.find(definition.name) is not None:
        return said(f"there is a table {definition.name} already")
    host.check_durable(f"table {definition.name}", definition.durability)
    host.catalog.add(definition)
    host.register_table(definition)
    number = context.number if context.restoring else host.store.add_definition("table", definition.name, context.text.strip())
    host.keep(definition.name, definition.durability, number)
    notices = [f"table {definition.name} created"]
    try:
        if definition.file is not None and not (context.restoring and host.holds(definition.name)):
            notices += load_file(host, definition.name, Path(definition.file))
    except BaseException:
        host.network.drop_stream(definition.name)
        host.intakes.pop(definition.name)
        host.catalog.drop_relation(definition.name)
        if not context.restoring:
            host.store.forget([("table", definition.name)], [])
        raise
    return said(*notices)


def load_file(host: EngineHost, name: str, path: Path) -> list[str]:
    """Let the rows of a file into a table; returns what is to be said of it."""
    with open_input(host, name, path) as file:
        for block in file.chunks():
            file.intake.take_columns(block.columns, block.places)
    return [f"{file.rows - file.refused} rows loaded from {path.name}", *file.told()]


def create_class(host: EngineHost, statement: CreateClass, context: Context) -> Outcome:
    """Register a query class."""
    definition = statement.definition
    if statement.if_not_exists and host.catalog.find_class(definition.name) is not None:
        return said(f"there is a class {definition.name} already")
    host.catalog.add(definition)
    host.register_class(definition)
    if not context.restoring:
        host.store.add_definition("class", definition.name, context.text.strip())
    return said(f"class {definition.name} created")
