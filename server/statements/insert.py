"""INSERT INTO name VALUES (…), …: a publish by hand; all rows or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.engine.language.statements import InsertValues
from millstream.engine.plan.insert import bind_rows
from millstream.server.results.outcome import Outcome, said

if TYPE_CHECKING:
    from millstream.server.host.contract import Context
    from millstream.server.host.engine_host import EngineHost


def insert_values(host: EngineHost, statement: InsertValues, context: Context) -> Outcome:
    """Let the rows in; a row that does not fit refuses the statement with its number."""
    intake = host.intake(statement.name.text)
    columns = bind_rows(statement, intake.table or intake.definition)
    position = intake.take_columns(columns)
    if intake.is_sync and host.journaling is not None:
        host.journaling.wait_safe()
    rows = len(statement.rows)
    return said(f"{rows} row{'' if rows == 1 else 's'} inserted", accepted=rows, position=position)
