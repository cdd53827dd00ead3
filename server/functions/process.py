"""A user's function as the engine calls it: a process that is started, asked, and killed when it takes too long.

A call that fails costs its rows their values and nothing else: the next one finds a new process if it has to. Nothing that the process
answers is believed: what is no column of the declared type and length is a failed call, and its process is replaced.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import field
from typing import Any, NoReturn

import pyarrow as pa
from millstream.engine.data.arrow import arrow_type
from millstream.engine.data.durations import duration_text
from millstream.engine.data.records import dataclass
from millstream.engine.expressions.user_functions import FunctionAnswer, FunctionFailed
from millstream.engine.language.statements import FunctionDefinition
from millstream.protocol.errors import RemoteProtocolError
from millstream.server.functions.child import DONE, PARTLY, REASON_MAX, REASONS_MAX
from millstream.server.functions.frames import NUMBER, Overdue, PeerGone, read_frame, within, write_frame
from millstream.server.functions.processes import cpu_used_s, end, spawn

START_S = 20.0  # for the interpreter, its imports and those of the user's file
TRANSPORT_S = 5.0  # for a process that is alive to take its arguments
FRONT = 1 + NUMBER.size  # of an answer: how it went, and to which call
CPU_SPARE_S = 5  # of processor time that a process may use beyond the call's time on every processor: what it does between calls ends it


@dataclass(frozen=True, slots=True)
class Confinement:
    """What functions may do. `hidden` are paths that no function may read, wherever its file stands: the data directory."""

    memory_bytes_max: int = 2**30
    confined: bool = True
    hidden: tuple[str, ...] = field(default=())

    def readable(self, file: str) -> list[str]:
        """Return the folder of a function's file, unless what is hidden lies in it, or it in what is hidden."""
        folder = os.path.realpath(os.path.dirname(os.path.abspath(file)))
        for path in map(os.path.realpath, self.hidden):
            if os.path.commonpath([folder, path]) in (folder, path):
                return []
        return [] if folder == os.path.sep else [folder]


UNREADABLE = (ValueError, TypeError, OverflowError, struct.error, RecursionError, MemoryError)


def _failed_rows(told: bytes, rows: int) -> dict[str, list[int]]:
    """Return the rows for which a call failed, by reason. ValueError or TypeError when that is not what was told."""
    failed = {str(reason)[:REASON_MAX]: [int(row) for row in places] for reason, places in json.loads(told)}
    if len(failed) > REASONS_MAX + 1 or not all(0 <= row < rows for places in failed.values() for row in places):
        raise ValueError("the failed rows are none of the call's")
    return failed


