"""Commands of Millstream in processes of their own, for a page: bounded in time, memory and what they print, and ended with all they began.

The console computes nothing itself. What costs more than a moment, a simulation, an experiment, a try of a query, is a command that a user
could give as well.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from millstream.client.errors import MillstreamError

OUTPUT_BYTES_MAX = 8_388_608
LINE_BYTES_MAX = 65_536
LINES_KEPT = 20
CPU_TIMES = 2  # as much processor time as time at most: a command that outlives a console that was killed ends as well
_COMMAND = (
    "from millstream.client.commands.common import bound_process; bound_process({}, {}); from millstream.client.cli import main; main()"
)
_SECRET = "TOKEN"  # in the name of a variable of ours that no such command needs


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a command may take; `hint` says how a user makes it take less time."""

    seconds_max: float
    hint: str
    memory_bytes_max: int = 2**30


class Alone:
    """Lets one through at a time, and refuses the others; `what` names who is through, as in "another simulation"."""

    def __init__(self, what: str) -> None:
        self._what = what
        self.busy = False

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Be through as long as the block runs. MillstreamError (`overloaded`) while another is."""
        if self.busy:
            raise MillstreamError("overloaded", f"{self._what} is under way", "try again when it has ended")
        self.busy = True
        try:
            yield
        finally:
            self.busy = False


async def printed(what: str, words: tuple[str, ...], bounds: Bounds, hear: Callable[[str], None] = lambda line: None) -> str:
    """Return what a command printed on standard output. `hear` is given each line that it says on standard error.

    MillstreamError when it fails, takes too long or prints too much; `what` names it, as in "the simulation". However this ends, the
    command has ended, and all that it began.
    """
    nothing, pipe = asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE
    environment = {name: value for name, value in os.environ.items() if not (name.startswith("MILLSTREAM_") and name.endswith(_SECRET))}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _COMMAND.format(bounds.memory_bytes_max, CPU_TIMES * bounds.seconds_max), *words,
        stdin=nothing, stdout=pipe, stderr=pipe, env=environment, start_new_session=True, limit=LINE_BYTES_MAX,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    said: list[str] = []
    hearing = asyncio.create_task(_hear(process.stderr, said, hear))
    try:
        async with asyncio.timeout(bounds.seconds_max):
            out = await _whole(process.stdout, what, bounds.hint)
            await hearing
            await process.wait()
    except TimeoutError:
        raise MillstreamError("timeout", f"{what} took longer than {bounds.seconds_max:g} s and was ended", bounds.hint) from None
    finally:
        hearing.cancel()
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode:
        why = said[-1].removeprefix("error: ") if said else f"it ended with {process.returncode}"
        raise MillstreamError("invalid", f"{what} failed: {why}")
    return out.decode(errors="replace")


async def _whole(pipe: asyncio.StreamReader, what: str, hint: str) -> bytes:
    out = bytearray()
    while piece := await pipe.read(LINE_BYTES_MAX):
        out += piece
        if len(out) > OUTPUT_BYTES_MAX:
            raise MillstreamError("limit", f"{what} printed more than {OUTPUT_BYTES_MAX} bytes and was ended", hint)
    return bytes(out)


async def _hear(pipe: asyncio.StreamReader, said: list[str], hear: Callable[[str], None]) -> None:
    """Hear line by line; of a line that is too long, the end is enough."""
    begun = b""
    while True:
        piece = await pipe.read(LINE_BYTES_MAX)
        *lines, begun = (begun + (piece or b"\n")).split(b"\n")
        begun = begun[-LINE_BYTES_MAX:]
        for line in lines:
            if text := line.decode(errors="replace").strip():
                said.append(text)
                del said[:-LINES_KEPT]
                hear(text)
        if not piece:
            return
