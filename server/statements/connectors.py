"""CREATE, DROP, PAUSE, RESUME, SHOW and EXPLAIN of sources and sinks; REPORT, by which the connect process tells of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millstream.engine.data.errors import InvalidDefinition, Unsupported
from millstream.engine.data.nearest import did_you_mean, near_or_listed
from millstream.engine.language.statements import (
    ChangeConnector,
    ConnectorDefinition,
    ConnectorKind,
    CreateConnector,
    DropConnector,
    EnvironmentName,
    ExplainConnector,
    QueryVerb,
    ReportConnector,
)
from millstream.server.host.connectors import Connector, checked_report
from millstream.server.results.outcome import Outcome, said, table

if TYPE_CHECKING:
    from millstream.server.host.contract import Context
    from millstream.server.host.engine_host import EngineHost

NOT_KNOWN = "not known before a connect process has opened it"


def _note(kind: ConnectorKind, name: str, what: str) -> str:
    return f"{kind.noun} {name} {what}"


def create_connector(host: EngineHost, statement: CreateConnector, context: Context) -> Outcome:
    """Keep the definition; the connect process carries it out."""
    definition = statement.definition
    kind, name = definition.kind, definition.name
    connectors = host.connectors
    found = connectors.find(kind, name)
    if statement.if_not_exists and found is not None:
        return said(f"{kind.noun} {name} already exists")
    note = ""
    if host.runtime.scheduler is None:
        raise Unsupported(f"a run in virtual time has no {kind.noun}s", hint="create it on a running server")
    if not context.restoring:  # queries come back later
        schema = (
            host.intake(definition.target).definition.schema
            if kind is ConnectorKind.SOURCE
            else host.queries.get(definition.target).planned.physical.schema
        )
        note = _checked(definition, [field.name for field in schema.fields])
    if statement.or_replace and found is not None:
        from millstream.server.statements.replacing import replace_connector  # loaded by the first that is replaced

        return replace_connector(host, found, definition, context.text.strip())
    made = Connector(definition)
    if context.restoring:
        made.is_paused = host.store.note(_note(kind, name, "paused")) == "yes"
        made.token = host.store.note(_note(kind, name, "token")) or None
    with host.store.change() as change:
        connectors.add(made)
        change.back(lambda: connectors.remove(kind, name))
        if not context.restoring:
            host.store.add_definition(kind.noun, name, context.text.strip())
            _forget_notes(host, kind, name)
    return said(f"{kind.noun} {name} created; SHOW {kind.value}S says how it fares{note}")


def _checked(definition: ConnectorDefinition, columns: Sequence[str]) -> str:
    """Check the options of a connector of Millstream's own, and that the columns that they name are among those of its stream or query.

    Returns what is to be said of another connector. InvalidDefinition when an option cannot be.
    """
    from millstream.protocol.connectors import OF_KIND, OptionProblem, check_options, named_columns  # loaded by the first that is created

    kind = definition.kind.noun
    given = {name: None if isinstance(value, EnvironmentName) else value for name, value in definition.options}
    try:
        if check_options(kind, given):
            strange = next((name for name in named_columns(kind, given) if name not in columns), None)
            if strange is not None:
                hint = near_or_listed(strange, columns, "columns")
                raise InvalidDefinition(f"{kind} {definition.name}: {definition.target} has no column {strange}", hint=hint)
            return ""
    except OptionProblem as problem:
        hint = did_you_mean(problem.unknown, problem.known) if problem.unknown else None
        raise InvalidDefinition(f"{kind} {definition.name}: {problem}", hint=hint) from None
    near = near_or_listed(definition.option("connector"), OF_KIND[kind], f"connectors of Millstream's own for a {kind}")
    return f". {definition.option('connector')} is none of Millstream's own connectors, so its options are checked once it runs; {near}"


def _forget_notes(host: EngineHost, kind: ConnectorKind, name: str) -> None:
    for what in ("paused", "token"):
        if host.store.note(_note(kind, name, what)):
            host.store.set_note(_note(kind, name, what), "")


def drop_connector(host: EngineHost, statement: DropConnector, context: Context) -> Outcome:
    """Forget a source or sink; what it has brought stays."""
    kind, name = statement.kind, statement.name.text
    if statement.if_exists and host.connectors.find(kind, name) is None:
        return said(f"there is no {kind.noun} {name}")
    host.connectors.get(kind, name)
    with host.store.change() as change:
        host.store.forget([(kind.noun, name)], [])
        _forget_notes(host, kind, name)
        change.after(lambda: host.connectors.remove(kind, name))
    return said(f"{kind.noun} {name} dropped")


def change_connector(host: EngineHost, statement: ChangeConnector, context: Context) -> Outcome:
    """Pause a source or sink, or let it go on; it goes on where it was."""
    kind, name = statement.kind, statement.name.text
    found = host.connectors.get(kind, name)
    wanted = statement.verb is QueryVerb.PAUSE
    if found.is_paused == wanted:
        return said(f"{kind.noun} {name} is already {'paused' if wanted else 'running'}")
    with host.store.change() as change:
        host.store.set_note(_note(kind, name, "paused"), "yes" if wanted else "")
        change.after(lambda: setattr(found, "is_paused", wanted))
    return said(f"{kind.noun} {name} is {'paused' if wanted else 'running'}")


def report_connector(host: EngineHost, statement: ReportConnector, context: Context) -> Outcome:
    """Take what the connect process tells."""
    found = host.connectors.get(statement.kind, statement.name.text)
    try:
        told = checked_report(statement.report)
    except ValueError as error:
        raise InvalidDefinition(f"this is no report: {error}") from error
    token = told.pop("token", None)
    if token is not None and token != found.token:
        with host.store.change() as change:
            host.store.set_note(_note(statement.kind, found.definition.name, "token"), token)
            change.after(lambda: setattr(found, "token", token))
    found.report = told
    return said()


def shown(host: EngineHost, kind: ConnectorKind) -> Outcome:
    """Return the sources or sinks with what was told of them."""
    is_source = kind is ConnectorKind.SOURCE
    rows: list[tuple[object, ...]] = []
    for one in host.connectors.of(kind):
        definition, told = one.definition, one.report
        cells: list[Any] = [definition.name, definition.target, definition.option("connector"), one.state]
        cells += [told.get(n) for n in ("rows", "refused", "rows_per_s", "lag_messages", "lag_s", "restarts", "last_error", "promise")]
        rows.append((*cells, one.options_text, one.options_json, one.token))
    columns = [("name", "TEXT"), ("stream" if is_source else "query", "TEXT"), ("connector", "TEXT"), ("state", "TEXT")]
    columns += [("rows", "BIGINT"), ("refused", "BIGINT"), ("rows_per_s", "DOUBLE"), ("lag_messages", "BIGINT"), ("lag_s", "DOUBLE")]
    columns += [("restarts", "BIGINT"), ("last_error", "TEXT"), ("promise", "TEXT")]
    columns += [("options", "TEXT"), ("options_json", "TEXT"), ("token", "TEXT")]
    outcome = table(columns, rows, f"name {'stream' if is_source else 'query'} connector state rows lag_messages last_error")
    errors = [(one.definition.name, one.report["last_error"]) for one in host.connectors.of(kind) if one.report.get("last_error")]
    return replace(outcome, notices=tuple(f"{name}: {error}" for name, error in errors))


def explain_connector(host: EngineHost, statement: ExplainConnector, context: Context) -> Outcome:
    """Say what is promised, and why."""
    found = host.connectors.get(statement.kind, statement.name.text)
    definition = found.definition
    way = "into stream" if statement.kind is ConnectorKind.SOURCE else "from query"
    lines = [
        f"{definition.kind.noun} {definition.name}: connector {definition.option('connector')}, {way} {definition.target}",
        f"promise: {found.report.get('promise') or NOT_KNOWN}",
        f"state: {found.state}",
        f"options: {found.options_text}",
    ]
    if found.report.get("last_error"):
        lines.append(f"last error: {found.report['last_error']}")
    return table([("explanation", "TEXT")], [(line,) for line in lines])


EXECUTORS: dict[type[Any], Callable[[Any, Any, Any], Outcome]] = {
    CreateConnector: create_connector,
    DropConnector: drop_connector,
    ChangeConnector: change_connector,
    ExplainConnector: explain_connector,
    ReportConnector: report_connector,
}
