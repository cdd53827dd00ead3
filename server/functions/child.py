"""The process of one user's function: takes columns from its standard input, gives a column back.

It confines itself first (`sandbox.py`). The first frame is JSON (name, file, source) and the second the schema of the answer; the answer to
them is a JSON list of the locks that this system lacks. From then on each frame is the number of a call and a batch of the arguments,
and each answer a byte that says how it went, the number, and a bare record batch message or the reason as text.

Where a call raises, it is made again for each half of its rows, down to the rows for which it raises by themselves. The answer has NULL
there; before it come the length of a JSON list of the reasons, [reason, [row, …]], and that list.

What the function prints goes to the server's standard error. The process ends with its input; a function that never comes back ends when
the server closes the lifeline.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any, BinaryIO

from millstream.server.functions.frames import HEADER, NUMBER, next_frame

DONE, FAILED, PARTLY = b"\x00", b"\x01", b"\x02"
REASON_MAX = 300  # characters
REASONS_MAX = 16  # of one call, told apart
OTHER_REASON = "it failed for more reasons than are told apart"
MODULE = "millstream_function_"
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve until the input ends. The only argument is JSON: lifeline (a descriptor), memory_bytes_max, confined, readable (folders)."""
    from millstream.server.functions import sandbox  # the server imports this file for its constants alone

    told = json.loads(sys.argv[1])
    sandbox.limit(told["memory_bytes_max"])
    sandbox.adopt_orphans()
    missing = sandbox.confine(told["readable"]) if told["confined"] else []
    die_with_the_server(told["lifeline"])
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    from millstream.server.lean import keep_pandas_out

    keep_pandas_out()
    first = NUMBER.pack(0)
    try:
        function, result = _load(next_frame(requests), next_frame(requests))
    except BaseException as error:  # the user's file may raise anything
        _answer(answers, FAILED + first, _reason(error))
        return
    _answer(answers, DONE + first, json.dumps(missing).encode())
    while payload := next_frame(requests):
        number = payload[: NUMBER.size]
        try:
            code, answer = _answered(function, result, payload[NUMBER.size :])
            _answer(answers, code + number, answer)
        except (KeyboardInterrupt, BrokenPipeError):
            return
        except BaseException as error:  # SystemExit too: the function's own affair
            _answer(answers, FAILED + number, _reason(error))


def die_with_the_server(lifeline: int) -> None:
    """Have this process end when the server closes its end of the lifeline, and, on Linux, even if it is stopped when the server dies."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # a server that was killed may have stopped it before
    threading.Thread(target=_wait_for_the_end, args=(lifeline,), daemon=True).start()


def _wait_for_the_end(lifeline: int) -> None:
    os.read(lifeline, 1)
    os._exit(1)


def _answer(answers: BinaryIO, front: bytes, payload: bytes) -> None:
    answers.write(HEADER.pack(len(front) + len(payload)) + front)
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


def _answered(function: Callable[..., Any], schema: Any, payload: bytes) -> tuple[bytes, bytes]:
    """Return how a call went, and its answer. A call of one row raises what the function raises."""
    import pyarrow as pa

    with pa.ipc.open_stream(payload) as reader:
        batch = reader.read_next_batch()
    type_ = schema.field(0).type
    if batch.num_rows == 1:
        found = _called(function, type_, batch)
        return DONE, _written([found], schema)
    parts: list[Any] = []
    failed: dict[str, list[int]] = {}
    _halved(function, type_, batch, 0, parts, failed)
    column = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
    written = _written([column], schema)
    if not failed:
        return DONE, written
    told = json.dumps(list(failed.items())).encode()
    return PARTLY, NUMBER.pack(len(told)) + told + written


def _halved(function: Callable[..., Any], type_: Any, batch: Any, start: int, parts: list[Any], failed: dict[str, list[int]]) -> None:
    """Append the values of the rows of a batch, which begin at `start`; note those that raise by themselves, each with its reason."""
    import pyarrow as pa

    try:
        found = _called(function, type_, batch)
    except (KeyboardInterrupt, BrokenPipeError):
        raise
    except BaseException as error:
        rows = batch.num_rows
        if rows <= 1:
            reason = _reason(error).decode("utf-8", "replace")
            failed.setdefault(reason if reason in failed or len(failed) < REASONS_MAX else OTHER_REASON, []).append(start)
            parts.append(pa.nulls(rows, type_))
            return
    else:
        parts.append(found)
        return
    half = rows // 2
    _halved(function, type_, batch.slice(0, half), start, parts, failed)
    _halved(function, type_, batch.slice(half), start + half, parts, failed)


def _called(function: Callable[..., Any], type_: Any, batch: Any) -> Any:
    from millstream.server.functions.values import array_of, values_of

    array = array_of(function(*(values_of(column) for column in batch.columns)), type_)
    if len(array) != batch.num_rows:
        raise ValueError(f"it gave {len(array)} values for {batch.num_rows} rows")
    return array


def _written(arrays: list[Any], schema: Any) -> bytes:
    import pyarrow as pa

    return bytes(pa.record_batch(arrays, schema=schema).serialize())


def _reason(error: BaseException) -> bytes:
    """Return the kind of error, its text and its line in the user's file, in one short line."""
    trace, line = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").startswith(MODULE):
            line = trace.tb_lineno
        trace = trace.tb_next
    try:
        text = " ".join(f"{type(error).__name__}: {error}".split())[:REASON_MAX]
    except BaseException:  # the text of the user's exception is the user's code too
        text = "an exception that has no text, as its __str__ raises another"
    return (text if line is None else f"{text} (line {line})").encode("utf-8", "replace")


if __name__ == "__main__":
    main()
