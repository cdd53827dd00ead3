"""`millstream gateway`: PostgreSQL's clients and HTTP's, in front of a server."""

from __future__ import annotations

import os
from pathlib import Path

import click


@click.command()
@click.option("--server", envvar="MILLSTREAM_SERVER", default="127.0.0.1:7415", show_default=True, metavar="HOST:PORT", help="The server.")
@click.option("--tls-ca", envvar="MILLSTREAM_TLS_CA", default=None, metavar="FILE", help="Use TLS to the server and trust this authority.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on. Any address beyond loopback requires tokens.")
@click.option("--pg-port", type=click.IntRange(0, 65535), default=None, help="Port for clients of PostgreSQL. 0 takes a free one.")
@click.option("--http-port", type=click.IntRange(0, 65535), default=None, help="Port for HTTP. 0 takes a free one.")
@click.option("--cors-origin", "cors_origins", multiple=True, metavar="URL", help="Let web pages of this origin ask. May be repeated.")
@click.option("--tls-cert", default=None, metavar="FILE", help="Certificate chain of the gateway (PEM). With it, peers may use TLS.")
@click.option("--tls-key", default=None, metavar="FILE", help="Private key of the certificate (PEM).")
@click.option("--pg-bin", type=click.Path(path_type=Path), default=None, help="Folder with PostgreSQL's initdb and postgres.")
@click.option("--catalogue/--no-catalogue", default=True, help="Answer questions about the catalogue with a private PostgreSQL.")
@click.option("--connections-max", type=click.IntRange(1), default=100, show_default=True, help="Most peers at a time, for each port.")
def command(
    server: str,
    tls_ca: str | None,
    host: str,
    pg_port: int | None,
    http_port: int | None,
    cors_origins: tuple[str, ...],
    tls_cert: str | None,
    tls_key: str | None,
    pg_bin: Path | None,
    catalogue: bool,
    connections_max: int,
) -> None:
    """Let clients of PostgreSQL and of HTTP speak to a server, until SIGTERM or Ctrl-C.

    The tokens of the server's roles come from MILLSTREAM_ADMIN_TOKEN, MILLSTREAM_WRITER_TOKEN and MILLSTREAM_READER_TOKEN, as for serve. A
    peer's user is a role, its password the token; over HTTP it sends Authorization: Bearer TOKEN.
    """
    from millstream.client.gateway.access import Access, Settings, tokens_from
    from millstream.client.gateway.serving import serve

    access = Access(server, tls_ca, tokens_from(os.environ))
    settings = Settings(
        access,
        host,
        pg_port=pg_port,
        http_port=http_port,
        cors_origins=cors_origins,
        tls_cert=tls_cert,
        tls_key=tls_key,
        pg_bin=pg_bin,
        catalogue=catalogue,
        connections_max=connections_max,
    )
    serve(settings, lambda text: click.echo(text, err=True))
