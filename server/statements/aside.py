"""What a statement needs done before it is executed, and may take long: its file is read, a function's process loads its module.

The thread that executes statements would keep everybody's waiting meanwhile. So that part runs on a thread of its own, which is a daemon:
a read that never returns (a file system that hangs) is left behind, and keeps neither its statement nor the server's end waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millstream.engine.language.statements import CreateFunction, CreateTable, Statement
from millstream.server.host.server_files import Asks
from millstream.server.host.table_files import read_table_file
from millstream.server.statements.functions import load_function

if TYPE_CHECKING:
    from millstream.server.host.engine_host import EngineHost

Preparing = Callable[[Asks], Any]


def preparing_of(host: EngineHost, statement: Statement) -> Preparing | None:
    """Return what is to be done aside before a statement, which gives its `Context.prepared`; None when there is nothing.

    A statement that will be refused, as its name is taken, has nothing done.
    """
    if isinstance(statement, CreateTable):
        table = statement.definition
        if table.file is None or (host.catalog.find(table.name) is not None and not statement.or_replace):
            return None
        return lambda given_up: read_table_file(host, table, given_up)
    if isinstance(statement, CreateFunction):
        function = statement.definition
        if host.catalog.find_function(function.name) is not None and not statement.or_replace:
            return None
        return lambda given_up: load_function(host, function, given_up)
    return None