class FunctionProcess:
    """The process of one function. May be called from any thread; calls take turns. `missing` names the locks that this system lacks."""

    def __init__(self, definition: FunctionDefinition, source: str, confinement: Confinement | None = None) -> None:
        from millstream.protocol.batches import BatchDecoder  # a script without functions needs no protocol

        self.definition = definition
        self.calls = self.failed_calls = self.starts = 0
        self.missing: list[str] = []
        self._confinement = confinement or Confinement()
        self.source = source
        self._schema = pa.schema([("answer", arrow_type(definition.result))])
        self._decoder = BatchDecoder(self._schema)
        self._arguments = pa.schema([(p.name, arrow_type(p.type)) for p in definition.parameters])
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline = -1
        self._is_ready = self._is_closed = False

    def start(self) -> None:
        """Start the process and let it read the user's file. FunctionFailed with the reason when it cannot be used."""
        with self._lock:
            self._make_ready()

    def __call__(self, columns: Sequence[Any]) -> FunctionAnswer:
        """Return the function's answer over whole columns; FunctionFailed when it ends, lies, takes longer than it may, or raises for a
        single row. `failed_calls` counts these calls and those in which it raises for some rows.
        """
        with self._lock:
            self.calls += 1
            try:
                answer = self._ask(columns)
            except FunctionFailed:
                self.failed_calls += 1
                raise
            self.failed_calls += bool(answer.failed)
            return answer

    def close(self) -> None:
        """End the process; later calls fail."""
        with self._lock:
            self._is_closed = True
            self._kill()

    def _ask(self, columns: Sequence[Any]) -> FunctionAnswer:
        self._make_ready()
        batch = pa.record_batch(list(columns), schema=self._arguments)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._arguments) as writer:
            writer.write_batch(batch)
        limit_us = self.definition.limit_us
        self._bound_processor_time(limit_us / 1e6)
        self._send(NUMBER.pack(self.calls) + sink.getvalue().to_pybytes())
        code, answer = self._receive(limit_us / 1e6, f"it took longer than {duration_text(limit_us)}")
        return self._checked(code, answer, batch.num_rows)

    def _checked(self, code: bytes, answer: Any, rows: int) -> FunctionAnswer:
        """Return what an answer holds, every value of it looked at: the process may have written anything."""
        failed: dict[str, list[int]] = {}
        try:
            if code == PARTLY:
                (size,) = NUMBER.unpack(answer[: NUMBER.size].to_pybytes())
                failed = _failed_rows(answer[NUMBER.size : NUMBER.size + size].to_pybytes(), rows)
                answer = answer[NUMBER.size + size :]
            column = self._decoder.decode(answer, rows).column(0)
            column.validate(full=True)
        except (RemoteProtocolError, pa.ArrowException, *UNREADABLE) as error:
            self._replace()
            reason = " ".join(str(error).split())[:REASON_MAX]
            raise FunctionFailed(f"its answer is not a column of {rows} values of the type {self.definition.result}: {reason}") from None
        return FunctionAnswer(column, failed)

    # -- the process ----------------------------------------------------------------------------------------------------------

    def _make_ready(self) -> None:
        if self._is_ready and self._process is not None and self._process.poll() is None:
            return
        if self._is_ready:  # it ended between two calls, which is nothing to this one
            self._kill()
        if self._is_closed:
            raise FunctionFailed("it was dropped")
        if self._process is None:
            self._spawn()
        try:
            self._introduce()
        except FunctionFailed:
            self._kill()
            raise
        self._is_ready = True

    def _introduce(self) -> None:
        definition = self.definition
        about = {"name": definition.name, "file": os.path.basename(definition.file), "source": self.source}
        self._bound_processor_time(START_S)
        self._send(json.dumps(about).encode())
        self._send(self._schema.serialize())
        _, told = self._receive(START_S, f"its file took longer than {START_S:g} seconds to load")
        try:
            self.missing = [str(name)[:REASON_MAX] for name in json.loads(bytes(told))]
        except (ValueError, TypeError, RecursionError):
            raise FunctionFailed("its file wrote where its answers go") from None

    def _spawn(self) -> None:
        told = {
            "memory_bytes_max": self._confinement.memory_bytes_max,
            "confined": self._confinement.confined,
            "readable": self._confinement.readable(self.definition.file),
        }
        command = (sys.executable, "-I", "-m", "millstream.server.functions.child")
        try:
            self._process, self._lifeline = spawn(lambda lifeline: (*command, json.dumps({"lifeline": lifeline, **told})))
        except OSError as error:
            raise FunctionFailed(f"its process cannot be started: {error}") from error
        self.starts += 1

    def _bound_processor_time(self, call_s: float) -> None:
        """Let the process use as much processor time as a call may take on all processors, and a little: then the system ends it."""
        assert self._process is not None
        if sys.platform != "linux":
            return
        pid = self._process.pid
        with contextlib.suppress(OSError):  # it has ended, which the call will find
            most = int(cpu_used_s(pid) + call_s * (os.cpu_count() or 1)) + CPU_SPARE_S
            resource.prlimit(pid, resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))

    def _send(self, payload: Any) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            write_frame(self._process.stdin.fileno(), payload, within(TRANSPORT_S))
        except (Overdue, PeerGone):
            self._fail_ended("it did not take its arguments")

    def _receive(self, limit_s: float, overdue: str) -> tuple[bytes, Any]:
        """Return how it went and the payload of the answer. A process that is late or gone is replaced."""
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            answer = read_frame(self._process.stdout.fileno(), within(limit_s))
        except Overdue:
            self._replace()
            raise FunctionFailed(overdue) from None
        except PeerGone:
            self._fail_ended("its process ended")
        if answer[1:FRONT] != NUMBER.pack(self.calls if self._is_ready else 0):
            self._replace()
            raise FunctionFailed("it wrote where its answers go")
        code = bytes(answer[:1])
        if code not in (DONE, PARTLY):
            raise FunctionFailed(answer[FRONT : FRONT + 4 * REASON_MAX].decode("utf-8", "replace"))
        return code, pa.py_buffer(answer)[FRONT:]

    def _fail_ended(self, what: str) -> NoReturn:
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.2)
        code = self._process.returncode
        self._replace()
        raise FunctionFailed(what if code is None else f"its process ended with exit code {code}")

    def _replace(self) -> None:
        """Kill the process and start the next one, which gets ready while nobody waits for it."""
        self._kill()
        self._spawn()

    def _kill(self) -> None:
        process, self._process, self._is_ready = self._process, None, False
        if process is not None:
            end(process, self._lifeline)
