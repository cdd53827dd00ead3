"""One file a family of statements: what the host does for each. `EXECUTORS` is the whole list.

An executor is called with (host, statement, context) on the thread that executes statements; it returns an `Outcome` or raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.engine.language import statements as say
from millstream.server.results.outcome import Outcome
from millstream.server.statements.control import change_query, record, set_policy, show_recording
from millstream.server.statements.definitions import create_class, create_derived_stream, create_stream, create_table
from millstream.server.statements.drop import drop
from millstream.server.statements.explain import explain
from millstream.server.statements.fetch import fetch
from millstream.server.statements.functions import create_function
from millstream.server.statements.selects import create_query, insert_select, insert_values, select
from millstream.server.statements.show import describe, show


def _of_connectors(host: Any, statement: Any, context: Any) -> Outcome:
    """Execute a statement about sources and sinks."""
    from millstream.server.statements.connectors import EXECUTORS as OF_CONNECTORS  # loaded by the first of them

    return OF_CONNECTORS[type(statement)](host, statement, context)


def _of_alterations(host: Any, statement: Any, context: Any) -> Outcome:
    """Execute an ALTER or a COMMENT ON."""
    from millstream.server.statements.alterations import EXECUTORS as OF_ALTERATIONS  # loaded by the first of them

    return OF_ALTERATIONS[type(statement)](host, statement, context)


EXECUTORS: dict[type[say.Statement], Callable[[Any, Any, Any], Outcome]] = {
    say.SelectStatement: select,
    say.Fetch: fetch,
    say.CreateStream: create_stream,
    say.CreateDerivedStream: create_derived_stream,
    say.CreateTable: create_table,
    say.CreateQuery: create_query,
    say.CreateClass: create_class,
    say.CreateFunction: create_function,
    say.InsertValues: insert_values,
    say.InsertSelect: insert_select,
    say.ChangeQuery: change_query,
    say.AlterStream: _of_alterations,
    say.AlterQuery: _of_alterations,
    say.CommentOn: _of_alterations,
    say.Drop: drop,
    say.Show: show,
    say.Describe: describe,
    say.Explain: explain,
    say.SetPolicy: set_policy,
    say.SetRecording: record,
    say.ShowRecording: show_recording,
    say.CreateConnector: _of_connectors,
    say.DropConnector: _of_connectors,
    say.ChangeConnector: _of_connectors,
    say.ExplainConnector: _of_connectors,
    say.ReportConnector: _of_connectors,
}
