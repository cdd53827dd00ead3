"""The latency of honest work beside a reader who means harm, one kind of attack after the other (`attacks.py`), and the memory it costs.

Each kind has a server of its own, and 2,000 tuples a second go through six operators meanwhile as in `bench latency`. The attack comes
from a process of its own, which takes processor time from all: the first line says what the same costs without any. Every tuple must have
its result, with the right values, whatever the attack did. `bench hostile-gateway` is the same with an attack on `millstream gateway`, a
process of its own: what it costs the server is time of the processor, and what the gateway asks of it in its peers' name.
"""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

from millstream.client.benchmarks.attacks import ATTACKS
from millstream.client.benchmarks.chain_workload import NAME, PLAN, STREAM
from millstream.client.benchmarks.daemon import Daemon, daemon, started
from millstream.client.benchmarks.kit import Figures, Kit
from millstream.client.benchmarks.latency import RATE_PER_S, WARM_UP, percentile, read_prices
from millstream.client.benchmarks.latency_sender import Sender, no_collector, price
from millstream.client.blocking import _new_loop
from millstream.client.connection import connect_async
from millstream.client.errors import MillstreamError

TOKENS = {"admin": "all", "writer": "rows", "reader": "nothing"}
TABLE = "CREATE TABLE held (k BIGINT, v TEXT, PRIMARY KEY (k))"
QUERY = "hostile"
TABLE_ROWS = 10_000
TEXT = "v" * 500
ANSWER_S = 30.0
QUICK_STEP = 6  # one kind of so many when it is to be quick; `tests/integration/test_worst_readers.py` has them all
_COMMAND = "from millstream.client.benchmarks.attacks import main; main()"
_GATEWAY_COMMAND = "from millstream.client.benchmarks.hostile import attack_gateway; attack_gateway()"


def benchmark(kit: Kit) -> Iterator[Figures]:
    """2,000 tuples/s beside a reader who means harm, one kind of attack after the other: latency of the others, memory of the server."""
    return _beside_each(kit, "hostile", _COMMAND, ATTACKS, _reader_of)


def gateway_benchmark(kit: Kit) -> Iterator[Figures]:
    """2,000 tuples/s beside peers of the gateway who mean harm, one kind of attack after the other: latency of the others."""
    return _beside_each(kit, "hostile-gateway", _GATEWAY_COMMAND, GATEWAY_ATTACKS, _gateway)


def _beside_each(
    kit: Kit, name: str, command: str, kinds: Iterable[str], target: Callable[[Daemon], AbstractContextManager[Sequence[str]]]
) -> Iterator[Figures]:
    """Measure honest work alone and beside each kind of attack. `target` gives the words that tell an attacker where to go."""
    lines: list[Figures] = []
    lost: list[str] = []
    for kind in (None, *list(kinds)[:: kit.size(1, QUICK_STEP)]):
        with daemon("--no-rewrite", *options()) as server, target(server) as words, asyncio.Runner(loop_factory=_new_loop) as runner:
            attack = partial(attacking, command, kind, words)
            line, missing = runner.run(measured(kit, server, f"{name}-{kind or 'none'}", attack))
        lines.append(line)
        if missing:
            lost.append(f"{kind}: {missing}")
        yield line
    yield {
        "name": f"{name}-worst",
        "p99_ms": max(line["p99_ms"] for line in lines[1:]),
        "peak_rss_mb": max(line["peak_rss_mb"] for line in lines[1:]),
    }
    kit.require(not lost, f"tuples without their result, by kind of attack: {', '.join(lost)}")


@contextmanager
def _reader_of(server: Daemon) -> Iterator[Sequence[str]]:
    yield str(server.port), TOKENS["reader"], NAME, "held", QUERY


@contextmanager
def _gateway(server: Daemon) -> Iterator[Sequence[str]]:
    """Run a gateway without tokens of its own, and give its ports for PostgreSQL and HTTP."""
    arguments = ["gateway", "--server", server.address, "--pg-port", "0", "--http-port", "0", "--no-catalogue"]
    with started(arguments, lambda process: [_port_in(process) for _ in range(2)]) as ports:
        yield ports


