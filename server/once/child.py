"""The process that answers FETCH. It takes one question after the other from its standard input, and gives each an answer.

A question is a frame of JSON (its bounds), one of the users' functions that it calls, one of itself without its rows, and one for each
block of rows; an empty frame ends it. The answer is a frame of JSON, which says what was wrong or what goes with the rows, and one of
the rows in Arrow's stream format. While a history is read, frames of JSON before it say how much of it has been. The bounds on memory
and processor time are set before the question is read: what exceeds them ends the process, or is told. The process ends with its input,
and with the server when that closes the lifeline.
"""

from __future__ import annotations

import json
import os
import pickle
import resource
import sys
import time
from typing import Any, BinaryIO

from millstream.server.functions.child import die_with_the_server
from millstream.server.functions.frames import HEADER, next_frame

NICE = 10  # behind the server's own threads, which answer everybody
_DATA = "VmData:"
PROGRESS_S = 1.0  # between two frames of progress


def main() -> None:
    """Serve until the input ends. The only argument is the number of the lifeline's descriptor."""
    die_with_the_server(int(sys.argv[1]))
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.nice(NICE)
    from millstream.server.lean import keep_pandas_out

    keep_pandas_out()
    from millstream.server.once import question  # noqa: F401  before the memory is bounded, as it is of every question

    while head := next_frame(requests):
        told, payload = _answered(json.loads(head), requests, _Progress(answers))
        _write(answers, json.dumps(told).encode())
        _write(answers, payload)
        answers.flush()


class _Progress:
    """Tells how much of a history has been read, now and then."""

    def __init__(self, answers: BinaryIO) -> None:
        self._answers = answers
        self._told_s = time.monotonic()

    def __call__(self, fraction: float) -> None:
        """Tell it, unless that was just done."""
        now_s = time.monotonic()
        if now_s - self._told_s >= PROGRESS_S:
            self._told_s = now_s
            _write(self._answers, json.dumps({"progress": fraction}).encode())
            self._answers.flush()


def _write(answers: BinaryIO, payload: Any) -> None:
    answers.write(HEADER.pack(len(payload)))
    answers.write(payload)


def _answered(bounds: dict[str, Any], requests: BinaryIO, progress: _Progress) -> tuple[dict[str, Any], Any]:
    """Return what is told of the answer, and its rows."""
    from millstream.engine.data.errors import EngineError

    _bound(bounds["memory_bytes_max"], bounds["cpu_s_max"])
    functions: dict[str, Any] = {}
    try:
        return _computed(bounds, requests, functions, progress)
    except EngineError as problem:
        return {"error": {"code": problem.code, "message": problem.message, "hint": problem.hint}}, b""
    except (MemoryError, RecursionError) as problem:
        return {"exhausted": type(problem).__name__}, b""
    finally:
        for process in functions.values():
            process.close()


def _bound(memory_bytes_max: int, cpu_s_max: float) -> None:
    """Let this process use so much memory beyond what it has, and so much processor time beyond what it has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = used.ru_utime + used.ru_stime + cpu_s_max
    resource.setrlimit(resource.RLIMIT_CPU, (max(1, int(cpu_s + 1)), resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    held = _memory_bytes()
    if held is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (held + memory_bytes_max, resource.RLIM_INFINITY))


def _memory_bytes() -> int | None:
    """Return the bytes that count against the bound now; None where the system does not say."""
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            found = next(line for line in file if line.startswith(_DATA))
    except (OSError, StopIteration):
        return None
    return int(found.split()[1]) * 1024


def _computed(bounds: dict[str, Any], requests: BinaryIO, functions: dict[str, Any], progress: _Progress) -> tuple[dict[str, Any], Any]:
    from millstream.server.functions.process import FunctionProcess
    from millstream.server.once.question import answer_of
    from millstream.server.once.transport import unpacked

    described = pickle.loads(next_frame(requests))
    functions.update({name: FunctionProcess(*told) for name, told in described.items()})
    asked = unpacked(next_frame(requests), functions.__getitem__)
    blocks: dict[str, list[Any]] = {}
    while payload := next_frame(requests):
        name, block = unpacked(payload, functions.__getitem__)
        blocks.setdefault(name, []).append(block)
    outcome = answer_of(asked.with_rows(blocks), progress)
    assert outcome.answer is not None
    rows = _encoded(outcome.answer)
    if len(rows) > bounds["answer_bytes_max"]:
        return {"too_long": len(rows)}, b""
    return {"notices": list(outcome.notices), "info": outcome.info}, rows


def _encoded(answer: Any) -> Any:
    import pyarrow as pa
    from millstream.engine.data.arrow import arrow_schema

    sink = pa.BufferOutputStream()
    schema = arrow_schema(answer.schema)
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in answer.batches:
            writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
    return sink.getvalue()


if __name__ == "__main__":
    main()
