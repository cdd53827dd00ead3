"""CREATE STREAM, CREATE STREAM … AS, CREATE TABLE, CREATE CLASS."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import StreamDefinition, TableDefinition
from millstream.engine.flow.relations import change_schema
from millstream.engine.language.statements import CreateClass, CreateDerivedStream, CreateStream, CreateTable
from millstream.engine.plan.plan import derived_stream
from millstream.server.errors import BadInput, GivenUp
from millstream.server.host import running, side_streams
from millstream.server.host.inputs import Block, read_input
from millstream.server.host.intake import StreamIntake
from millstream.server.host.lifecycle import QueryState
from millstream.server.host.queries import Query, QueryKind
from millstream.server.host.server_files import Asks, nobody_gave_up, open_bounded
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


@dataclass(frozen=True, slots=True)
class TableRows:
    """What a table's file holds: accepted rows, how many were refused, and what is to be said of it."""

    blocks: list[Block]
    refused: int
    notices: list[str]


def read_table_file(host: EngineHost, definition: TableDefinition, given_up: Asks = nobody_gave_up) -> TableRows:
    """Read the file that CREATE TABLE names, into memory and nowhere else: from any thread. BadInput, GivenUp, the engine's errors."""
    assert definition.file is not None
    path, rules = Path(definition.file), host.file_rules
    stream = StreamDefinition(definition.name, change_schema(definition.schema), durability=definition.durability)
    blocks: list[Block] = []
    held_bytes = 0
    with read_input(StreamIntake(host, stream, definition), path, lambda: open_bounded(path, rules, given_up)) as file:
        for block in file.chunks():
            blocks.append(block)
            held_bytes += sum(column.nbytes() for column in block.columns)
            if held_bytes > rules.bytes_max:  # a few bytes of Parquet may stand for any number of rows
                raise BadInput(f"the rows of {path.name} hold more than {rules.bytes_max} bytes", hint="raise file_bytes_max")
            if given_up():
                raise GivenUp("the statement was given up while its file was read")
    return TableRows(blocks, file.refused, [f"{file.rows - file.refused} rows loaded from {path.name}", *file.told()])


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
            notices += _filled(host, definition.name, context.prepared or read_table_file(host, definition))
    except BaseException:
        host.network.drop_stream(definition.name)
        host.intakes.pop(definition.name)
        host.catalog.drop_relation(definition.name)
        if not context.restoring:
            host.store.forget([("table", definition.name)], [])
        raise
    return said(*notices)


def _filled(host: EngineHost, name: str, rows: TableRows) -> list[str]:
    """Let rows into a table; returns what is to be said of them."""
    intake = host.intake(name)
    for block in rows.blocks:
        intake.take_columns(block.columns, block.places)
    intake.refused_total += rows.refused
    return rows.notices


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
