"""The file that a table is made from: read as rows, and compared with what stands in the table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from millstream.engine.data.column import Column, concat_columns, null_column
from millstream.engine.data.keys import key_encoder
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import StreamDefinition, TableDefinition
from millstream.engine.data.types import TEXT
from millstream.engine.flow.relations import change_schema, standing_places
from millstream.protocol.values import arrow_functions as pc
from millstream.server.errors import BadInput, GivenUp
from millstream.server.host.inputs import InputBlock, read_input
from millstream.server.host.intake import StreamIntake
from millstream.server.host.server_files import Asks, nobody_gave_up, open_bounded

if TYPE_CHECKING:
    from millstream.server.host.engine_host import EngineHost


Signature = tuple[int, int, int]
"""Modification time in ns, size and inode: a file of which all three are as they were is not read again."""


@dataclass(slots=True)
class TablePoll:
    """One poll of a table's file; `ended` once its read is over, `seen` what the file was like when that began."""

    definition: TableDefinition
    known: Signature | None
    seen: Signature | None = None
    ended: bool = False


@dataclass(frozen=True, slots=True)
class TableRows:
    """What a table's file holds: accepted rows, how many were refused, and what is to be said of it."""

    blocks: list[InputBlock]
    refused: int
    notices: list[str]


def read_table_file(host: EngineHost, definition: TableDefinition, given_up: Asks = nobody_gave_up) -> TableRows:
    """Return the rows of the file that CREATE TABLE names, read into memory and nowhere else: from any thread.

    Raises BadInput, GivenUp or the engine's errors.
    """
    assert definition.file is not None
    path, rules = Path(definition.file), host.file_rules
    stream = StreamDefinition(definition.name, change_schema(definition.schema), durability=definition.durability)
    blocks: list[InputBlock] = []
    held_bytes = 0
    with read_input(StreamIntake(host, stream, definition), path, lambda: open_bounded(path, rules, given_up)) as file:
        for block in file.chunks():
            blocks.append(block)
            held_bytes += sum(column.nbytes() for column in block.columns)
            if held_bytes > rules.bytes_max:  # a few bytes of Parquet may stand for any number of rows
                raise BadInput(
                    f"the rows of {path.name} hold more than {rules.bytes_max} bytes", hint="raise file_bytes_max, or load a smaller file"
                )
            if given_up():
                raise GivenUp("the statement was cancelled while its file was read")
    return TableRows(blocks, file.refused, [f"{file.rows - file.refused} rows loaded from {path.name}", *file.told()])


def changes_to(definition: TableDefinition, standing: Sequence[Column], rows: TableRows) -> list[Column] | None:
    """Return the changes, with `op`, that make the standing rows what a file holds: rows that are new or differ, keys that are gone.

    None where nothing has changed. Of several rows with a key the last counts, as everywhere.
    """
    schema = definition.schema
    width, key = len(schema), [place for place, field in enumerate(schema.fields) if field.name in definition.key]
    offered = [concat_columns([block.columns[i] for block in rows.blocks]) for i in range(width + 1)] if rows.blocks else []
    if offered:
        ops = pc.not_equal(offered[width].values.fill_null("+"), pa.scalar("-"))
        places = standing_places([offered[i] for i in key], np.asarray(ops))
        held = [one.take(places) for one in offered[:width]]
    else:
        held = [null_column(field.type, 0) for field in schema.fields]
    before = len(standing[0])
    both = [concat_columns([standing[i], held[i]]) for i in range(width)]
    row_ids = key_encoder([one.type for one in both]).encode(both)
    keys = [both[i] for i in key]
    key_ids = key_encoder([one.type for one in keys]).encode(keys)
    changed = before + np.flatnonzero(~np.isin(row_ids[before:], row_ids[:before]))
    gone = np.flatnonzero(~np.isin(key_ids[:before], key_ids[before:]))
    if not len(changed) and not len(gone):
        return None
    places = np.concatenate((changed, gone))
    signs = pa.array(["+"] * len(changed) + ["-"] * len(gone), type=pa.string())
    return [*(one.take(places) for one in both), Column(TEXT, signs)]
