"""`millstream console`: a web page that shows a server at work and steers it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import click
from millstream.client.commands.common import stop_with_input
from millstream.client.errors import MillstreamError


@click.command()
@click.option("--server", envvar="MILLSTREAM_SERVER", default="127.0.0.1:7415", show_default=True, metavar="HOST:PORT", help="The server.")
@click.option("--tls-ca", envvar="MILLSTREAM_TLS_CA", default=None, metavar="FILE", help="Use TLS to the server and trust this authority.")
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on. Beyond loopback the server must ask for tokens."
)
@click.option("--port", type=click.IntRange(0, 65535), default=7420, show_default=True, help="Port of the page. 0 takes a free one.")
@click.option("--tls-cert", default=None, metavar="FILE", help="Certificate chain of the console (PEM). With it, the page comes over TLS.")
@click.option("--tls-key", default=None, metavar="FILE", help="Private key of the certificate (PEM).")
@click.option("--server-cert", default=None, metavar="FILE", help="Use TLS and trust this certificate of the server alone, by any name.")
@click.option("--with-parent", is_flag=True, help="End when standard input does, as it does with the process that started this one.")
def command(with_parent: bool, **words: Any) -> int:
    """Show a server in a browser, until SIGTERM or Ctrl-C: what runs, how fast, under which policy.

    If the server has tokens, the page asks for one; its role says what the page may do. With MILLSTREAM_TOKEN the console also looks while
    no page is open, so that the first page finds a past. `millstream serve --console-port 7420` starts this itself.
    """
    try:
        _serve(stop_with_input if with_parent else None, **words)
    except MillstreamError as error:
        if not (with_parent and error.code == "unsupported"):
            raise
        click.echo(f"error: {error}", err=True)
        return os.EX_CONFIG  # so that whoever started it does not try again
    return 0


def _serve(
    stop_by: Callable[[Callable[[], object]], None] | None,
    server: str,
    tls_ca: str | None,
    host: str,
    port: int,
    tls_cert: str | None,
    tls_key: str | None,
    server_cert: str | None,
) -> None:
    try:
        from millstream.client.console.serving import ConsoleSettings, serve
    except ImportError as error:
        hint = "pip install 'millstream[console]'"
        raise MillstreamError("unsupported", f"the console needs {error.name}, which is not installed", hint) from error
    from millstream.client.address import pinned_context

    token = os.environ.get("MILLSTREAM_TOKEN") or None
    tls = tls_ca if server_cert is None else pinned_context(server_cert)
    settings = ConsoleSettings(server, tls, token, host, port, tls_cert, tls_key)
    serve(settings, lambda text: click.echo(text, err=True), stop_by)
