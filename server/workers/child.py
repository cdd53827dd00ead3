"""The process of a worker: requests come, the desk (`desk.py`) does what they ask, answers go.

Its arguments are JSON: the lifeline, the socket on which segments come and go, the channels' descriptors, bounds. It ends with the server.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Callable, Sequence

from millstream.server.functions.child import die_with_the_server
from millstream.server.workers.channel import Channel, Message
from millstream.server.workers.desk import SERVER, Desk
from millstream.server.workers.segments import MappedSegments, SharedSegments, ToldSegments
from millstream.server.workers.wire import load_kernels

_DATA = "VmData:"
ANSWERS_BYTES_MAX = 512 * 1024 * 1024  # in segments; what the server does not let go of beyond that is copied
PLACED_BYTES_MIN = 16 * 1024  # a smaller answer is copied sooner than its segment is told of and let go again


def serve(desk: Desk, channels: Sequence[Channel], poll: Callable[[], Sequence[tuple[int, int]]], way: Answers) -> None:
    """Answer requests in the order in which they were written: a later one may name trains that an earlier one brought."""
    by_event = {channel.asked: channel for channel in channels}
    while True:
        for channel in sorted([by_event[descriptor] for descriptor, _ in poll()], key=lambda channel: channel.request.number):
            os.eventfd_read(channel.asked)

            def began(call: int, channel: Channel = channel) -> None:
                channel.answer.at = call

            way.send(channel, desk.answer(*channel.request.read(), began))


class Answers:
    """Puts answers where the server reads them: what they bring lies in segments of this process, unless it is small."""

    def __init__(self, own: SharedSegments, ways: socket.socket) -> None:
        self._own = own
        self._told = ToldSegments(ways)

    def send(self, channel: Channel, message: Message) -> None:
        """Put an answer into its channel and tell so."""
        _, bodies, size = message
        place = self._own.written(bodies, size, SERVER) if size >= PLACED_BYTES_MIN else None
        if place is not None:
            self._told.tell([place[0]], self._own)
        channel.answer.write(message, place=place)
        channel.answer.at = 0
        os.eventfd_write(channel.answered, 1)


def _bound(memory_bytes_max: int) -> None:
    """Let this process use so much memory beyond what it has; what is shared with the server does not count."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open("/proc/self/status", encoding="ascii") as file:
        held = next(int(line.split()[1]) * 1024 for line in file if line.startswith(_DATA))
    resource.setrlimit(resource.RLIMIT_DATA, (held + memory_bytes_max, resource.RLIM_INFINITY))


def main() -> None:
    """Serve until the server ends. The only argument is JSON: lifeline, ways, channels, memory_bytes_max, step_ns_max."""
    told = json.loads(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's; the server ends this process
    die_with_the_server(told["lifeline"])
    os.dup2(2, 1)
    from millstream.server.lean import keep_freed, keep_pandas_out

    keep_freed()
    keep_pandas_out()
    from millstream.engine.operators import build  # noqa: F401  before the memory is bounded

    load_kernels()
    gc.collect()
    gc.freeze()
    _bound(told["memory_bytes_max"])
    channels = [Channel(descriptors) for descriptors in told["channels"]]
    poller = select.epoll()
    for channel in channels:
        poller.register(channel.asked, select.EPOLLIN)
    ways = socket.socket(fileno=told["ways"])
    own = SharedSegments(ANSWERS_BYTES_MAX)
    serve(Desk(MappedSegments(ways), own, told["step_ns_max"]), channels, poller.poll, Answers(own, ways))


if __name__ == "__main__":
    main()
