"""`millstream console`: a web page that shows a server at work and steers it."""

from __future__ import annotations

import os

import click
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
def command(server: str, tls_ca: str | None, host: str, port: int, tls_cert: str | None, tls_key: str | None) -> None:
    """Show a server in a browser, until SIGTERM or Ctrl-C: what runs, how fast, under which policy.

    If the server has tokens, the page asks for one; its role says what the page may do. With MILLSTREAM_TOKEN the console also looks while
    no page is open, so that the first page finds a past.
    """
    try:
        from millstream.client.console.serving import ConsoleSettings, serve
    except ImportError as error:
        hint = "pip install 'millstream[console]'"
        raise MillstreamError("unsupported", f"the console needs {error.name}, which is not installed", hint) from error
    token = os.environ.get("MILLSTREAM_TOKEN") or None
    serve(ConsoleSettings(server, tls_ca, token, host, port, tls_cert, tls_key), lambda text: click.echo(text, err=True))
