"""CREATE FUNCTION, SHOW FUNCTIONS, DESCRIBE of a function.

The file is read once: its text goes into the catalogue, so that a restart finds the function as it was, whatever became of the file.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.engine.data.errors import InvalidDefinition
from millstream.engine.expressions.user_functions import FunctionFailed, UserFunction
from millstream.engine.language.statements import CreateFunction, FunctionDefinition
from millstream.server.errors import GivenUp
from millstream.server.functions.process import FunctionProcess
from millstream.server.host.server_files import Asks, nobody_gave_up, open_regular
from millstream.server.results.outcome import Outcome, said, table

if TYPE_CHECKING:
    from millstream.server.host.contract import Context
    from millstream.server.host.engine_host import EngineHost

SOURCE_BYTES_MAX = 4 * 2**20


def create_function(host: EngineHost, statement: CreateFunction, context: Context) -> Outcome:
    """Start the function's process, which reads the file, and let queries call it."""
    definition = statement.definition
    if statement.if_not_exists and host.catalog.find_function(definition.name) is not None:
        return said(f"function {definition.name} already exists")
    process: FunctionProcess = context.prepared or load_function(host, definition, stored=context.restoring)
    digest = hashlib.sha256(process.source.encode()).hexdigest()
    function = UserFunction(definition.name, definition.parameters, definition.result, definition.limit_us, digest, process)
    found = host.catalog.find_function(definition.name) if statement.or_replace else None
    if found == function:
        process.close()
        return said(f"function {definition.name} is as it was")
    if found is not None:
        from millstream.server.statements.replacing import replace_function  # loaded by the first that is replaced

        try:
            return replace_function(host, function, process, context.text.strip())
        except BaseException:
            process.close()
            raise
    with host.store.change() as change:
        change.back(process.close)
        host.catalog.add(function)
        host.functions[definition.name] = process
        change.back(lambda: host.forget_function(definition.name))
        if not context.restoring:
            host.store.add_function(definition.name, context.text.strip(), process.source)
    if process.missing and not any(f.missing for f in host.functions.values() if f is not process):  # said once
        host.observer.reported("functions_not_confined", f"this system lacks {', '.join(process.missing)} (docs/operations.md)")
    return said(f"function {definition.name} created")


def load_function(
    host: EngineHost, definition: FunctionDefinition, given_up: Asks = nobody_gave_up, *, stored: bool = False
) -> FunctionProcess:
    """Start a function's process, which loads the user's module: from any thread. InvalidDefinition, BadInput, GivenUp.

    `stored`: its text is that of the catalogue, if there is one, whatever has become of the file.
    """
    source = host.store.source(definition.name) if stored else None
    process = FunctionProcess(definition, source if source is not None else _read(definition, host.file_rules.folder), host.confinement)
    try:
        process.start()
    except FunctionFailed as problem:
        process.close()
        raise InvalidDefinition(f"the function {definition.name} of {definition.file} cannot be used: {problem}") from None
    if given_up():
        process.close()
        raise GivenUp("the statement was cancelled while its module was loaded")
    return process


def _read(definition: FunctionDefinition, folder: str) -> str:
    path = Path(definition.file)
    try:
        with open_regular(path, folder) as file:
            raw = file.read(SOURCE_BYTES_MAX + 1)
        if len(raw) > SOURCE_BYTES_MAX:
            raise InvalidDefinition(f"{path} is larger than {SOURCE_BYTES_MAX} bytes", hint="move large parts into modules that it imports")
        return raw.decode("utf-8")
    except OSError as error:
        raise InvalidDefinition(f"cannot read {path}: {error.strerror}", hint="the server looks for the file on its own machine") from error
    except UnicodeDecodeError as error:
        raise InvalidDefinition(f"{path} is not UTF-8 text (byte {error.start})", hint="save the file as UTF-8") from error


def show_functions(host: EngineHost) -> Outcome:
    """List users' functions with what became of their calls."""
    rows = []
    for function in host.catalog.functions():
        process = host.functions[function.name]
        rows.append(
            (function.name, function.signature, process.definition.limit_us, process.definition.file, process.calls, process.failed_calls,
             process.starts)
        )  # fmt: skip
    columns = [("name", "TEXT"), ("signature", "TEXT"), ("time_limit", "INTERVAL"), ("file", "TEXT")]
    return table([*columns, ("calls", "BIGINT"), ("failed_calls", "BIGINT"), ("starts", "BIGINT")], rows)


def describe_function(function: UserFunction) -> Outcome:
    """Return a row a parameter, and one for the result."""
    rows = [(p.name, str(p.type), "parameter") for p in function.parameters]
    described = table([("column", "TEXT"), ("type", "TEXT"), ("note", "TEXT")], [*rows, ("", str(function.result), "result")])
    return Outcome(described.columns, described.values, (function.promise,))
