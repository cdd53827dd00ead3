"""The process of one user's function: takes columns from its standard input, gives a column back.

The first frame is JSON (name, file, source) and the second the schema of the answer; from then on each frame is a record batch of the
arguments, and each answer a byte that says how it went and a record batch, or the reason as text. What the function prints goes to the
server's standard error. The process ends with its input; a function that never comes back ends when the server closes the lifeline.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any, BinaryIO

from millstream.server.functions.frames import HEADER

DONE, FAILED = b"\x00", b"\x01"
REASON_MAX = 300
MODULE = "millstream_function_"


def main() -> None:
    """Serve until the input ends. The only argument is the number of the lifeline's descriptor."""
    threading.Thread(target=_die_with_the_server, args=(int(sys.argv[1]),), daemon=True).start()
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    from millstream.server.lean import keep_pandas_out

    keep_pandas_out()
    try:
        function, result = _load(_frame(requests), _frame(requests))
    except BaseException as error:  # the user's file may raise anything
        _answer(answers, FAILED, _reason(error))
        return
    _answer(answers, DONE, b"")
    while payload := _frame(requests):
        try:
            _answer(answers, DONE, _called(function, result, payload))
        except (KeyboardInterrupt, BrokenPipeError):
            return
        except BaseException as error:  # SystemExit too: the function's own affair
            _answer(answers, FAILED, _reason(error))


def _die_with_the_server(lifeline: int) -> None:
    os.read(lifeline, 1)
    os._exit(1)


def _frame(requests: BinaryIO) -> bytes:
    header = requests.read(HEADER.size)
    return requests.read(HEADER.unpack(header)[0]) if len(header) == HEADER.size else b""


def _answer(answers: BinaryIO, status: bytes, payload: bytes) -> None:
    answers.write(HEADER.pack(len(payload) + 1) + status)
    answers.write(payload)
    answers.flush()


def _load(described: bytes, schema: bytes) -> tuple[Callable[..., Any], Any]:
    """Run the user's file; return the function of the name that was declared, and the schema of its answers."""
    import pyarrow as pa
    from millstream.server.functions import values  # noqa: F401

    about = json.loads(described)
    module = ModuleType(f"{MODULE}{about['name']}")
    module.__file__ = about["file"]
    sys.modules[module.__name__] = module  # as an import would: dataclasses look their module up there
    exec(compile(about["source"], about["file"], "exec"), module.__dict__)
    function = getattr(module, about["name"], None)
    if function is None or not callable(function):
        raise LookupError(f"{about['file']} defines no function {about['name']}")
    result = pa.ipc.read_schema(pa.py_buffer(schema))
    _written([pa.nulls(0, result.field(0).type)], result)  # what a first call would find missing is there before its time runs
    return function, result


def _called(function: Callable[..., Any], schema: Any, payload: bytes) -> bytes:
    import pyarrow as pa
    from millstream.server.functions.values import array_of, values_of

    with pa.ipc.open_stream(payload) as reader:
        batch = reader.read_next_batch()
    answer = function(*(values_of(column) for column in batch.columns))
    array = array_of(answer, schema.field(0).type)
    if len(array) != batch.num_rows:
        raise ValueError(f"it gave {len(array)} values for {batch.num_rows} rows")
    return _written([array], schema)


def _written(arrays: list[Any], schema: Any) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.record_batch(arrays, schema=schema))
    return bytes(sink.getvalue())


def _reason(error: BaseException) -> bytes:
    """Return the kind of error, its text and its line in the user's file, in one short line."""
    trace, line = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").startswith(MODULE):
            line = trace.tb_lineno
        trace = trace.tb_next
    text = " ".join(f"{type(error).__name__}: {error}".split())[:REASON_MAX]
    return (text if line is None else f"{text} (line {line})").encode("utf-8", "replace")


if __name__ == "__main__":
    main()
