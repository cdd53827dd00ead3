"""A process that answers FETCH, as the server's side sees it: started when the first question comes, asked again while it is warm, killed
when nobody waits for its answer or it wants more than it may.

`ask` waits for the process and is called on a thread of its own.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
from millstream.engine.data.errors import EngineError, InvalidDefinition, Unsupported
from millstream.engine.data.records import dataclass
from millstream.engine.data.schema import Field, Schema
from millstream.server.errors import GivenUp, ServerError
from millstream.server.functions.frames import HEADER
from millstream.server.functions.process import KEPT_VARIABLES, Confinement, FunctionProcess
from millstream.server.functions.processes import kill_whole
from millstream.server.host.server_files import Asks
from millstream.server.once.question import Question
from millstream.server.once.transport import packed
from millstream.server.results.outcome import NamedResult, Outcome

LOOK_MS = 20  # between two looks at whether anybody still waits
END_S = 2.0
ENVELOPE_BYTES = 64 * 1024  # of a frame, beside the answer's rows
_PIECE = 2**20
_COMMAND = (sys.executable, "-I", "-m", "millstream.server.once.child")


@dataclass(frozen=True, slots=True)
class FetchBounds:
    """What one FETCH may use, by the settings' names, and the longest answer."""

    memory_bytes_max: int
    cpu_s_max: float
    answer_bytes_max: int


class Exhausted(ServerError):
    """A FETCH that wanted more than it may."""

    code = "overloaded"


class Failed(ServerError):
    """The process ended, and it is not known why."""


class _Gone(Exception):
    """The process has ended."""


class Worker:
    """See the module's text. `command` is what is started, with the number of the lifeline's descriptor behind it."""

    def __init__(self, bounds: FetchBounds, confinement: Confinement, command: Iterable[str] = _COMMAND) -> None:
        self._bounds = bounds
        self._confinement = confinement
        self._command = tuple(command)
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline = -1
        self.starts = 0

    @property
    def is_warm(self) -> bool:
        """Whether its process runs."""
        return self._process is not None and self._process.poll() is None

    def ask(self, question: Question, is_given_up: Asks) -> Outcome:
        """Return the answer. GivenUp when nobody waits any more, Exhausted when it wanted too much, the engine's errors as they are."""
        try:
            told, rows = self._asked(question, is_given_up)
        except _Gone:
            raise self._ended() from None
        except BaseException:  # the process waits in the middle of a question
            self.close()
            raise
        return self._outcome(question, told, rows)

    def kill(self) -> None:
        """Kill the process and all that it started, from another thread than the one that asks: that will find it gone."""
        process = self._process
        if process is not None:
            kill_whole(process)

    def close(self) -> None:
        """Kill the process and all that it started, and let go of it."""
        process, self._process = self._process, None
        if process is None:
            return
        kill_whole(process)
        process.wait(END_S)
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()
        os.close(self._lifeline)

    # -- a question -----------------------------------------------------------------------------------------------------------

    def _asked(self, question: Question, is_given_up: Asks) -> tuple[dict[str, Any], bytes]:
        if not self.is_warm:
            self.close()
            self._start()
        called: dict[str, FunctionProcess] = {}
        asked = packed(question.without_rows(), called)
        described = {name: (p.definition, p.source, self._confinement) for name, p in called.items()}
        bounds = {name: getattr(self._bounds, name) for name in ("memory_bytes_max", "cpu_s_max", "answer_bytes_max")}
        for payload in (json.dumps(bounds).encode(), pickle.dumps(described), asked):
            self._write(payload, is_given_up)
        for named in question.blocks():
            self._write(packed(named, called), is_given_up)
        self._write(b"", is_given_up)
        return json.loads(self._read(is_given_up)), self._read(is_given_up)

    def _outcome(self, question: Question, told: dict[str, Any], rows: bytes) -> Outcome:
        if "error" in told:
            raise _error(told["error"])
        if "too_long" in told:
            raise Unsupported(f"the answer has {told['too_long']} bytes, more than one frame holds", hint="add a LIMIT, or aggregate")
        if "exhausted" in told:
            self.close()
            raise self._too_much_memory()
        schema = question.physical.schema
        if question.physical.change_kind is not None:
            schema = Schema(schema.fields[:-1])
        with pa.ipc.open_stream(rows) as reader:
            batches = list(reader)
        answer = NamedResult("answer", Schema(tuple(Field(f.name, f.type, f.nullable) for f in schema.fields)), batches)
        return Outcome(notices=tuple(told["notices"]), info=told["info"], answer=answer)

    def _ended(self) -> ServerError:
        """Return why the process has ended: it wanted more than it may, as its parent knows by the signal."""
        process = self._process
        assert process is not None
        process.wait(END_S)
        code = process.returncode
        self.close()
        if code == -signal.SIGXCPU:
            limit = f"{self._bounds.cpu_s_max:g} s of processor time (fetch_cpu_s_max)"
            return Exhausted(f"this FETCH needs more than {limit}", hint="ask for less, or raise it")
        if code in (-signal.SIGABRT, -signal.SIGKILL):  # what libraries do, and the system, when there is no memory
            return self._too_much_memory()
        return Failed(f"the process of this FETCH ended with exit code {code}", hint="see the server's log")

    def _too_much_memory(self) -> ServerError:
        limit = self._bounds.memory_bytes_max
        return Exhausted(f"this FETCH needs more than {limit} bytes of memory (fetch_memory_bytes_max)", hint="ask for less, or raise it")

    # -- the process ----------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        ours, theirs = os.pipe()
        environment = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        try:
            self._process = subprocess.Popen(
                [*self._command, str(ours)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[ours],
                start_new_session=True,
                env=environment,
                cwd=os.path.sep,
            )
        except OSError as error:
            os.close(theirs)
            raise Exhausted(f"no process can be started for this FETCH: {error.strerror}", hint="try again later") from error
        finally:
            os.close(ours)
        self._lifeline = theirs
        self.starts += 1
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)

    def _write(self, payload: Any, is_given_up: Asks) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        descriptor = self._process.stdin.fileno()
        for part in (HEADER.pack(len(payload)), payload):
            view = memoryview(part)
            while len(view):
                _wait(descriptor, select.POLLOUT, is_given_up)
                try:
                    view = view[os.write(descriptor, view[:_PIECE]) :]
                except BlockingIOError:
                    continue
                except BrokenPipeError as error:
                    raise _Gone from error

    def _read(self, is_given_up: Asks) -> bytes:
        (length,) = HEADER.unpack(self._read_bytes(HEADER.size, is_given_up))
        if length > self._bounds.answer_bytes_max + ENVELOPE_BYTES:
            raise _Gone
        return self._read_bytes(length, is_given_up)

    def _read_bytes(self, size: int, is_given_up: Asks) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        parts: list[bytes] = []
        while size:
            _wait(descriptor, select.POLLIN, is_given_up)
            try:
                part = os.read(descriptor, min(size, _PIECE))
            except BlockingIOError:
                continue
            if not part:
                raise _Gone
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def _wait(descriptor: int, event: int, is_given_up: Callable[[], bool]) -> None:
    poll = select.poll()
    poll.register(descriptor, event)
    while True:
        if is_given_up():
            raise GivenUp("the request was given up while it ran")
        if poll.poll(LOOK_MS):
            return


def _error(told: dict[str, Any]) -> EngineError:
    """Return an error of the engine's as the process told it."""
    kinds = {kind.code: kind for kind in (InvalidDefinition, Unsupported)}
    return kinds.get(told["code"], EngineError)(told["message"], hint=told["hint"])
