"""The latency of honest work at the server beside peers of its gateway who mean harm, one kind of attack after the other.

As `bench hostile`, but the attack goes to `millstream gateway`, a process of its own: what it costs the server is processor time that the
machine lacks, and what the gateway asks of it in its peers' name. The first line has the gateway and nobody at it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from millstream.client.benchmarks.daemon import COMMAND, LEAVE_S, Daemon, daemon
from millstream.client.benchmarks.hostile import TOKENS, measured, options
from millstream.client.benchmarks.kit import Figures, Kit
from millstream.client.blocking import _new_loop
from millstream.client.errors import MillstreamError

PEERS = 60
_COMMAND = "from millstream.client.benchmarks.hostile_gateway import main; main()"
_BAD_ROWS = b'{"k": "no number"}\n' * 20_000


def benchmark(kit: Kit) -> Iterator[Figures]:
    """2,000 tuples/s beside peers of the gateway who mean harm, one kind of attack after the other: latency of the others."""
    lines = []
    lost = []
    for kind in (None, *ATTACKS):
        with daemon("--no-rewrite", *options()) as server, _gateway(server) as ports, asyncio.Runner(loop_factory=_new_loop) as runner:
            name = f"hostile-gateway-{kind or 'none'}"
            line, missing = runner.run(measured(kit, server, name, partial(_attacking, kind, ports)))
        lines.append(line)
        if missing:
            lost.append(f"{kind}: {missing}")
        yield line
    yield {"name": "hostile-gateway-worst", "p99_ms": max(line["p99_ms"] for line in lines[1:])}
    kit.require(not lost, f"tuples without their result, by kind of attack: {', '.join(lost)}")


@contextmanager
def _gateway(server: Daemon) -> Iterator[tuple[int, int]]:
    """Run a gateway without tokens of its own, and give its ports for PostgreSQL and HTTP."""
    arguments = ["gateway", "--server", server.address, "--pg-port", "0", "--http-port", "0", "--no-catalogue"]
    process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        ports = [_port_in(process.stderr.readline()) for _ in range(2)]
        yield ports[0], ports[1]
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=LEAVE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stderr.close()


def _port_in(line: str) -> int:
    place = line.partition("127.0.0.1:")[2].partition(",")[0].strip()
    if not place.isdigit():
        raise MillstreamError("benchmark", f"the gateway did not start: {line.strip()}")
    return int(place)


@contextmanager
def _attacking(kind: str | None, ports: tuple[int, int], seconds: float) -> Iterator[None]:
    if kind is None:
        yield
        return
    process = subprocess.Popen([sys.executable, "-c", _COMMAND, kind, *map(str, ports), f"{seconds:g}"], stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


# --- in the attacker's process ---


def _request(method: str, path: str, role: str, body: bytes = b"", kind: str = "text/plain") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKENS[role]}\r\nContent-Type: {kind}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def _again_and_again(port: int, request: bytes) -> None:
    """Ask, take the answer, and ask again."""
    while True:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            while True:
                writer.write(request)
                head = await reader.readuntil(b"\r\n\r\n")
                length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
                await reader.readexactly(length)
        except (ConnectionError, asyncio.IncompleteReadError):
            await asyncio.sleep(0.01)
        finally:
            writer.close()


async def _held(port: int, beginning: bytes) -> None:
    """Begin something, and neither end it nor take what comes."""
    while True:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        try:
            writer.write(beginning)
            await writer.drain()
            await reader.readexactly(1)
            await asyncio.sleep(3_600)
        except (ConnectionError, asyncio.IncompleteReadError):
            await asyncio.sleep(0.01)
        finally:
            writer.close()


Attack = Callable[[int, int], Coroutine[Any, Any, None]]
ATTACKS: dict[str, Attack] = {
    "bad-rows": lambda pg, http: _again_and_again(
        http, _request("POST", "/v1/streams/held/rows", "writer", _BAD_ROWS, "application/x-ndjson")
    ),
    "bad-tokens": lambda pg, http: _again_and_again(
        http, _request("GET", "/v1/streams", "reader").replace(TOKENS["reader"].encode(), base64.b64encode(b"guess"))
    ),
    "statements": lambda pg, http: _again_and_again(
        http, _request("POST", "/v1/sql", "reader", json.dumps({"sql": "SELECT v FROM held"}).encode(), "application/json")
    ),
    "readers": lambda pg, http: _held(http, _request("GET", "/v1/queries/hostile/results?from_start=true", "reader")),
    "heads": lambda pg, http: _held(http, b"GET /v1/streams HTTP/1.1\r\nHost: x\r\n"),
    "pg-greetings": lambda pg, http: _held(pg, b"\x00\x00\x27"),
}


def main() -> None:
    """Attack from `PEERS` connections: KIND PG_PORT HTTP_PORT SECONDS."""
    kind, pg_port, http_port, seconds = sys.argv[1:]

    async def whole() -> None:
        async with asyncio.timeout(float(seconds)):
            await asyncio.gather(*(ATTACKS[kind](int(pg_port), int(http_port)) for _ in range(PEERS)))

    try:
        asyncio.run(whole())
    except TimeoutError:
        return
