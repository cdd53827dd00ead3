"""`millstream connect`: run the sources and sinks of a server."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import click
from millstream.client.commands.common import bound_process, connection_options, stop_with_input, warn

if TYPE_CHECKING:
    from millstream.client.blocking import Client


@click.command("connect")
@click.option("--memory-bytes-max", type=click.IntRange(min=64 * 2**20), default=None, help="Memory that this process may take.")
@click.option("--with-parent", is_flag=True, help="End when standard input does, as it does with the process that started this one.")
@click.option("--server-cert", default=None, metavar="FILE", help="Use TLS and trust this certificate of the server alone, by any name.")
@connection_options
def command(memory_bytes_max: int | None, with_parent: bool, server_cert: str | None, connect: Callable[..., Client]) -> int:
    """Run the sources and sinks that CREATE SOURCE and CREATE SINK have made, until it is stopped.

    The server starts this itself (setting `connectors`). Run it elsewhere with --server, where secrets and other systems are at hand; one
    such process a server.
    """
    from millstream.client.address import pinned_context
    from millstream.client.edges.supervisor import Supervisor

    if memory_bytes_max is not None:
        bound_process(memory_bytes_max)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    if with_parent:
        stop_with_input(stop.set)
    tls = None if server_cert is None else pinned_context(server_cert)
    Supervisor(lambda: connect(tls, waiting=False), warn, stop).run()
    return 0
