"""Where the server is, and how to reach it."""

from __future__ import annotations

import ssl
from pathlib import Path

from millstream.client.errors import MillstreamError

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 7415


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of `host`, `host:port`, `:port` or `[ipv6]:port`. MillstreamError (`invalid`) if it is none."""
    host, port = text.strip(), ""
    if host.startswith("["):
        host, bracket, rest = host[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise _not_an_address(text)
        port = rest[1:]
    elif host.count(":") == 1:
        host, _, port = host.partition(":")
    if not port:
        return host or DEFAULT_HOST, DEFAULT_PORT
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise _not_an_address(text)
    return host or DEFAULT_HOST, int(port)


def _not_an_address(text: str) -> MillstreamError:
    return MillstreamError("invalid", f"{text!r} is not an address", "write HOST:PORT, for example 127.0.0.1:7415")


def tls_context(tls: bool | str | Path | ssl.SSLContext | None) -> ssl.SSLContext | None:
    """Return the TLS context: None for none, True for the system's authorities, or a file with the authority to trust.

    MillstreamError when the file cannot be used."""
    if tls is None or tls is False:
        return None
    if isinstance(tls, ssl.SSLContext):
        return tls
    try:
        return ssl.create_default_context(cafile=None if tls is True else str(tls))
    except OSError as error:
        raise MillstreamError("invalid", f"cannot read the TLS authority {str(tls)!r}: {error.strerror or error}") from error


def pinned_context(chain: str | Path) -> ssl.SSLContext:
    """Return a TLS context that trusts the first certificate of a file alone, whoever signed it and whatever name it bears.

    MillstreamError when the file cannot be used.
    """
    try:
        first, end, _ = Path(chain).read_text("ascii").partition("-----END CERTIFICATE-----")
        context = ssl.create_default_context(cadata=first + end)
    except (OSError, ValueError) as error:
        raise MillstreamError("invalid", f"cannot read the certificate {str(chain)!r}: {error}") from error
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
