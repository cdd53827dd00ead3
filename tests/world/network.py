"""An event loop in virtual time, and the network between such loops: bytes are split, delayed, lost, and connections reset, by seed."""

from __future__ import annotations

import asyncio
import errno
import socket
from asyncio import events
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.world.hub import NS_PER_S, Hub, Pool, Process

WINDOW_BYTES = 64 * 1024  # under way in one direction
READ_BYTES = 64 * 1024


class _Waiter:
    """Stands where a loop has its selector: waits for time, or to be woken."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        loop = self._loop
        if timeout is None or timeout > 0:
            if not loop.is_woken:
                loop.waits = True
                try:
                    loop.hub.park(None if timeout is None else int(timeout * NS_PER_S) + 1)
                finally:
                    loop.waits = False
        else:
            loop.hub.make_ready(loop.strand)
            loop.hub.park()
        loop.is_woken = False
        return []


class SimLoop(asyncio.BaseEventLoop):
    """The event loop of one process. It runs in the strand that calls `run_until_complete`."""

    def __init__(self, hub: Hub, process: Process, network: Network) -> None:
        super().__init__()
        self.hub = hub
        self.process = process
        self.network = network
        self.is_woken = False
        self.waits = False
        self.strand: Any = None
        self._selector = _Waiter(self)
        self._clock_resolution = 1e-9
        self._default_executor = Pool(hub, 8, "aside")  # type: ignore[assignment]
        self.refused: list[dict[str, Any]] = []
        self.set_exception_handler(lambda loop, context: self.refused.append(context))

    def __del__(self, _warn: Any = None) -> None:
        """A loop whose process was killed was not closed."""

    def time(self) -> float:
        return self.hub.read_clock() / NS_PER_S

    def run_forever(self) -> None:
        self.strand = self.hub.current
        self.strand.loop = self
        self._thread_id = self.strand.ident
        events._set_running_loop(self)
        try:
            while True:
                self._run_once()  # type: ignore[attr-defined]
                if self._stopping:
                    break
        finally:
            self._stopping = False
            self._thread_id = None
            self.strand.loop = None
            events._set_running_loop(None)

    def _process_events(self, found: list[Any]) -> None:
        """There are none: what comes from the network is called."""

    def _write_to_self(self) -> None:
        self.is_woken = True
        if self.waits:
            self.hub.make_ready(self.strand)

    def from_network(self, call: Callable[..., Any], *args: Any) -> None:
        """Have something called in the loop; from the hub."""
        if self.process.alive and not self.is_closed():
            self.call_soon_threadsafe(call, *args)

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **how: Any) -> Any:  # type: ignore[override]
        server = SimServer(self, protocol_factory, str(host), int(port or 7415))
        if how.get("start_serving", True):
            await server.start_serving()
        return server

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **how: Any) -> Any:  # type: ignore[override]
        return await self.network.connect(self, protocol_factory, int(port))


class _Socket:
    def __init__(self, host: str, port: int) -> None:
        self._name = host, port

    def getsockname(self) -> tuple[str, int]:
        return self._name


class _PeerSocket:
    """What a client may set of its socket: whether the system probes a silent peer, and for how long."""

    def __init__(self) -> None:
        self._set: dict[int, int] = {}
        self.keeps_alive = False

    def setsockopt(self, level: int, option: int, value: int) -> None:
        if level == socket.SOL_SOCKET and option == socket.SO_KEEPALIVE:
            self.keeps_alive = bool(value)
        elif level == socket.IPPROTO_TCP:
            self._set[option] = value

    @property
    def probes_s(self) -> int:
        """Seconds of silence after which the connection is given up; 0 for never."""
        if not self.keeps_alive:
            return 0
        idle, every, count = (
            self._set.get(o, d) for o, d in ((socket.TCP_KEEPIDLE, 7200), (socket.TCP_KEEPINTVL, 75), (socket.TCP_KEEPCNT, 9))
        )
        return idle + every * count


class SimServer:
    """Who listens."""

    def __init__(self, loop: SimLoop, factory: Callable[[], Any], host: str, port: int) -> None:
        self.loop = loop
        self.factory = factory
        self.port = port
        self.serving = False
        self.sockets = [_Socket(host, port)]

    async def start_serving(self) -> None:
        self.serving = True
        self.loop.network.servers[self.port] = self

    def close(self) -> None:
        self.serving = False
        if self.loop.network.servers.get(self.port) is self:
            del self.loop.network.servers[self.port]

    def is_serving(self) -> bool:
        return self.serving


class Network:
    """All connections. `latency_ns` bounds what a piece takes; `split` is the share of writes that come in pieces."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.servers: dict[int, SimServer] = {}
        self.links: list[tuple[SimTransport, SimTransport]] = []
        self.latency_ns = 20_000, 500_000
        self.split = 0.2
        self.spikes = 0.01  # pieces that take a hundred times as long
        self._made = 0

    def delay(self) -> int:
        """Draw how long a piece takes."""
        took = self.hub.draw.randint(*self.latency_ns)
        return took * 100 if self.hub.draw.random() < self.spikes else took

    async def connect(self, loop: SimLoop, factory: Callable[[], Any], port: int) -> tuple[Any, Any]:
        """Open a connection."""
        await asyncio.sleep(self.delay() / NS_PER_S)
        server = self.servers.get(port)
        if server is None or not server.serving or not server.loop.process.alive:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        self._made += 1
        near, far = SimTransport(self, loop, f"c{self._made}"), SimTransport(self, server.loop, f"s{self._made}")
        near.peer, far.peer = far, near
        self.links.append((near, far))
        protocol = factory()
        near.set_protocol(protocol)
        protocol.connection_made(near)
        self.hub.after(self.delay(), lambda: server.loop.from_network(self._accept, server, far))
        return near, protocol

    def _accept(self, server: SimServer, far: SimTransport) -> None:
        if far.closed:
            return
        protocol = server.factory()
        far.set_protocol(protocol)
        protocol.connection_made(far)
        far.read_soon()

    def forget(self, transport: SimTransport) -> None:
        """A connection whose both ends are closed is no more."""
        self.links = [link for link in self.links if not (link[0].closed and link[1].closed)]

    def alive(self) -> list[tuple[SimTransport, SimTransport]]:
        """Return the connections that are open at both ends."""
        return [link for link in self.links if not link[0].closed and not link[1].closed]

    def reset(self, link: tuple[SimTransport, SimTransport]) -> None:
        """Cut a connection: what is under way is lost, and both ends hear of it."""
        for end in link:
            end.cut(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    def stall(self, link: tuple[SimTransport, SimTransport], until_ns: int) -> None:
        """Hold all up that is under way on a connection."""
        for end in link:
            end.stalled_ns = max(end.stalled_ns, until_ns)

    def lose(self, link: tuple[SimTransport, SimTransport]) -> None:
        """Let nothing come through any more, without a word to either end. An end that has its system probe the other learns of it."""
        for end in link:
            end.is_lost = True
            if end.socket.probes_s:
                self.hub.after(int(end.socket.probes_s * NS_PER_S), partial(end.cut, TimeoutError(errno.ETIMEDOUT, "Connection timed out")))

    def heal(self) -> None:
        """Let every end of a connection on which nothing comes through know it now, not in a minute."""
        for link in list(self.links):
            if link[0].is_lost or link[1].is_lost:
                self.reset(link)

    def fall_silent(self) -> None:
        """The machine with the server is gone: nothing comes from it, not even ends of connections."""
        for link in self.links:
            self.lose(link)

    def ended(self, process: Process) -> None:
        """A process has ended: the system closes its connections."""
        for port, server in list(self.servers.items()):
            if server.loop.process is process:
                del self.servers[port]
        for link in list(self.links):
            for end in link:
                if end.loop.process is process:
                    end.closed = True
                    other = end.peer
                    if not end.is_lost:
                        self.hub.after(self.delay(), partial(other.cut, ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")))
        self.links = [link for link in self.links if not (link[0].closed and link[1].closed)]


_EOF = object()


class SimTransport(asyncio.Transport):
    """One end of a connection."""

    peer: SimTransport

    def __init__(self, network: Network, loop: SimLoop, name: str) -> None:
        super().__init__()
        self.network = network
        self.loop = loop
        self.name = name
        self.closed = False
        self.stalled_ns = 0
        self.is_lost = False
        self.socket = _PeerSocket()
        self.is_client = name.startswith("c")
        self._closing = False
        self._protocol: Any = None
        self._out = bytearray()
        self._out_ended = False
        self._under_way = 0
        self._last_ns = 0
        self._in: deque[Any] = deque()
        self._reading = True
        self._read_due = False
        self._high, self._low = 64 * 1024, 16 * 1024
        self._writing_paused = False

    # --- what protocols call ---

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "socket" and self.is_client:
            return self.socket
        return ("127.0.0.1", 40_000) if name in ("peername", "sockname") else default

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def get_protocol(self) -> Any:
        return self._protocol

    def is_closing(self) -> bool:
        return self._closing or self.closed

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self.read_soon()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 64 * 1024 if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return len(self._out)

    def write(self, data: Any) -> None:
        if self.is_closing():
            return
        self._out += data
        self._send()
        if len(self._out) > self._high and not self._writing_paused:
            self._writing_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        if not self.is_closing():
            self._closing = True
            self._reading = False
            self._send()

    def abort(self) -> None:
        if self.closed:
            return
        self._end(None)
        if not self.is_lost:
            peer = self.peer
            error = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
            self.network.hub.after(self.network.delay(), lambda: peer.cut(error))

    # --- what happens ---

    def _send(self) -> None:
        hub, network = self.network.hub, self.network
        while self._out and self._under_way < WINDOW_BYTES:
            size = min(len(self._out), WINDOW_BYTES - self._under_way)
            if size > 1 and hub.draw.random() < network.split:
                size = hub.draw.randint(1, size)
            piece = bytes(self._out[:size])
            del self._out[:size]
            self._under_way += size
            self._deliver(piece)
        if self._closing and not self._out and not self._out_ended:
            self._out_ended = True
            self._deliver(_EOF)
            self._end(None)

    def _deliver(self, piece: Any) -> None:
        if self.is_lost:
            return
        hub = self.network.hub
        self._last_ns = max(self._last_ns, hub.now_ns + self.network.delay(), self.stalled_ns)
        peer = self.peer
        hub.at(self._last_ns, lambda: peer._arrived(piece))

    def _arrived(self, piece: Any) -> None:
        if self.closed or self.is_lost:
            return
        if self.stalled_ns > self.network.hub.now_ns:
            self.network.hub.at(self.stalled_ns, lambda: self._arrived(piece))
            return
        self._in.append(piece)
        self.read_soon()

    def read_soon(self) -> None:
        """Read in the loop what has come."""
        if self._in and self._reading and self._protocol is not None and not self._read_due and not self.closed:
            self._read_due = True
            self.loop.from_network(self._read)

    def _read(self) -> None:
        self._read_due = False
        if self.closed or not self._reading or not self._in:
            return
        piece = self._in.popleft()
        if piece is _EOF:
            self._protocol.eof_received()
            self._closing = True
            self._end(None)
            return
        buffer = self._protocol.get_buffer(READ_BYTES)
        size = min(len(buffer), len(piece))
        buffer[:size] = piece[:size]
        if size < len(piece):
            self._in.appendleft(piece[size:])
        try:
            self._protocol.buffer_updated(size)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self.loop.call_exception_handler({"message": "Fatal error: protocol.buffer_updated() call failed.", "exception": error})
            self.abort()
            return
        peer = self.peer
        self.network.hub.after(self.network.delay(), lambda: peer._taken(size))
        self.read_soon()

    def _taken(self, size: int) -> None:
        """The peer has read: there is room for more."""
        self._under_way -= size
        if not self.closed or self._out:
            self.loop.from_network(self._go_on)

    def _go_on(self) -> None:
        if self.closed:
            return
        self._send()
        if self._writing_paused and len(self._out) <= self._low and not self.closed:
            self._writing_paused = False
            self._protocol.resume_writing()

    def cut(self, error: Exception) -> None:
        """The connection is gone, from outside."""
        if not self.closed and self.loop.process.alive:
            self.loop.from_network(self._cut, error)

    def _cut(self, error: Exception) -> None:
        if not self.closed:
            self._end(error)

    def _end(self, error: Exception | None) -> None:
        self.closed = True
        self._closing = True
        self._in.clear()
        self._out.clear()
        self.network.forget(self)
        if self._protocol is not None:
            self.loop.call_soon(self._protocol.connection_lost, error)