def _port_in(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    line = process.stderr.readline()
    place = line.partition("127.0.0.1:")[2].partition(",")[0].strip()
    if not place.isdigit():
        raise MillstreamError("benchmark", f"the gateway did not start: {line.strip()}")
    return place


def options() -> list[str]:
    """Return the flags of a server with a token for each role."""
    return [word for role, token in TOKENS.items() for word in (f"--{role}-token", token)]


async def prepare(server: Daemon, query: str) -> None:
    """Make what is attacked: the stream and query of the latency benchmark, and a table."""
    async with await connect_async(server.address, TOKENS["admin"]) as admin:
        await admin.execute(STREAM)
        await admin.execute(TABLE)
        await admin.submit(PLAN, name=query)
        await admin.publish("held", [{"k": k, "v": TEXT} for k in range(TABLE_ROWS)])


@contextmanager
def attacking(command: str, kind: str | None, words: Sequence[str], seconds: float) -> Iterator[None]:
    """Attack from a process of its own while the block runs."""
    if kind is None:
        yield
        return
    process = subprocess.Popen([sys.executable, "-c", command, kind, f"{seconds:g}", *words], stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


async def measured(kit: Kit, server: Daemon, name: str, attack: Callable[[float], AbstractContextManager[None]]) -> tuple[Figures, int]:
    """Return the figures of honest work beside an attack of so many seconds, and how many tuples had no result."""
    tuples = WARM_UP + kit.size(3 * RATE_PER_S, RATE_PER_S // 4)
    arrived_ns, prices = [0] * tuples, [0.0] * tuples
    await prepare(server, QUERY)
    async with await connect_async(server.address, TOKENS["admin"], client_id="honest") as client, await client.subscribe(QUERY) as results:
        seconds = tuples / RATE_PER_S + 1.0
        with attack(seconds), Sender(server.port, tuples, RATE_PER_S, TOKENS["writer"]) as sender:
            await asyncio.to_thread(sender.begin)
            with no_collector():
                try:
                    async with asyncio.timeout(seconds + ANSWER_S):
                        await read_prices(results, arrived_ns, prices)
                except TimeoutError:
                    pass  # which tuples have no result is counted below
    missing = sum(not at for at in arrived_ns)
    kit.require(all(found == price(i) * 1.1 for i, found in enumerate(prices) if arrived_ns[i]), "another price than by hand")
    waits = sorted((at - sender.due_ns(i)) / 1e6 for i, at in enumerate(arrived_ns) if i >= WARM_UP and at)
    figures = {"p50_ms": percentile(waits, 0.50), "p99_ms": percentile(waits, 0.99)} if waits else {"p50_ms": 1e9, "p99_ms": 1e9}
    return {"name": name, **figures, "peak_rss_mb": server.peak_rss_mb()}, missing


# --- in the process that attacks the gateway ---

PEERS = 60
_BAD_ROWS = b'{"k": "no number"}\n' * 20_000


def _request(method: str, path: str, role: str, body: bytes = b"", kind: str = "text/plain") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKENS[role]}\r\nContent-Type: {kind}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def _again_and_again(port: int, request: bytes) -> None:
    """Ask, take the answer, and ask again; leave one that has no end."""
    while True:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            while True:
                writer.write(request)
                head = await reader.readuntil(b"\r\n\r\n")
                length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
                await reader.readexactly(length)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
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
GATEWAY_ATTACKS: dict[str, Attack] = {
    "bad-rows": lambda pg, http: _again_and_again(
        http, _request("POST", "/v1/streams/held/rows", "writer", _BAD_ROWS, "application/x-ndjson")
    ),
    "bad-tokens": lambda pg, http: _again_and_again(
        http, _request("GET", "/v1/streams", "reader").replace(TOKENS["reader"].encode(), base64.b64encode(b"guess"))
    ),
    "statements": lambda pg, http: _again_and_again(
        http, _request("POST", "/v1/sql", "reader", json.dumps({"sql": "SELECT v FROM held"}).encode(), "application/json")
    ),
    "readers": lambda pg, http: _held(http, _request("GET", f"/v1/queries/{QUERY}/results?from_start=true", "reader")),
    "heads": lambda pg, http: _held(http, b"GET /v1/streams HTTP/1.1\r\nHost: x\r\n"),
    "pg-greetings": lambda pg, http: _held(pg, b"\x00\x00\x27"),
}


def attack_gateway() -> None:
    """Attack from `PEERS` connections: KIND SECONDS PG_PORT HTTP_PORT."""
    kind, seconds, pg_port, http_port = sys.argv[1:]

    async def whole() -> None:
        async with asyncio.timeout(float(seconds)):
            await asyncio.gather(*(GATEWAY_ATTACKS[kind](int(pg_port), int(http_port)) for _ in range(PEERS)))

    try:
        asyncio.run(whole())
    except TimeoutError:
        return
