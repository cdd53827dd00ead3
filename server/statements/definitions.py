"""CREATE STREAM, CREATE STREAM … AS, CREATE TABLE, CREATE CLASS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.engine.data.errors import InvalidDefinition, Unsupported
from millstream.engine.data.schema import StreamDefinition, TableDefinition
from millstream.engine.language.statements import CreateClass, CreateDerivedStream, CreateStream, CreateTable
from millstream.engine.plan.logical import TableChanges, walk_plan
from millstream.engine.plan.plan import derived_stream
from millstream.server.host import running, side_streams
from millstream.server.host.intake import StreamIntake
from millstream.server.host.lifecycle import QueryState
from millstream.server.host.queries import Query, QueryKind
from millstream.server.host.table_files import TableRows, read_table_file
from millstream.server.results.outcome import Outcome, said

if TYPE_CHECKING:
    from millstream.server.host.contract import Context
    from millstream.server.host.engine_host import EngineHost


def create_stream(host: EngineHost, statement: CreateStream, context: Context) -> Outcome:
    """Register a stream, and the streams of its late rows and errors where they do not exist."""
    definition = statement.definition
    if statement.if_not_exists and host.catalog.find(definition.name) is not None:
        return said(f"stream {definition.name} already exists")
    if statement.or_replace and host.catalog.find(definition.name) is not None:
        from millstream.server.statements.replacing import replace_stream  # here and below: loaded by the first that is replaced

        return replace_stream(host, definition)
    host.check_durable(f"stream {definition.name}", definition.durability)
    sides = side_streams.definitions_for(host.catalog, definition)
    if not context.restoring:
        host.check_relation_names(definition.name, *(side.name for side in sides))
    with host.store.change():
        _opened_later(host, "stream", definition, context)
        for side in sides:
            _opened_later(host, None, side, context)
    return said(f"stream {definition.name} created", *(f"stream {side.name} created" for side in sides))


def _opened_later(host: EngineHost, kind: str | None, definition: StreamDefinition | TableDefinition, context: Context) -> StreamIntake:
    """Make a stream or table, which publishers find once the present change is on disk; returns where its rows enter.

    With `kind` None it comes with another one's statement, and is not kept by itself.
    """
    name = definition.name
    with host.store.change() as change:
        host.catalog.add(definition)
        change.back(lambda: host.catalog.drop_relation(name))
        number = None if kind is None else _kept(host, kind, definition, context)
        intake = host.make_relation(definition)
        change.back(lambda: host.close_relation(name))
        host.keep(name, definition.durability, number)
        change.after(lambda: host.open_relation(intake))
    return intake


def _kept(host: EngineHost, kind: str, definition: StreamDefinition | TableDefinition, context: Context) -> int | None:
    """Keep the statement; returns its number. A durable stream's is reserved first, as the journal names it before the catalogue."""
    if context.restoring:
        return context.number
    number = host.store.reserve_number() if definition.durability != "none" and host.journaling is not None else None
    return host.store.add_definition(kind, definition.name, context.text.strip(), number)


def create_derived_stream(host: EngineHost, statement: CreateDerivedStream, context: Context) -> Outcome:
    """Start the SELECT and let others read what it gives under the stream's name."""
    if statement.if_not_exists and host.catalog.find(statement.name) is not None:
        return said(f"stream {statement.name} already exists")
    planned = running.plan(host, statement.query, {}, statement.text)
    if any(isinstance(node, TableChanges) for node in walk_plan(planned.logical.root)):
        raise Unsupported(
            "a derived stream of tables or views is not supported: a query that reads it would not see what stood before",
            hint=f"CREATE MATERIALIZED VIEW {statement.name} AS SELECT … for FETCH; in a continuous query put the SELECT in FROM",
        )
    derived = derived_stream(statement.name, planned)
    if not context.restoring:
        host.check_relation_names(statement.name)
    query = Query(statement.name, planned, QueryKind.DERIVED, text=statement.text, target=statement.name)
    if statement.or_replace and host.catalog.find(statement.name) is not None:
        old = host.derived.get(statement.name)
        if old is not None and (old.text, old.widths, old.failure) == (statement.text, {}, None):
            return said(f"stream {statement.name} is as it was")
        from millstream.server.statements.replacing import replace_derived

        replace_derived(host, derived, query, context.text.strip())
        return said(f"stream {statement.name} replaced", *planned.notes)
    with host.store.change() as change:
        host.catalog.add(derived)
        change.back(lambda: host.catalog.drop_relation(statement.name))
        if not context.restoring:
            host.store.add_definition("stream", statement.name, context.text.strip())
        host.derived[statement.name] = query
        change.back(lambda: host.derived.pop(statement.name))
        running.begin_or_defer(host, query)
        query.state = QueryState.RUNNING
    return said(f"stream {statement.name} created", *planned.notes)


def create_table(host: EngineHost, statement: CreateTable, context: Context) -> Outcome:
    """Register a stored relation, and load its file if it names one."""
    definition = statement.definition
    if statement.if_not_exists and host.catalog.find(definition.name) is not None:
        return said(f"table {definition.name} already exists")
    host.check_durable(f"table {definition.name}", definition.durability)
    replaces = statement.or_replace and host.catalog.find(definition.name) is not None
    if replaces and definition.file is None and host.catalog.find(definition.name) == definition:
        return said(f"table {definition.name} is as it was")
    if not context.restoring:
        host.check_relation_names(definition.name)
        if definition.schema.position("op") is not None:
            message = f"table {definition.name} cannot have a column op: in published rows, op = '-' deletes a row"
            raise InvalidDefinition(message, hint="choose another name for the column")
    if replaces:
        from millstream.server.statements.replacing import replace_table

        rows = None if definition.file is None else context.prepared or read_table_file(host, definition)
        replace_table(host, definition, rows, context.text.strip())
        return said(f"table {definition.name} replaced", *([] if rows is None else rows.notices))
    notices = [f"table {definition.name} created"]
    with host.store.change():
        intake = _opened_later(host, "table", definition, context)
        if definition.file is not None and not (context.restoring and host.holds(definition.name)):
            notices += _filled(intake, context.prepared or read_table_file(host, definition))
            if intake.is_sync and host.journaling is not None:
                host.journaling.wait_safe()
    host.begin_polling(definition)
    return said(*notices)


def _filled(intake: StreamIntake, rows: TableRows) -> list[str]:
    """Let rows into a table; returns what is to be said of them."""
    for block in rows.blocks:
        intake.take_columns(block.columns, block.places)
    intake.refused_total += rows.refused
    return rows.notices


def create_class(host: EngineHost, statement: CreateClass, context: Context) -> Outcome:
    """Register a query class."""
    definition = statement.definition
    if statement.if_not_exists and host.catalog.find_class(definition.name) is not None:
        return said(f"class {definition.name} already exists")
    found = host.catalog.find_class(definition.name) if statement.or_replace else None
    if found == definition:
        return said(f"class {definition.name} is as it was")
    if found is not None:
        from millstream.server.statements.replacing import replace_class

        replace_class(host, definition, context.text.strip(), restoring=context.restoring)
        return said(f"class {definition.name} replaced")
    with host.store.change() as change:
        host.catalog.add(definition)
        host.register_class(definition)
        change.back(lambda: host.forget_class(definition.name))
        if not context.restoring:
            host.store.add_definition("class", definition.name, context.text.strip())
    return said(f"class {definition.name} created")
