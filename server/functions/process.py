"""A user's function as the engine calls it: a process that is started, asked, and killed when it takes too long.

A call that fails costs its rows their values and nothing else: the next one finds a new process if it has to.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, NoReturn

import pyarrow as pa
from millstream.engine.data.arrow import arrow_type
from millstream.engine.expressions.user_functions import FunctionFailed
from millstream.engine.language.durations import duration_text
from millstream.engine.language.statements import FunctionDefinition
from millstream.server.functions.child import DONE
from millstream.server.functions.frames import Gone, Overdue, read_frame, write_frame

START_S = 20.0  # for the interpreter, its imports and those of the user's file
TRANSPORT_S = 5.0  # for a process that is alive to take its arguments
END_S = 2.0


class FunctionProcess:
    """See the module's text. May be called from any thread; calls take turns."""

    def __init__(self, definition: FunctionDefinition, source: str) -> None:
        self.definition = definition
        self.calls = self.failed_calls = self.starts = 0
        self._source = source
        self._schema = pa.schema([("answer", arrow_type(definition.result))])
        self._arguments = pa.schema([(p.name, arrow_type(p.type)) for p in definition.parameters])
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline = -1
        self._is_ready = self._is_closed = False

    def start(self) -> None:
        """Start the process and let it read the user's file. FunctionFailed with the reason when it cannot be used."""
        with self._lock:
            self._make_ready()

    def __call__(self, columns: Sequence[Any]) -> Any:
        """Return the function's answer over whole columns; FunctionFailed when it raises, ends, or takes longer than it may."""
        with self._lock:
            self.calls += 1
            try:
                return self._ask(columns)
            except FunctionFailed:
                self.failed_calls += 1
                raise

    def close(self) -> None:
        """End the process; later calls fail."""
        with self._lock:
            self._is_closed = True
            self._kill()

    def _ask(self, columns: Sequence[Any]) -> Any:
        self._make_ready()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._arguments) as writer:
            writer.write_batch(pa.record_batch(list(columns), schema=self._arguments))
        payload = sink.getvalue()
        limit_us = self.definition.limit_us
        self._send(payload)
        answer = self._receive(limit_us / 1e6, f"it took longer than {duration_text(limit_us)}")
        with pa.ipc.open_stream(answer) as reader:
            return reader.read_next_batch().column(0)

    # -- the process ----------------------------------------------------------------------------------------------------------

    def _make_ready(self) -> None:
        if self._is_ready:
            return
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
        about = {"name": definition.name, "file": os.path.basename(definition.file), "source": self._source}
        self._send(json.dumps(about).encode())
        self._send(self._schema.serialize())
        self._receive(START_S, f"its file took longer than {START_S:g} seconds to load")

    def _spawn(self) -> None:
        ours, theirs = os.pipe()
        command = [sys.executable, "-I", "-m", "millstream.server.functions.child", str(ours)]
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[ours], process_group=0)
        except OSError as error:
            os.close(theirs)
            raise FunctionFailed(f"its process cannot be started: {error}") from error
        finally:
            os.close(ours)
        self._lifeline = theirs
        self.starts += 1
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)

    def _send(self, payload: Any) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            write_frame(self._process.stdin.fileno(), payload, time.monotonic() + TRANSPORT_S)
        except (Overdue, Gone):
            self._fail_ended("it did not take its arguments")

    def _receive(self, limit_s: float, overdue: str) -> Any:
        """Return the payload of the answer. A process that is late or gone is replaced."""
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            answer = read_frame(self._process.stdout.fileno(), time.monotonic() + limit_s)
        except Overdue:
            self._replace()
            raise FunctionFailed(overdue) from None
        except Gone:
            self._fail_ended("its process ended")
        if answer[:1] != DONE:
            raise FunctionFailed(answer[1:].decode("utf-8", "replace"))
        return pa.py_buffer(answer)[1:]

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
        if process is None:
            return
        process.kill()
        process.wait(END_S)
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()
        os.close(self._lifeline)
