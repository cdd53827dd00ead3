"""A process that answers FETCH, as the server's side sees it: started when the first question comes, asked again while it is warm, killed
when nobody waits for its answer or it wants more than it may.

`ask` waits for the process and is called on a thread of its own.
"""

from __future__ import annotations

import json
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
from millstream.server.functions.frames import PeerGone, Wait, read_frame, write_frame
from millstream.server.functions.process import Confinement, FunctionProcess
from millstream.server.functions.processes import END_S, end, kill_whole, spawn
from millstream.server.host.server_files import Asks
from millstream.server.once.question import Question
from millstream.server.once.transport import packed
from millstream.server.results.outcome import NamedResult, Outcome

LOOK_MS = 20  # between two looks at whether anybody still waits
ENVELOPE_BYTES = 64 * 1024  # of a frame, beside the answer's rows
STORE_VARIABLES = ("AWS_", "GOOGLE_", "AZURE_", "HADOOP_")  # by which it reads archives, as the server does
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

    def ask(self, question: Question, is_given_up: Asks, progress: Callable[[float], None] = lambda _: None) -> Outcome:
        """Return the answer; `progress` is told what part of a history has been read, while it is.

        GivenUp when nobody waits any more, Exhausted when it wanted too much, the engine's errors as they are.
        """
        try:
            told, rows = self._asked(question, is_given_up, progress)
        except PeerGone:
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
        process = self._process
        if process is not None:
            end(process, self._lifeline)
            self._process = None  # not before: a server that ends meanwhile must still find it, stopped as it may be, and `kill` it

    # -- a question -----------------------------------------------------------------------------------------------------------

    def _asked(self, question: Question, is_given_up: Asks, progress: Callable[[float], None]) -> tuple[dict[str, Any], bytes]:
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
        while "progress" in (told := json.loads(self._read(is_given_up))):
            progress(float(told["progress"]))
        return told, self._read(is_given_up)

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
        try:
            self._process, self._lifeline = spawn(lambda lifeline: (*self._command, str(lifeline)), STORE_VARIABLES)
        except OSError as error:
            raise Exhausted(f"no process can be started for this FETCH: {error.strerror}", hint="try again later") from error
        self.starts += 1

    def _write(self, payload: Any, is_given_up: Asks) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        write_frame(self._process.stdin.fileno(), payload, _while_asked(is_given_up))

    def _read(self, is_given_up: Asks) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        return read_frame(self._process.stdout.fileno(), _while_asked(is_given_up), self._bounds.answer_bytes_max + ENVELOPE_BYTES)


def _while_asked(is_given_up: Asks) -> Wait:
    """Return what waits as long as somebody waits for the answer, and then raises GivenUp."""

    def wait(descriptor: int, event: int) -> None:
        poll = select.poll()
        poll.register(descriptor, event)
        while True:
            if is_given_up():
                raise GivenUp("the request was cancelled while it ran")
            if poll.poll(LOOK_MS):
                return

    return wait


def _error(told: dict[str, Any]) -> EngineError:
    """Return an error of the engine's as the process told it."""
    kinds = {kind.code: kind for kind in (InvalidDefinition, Unsupported)}
    return kinds.get(told["code"], EngineError)(told["message"], hint=told["hint"])
