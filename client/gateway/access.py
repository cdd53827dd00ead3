"""Who may come in, and with which token of the server: by the tokens that the gateway was given, or by the server's own judgement."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from millstream.client.connection import Tls
from millstream.client.errors import MillstreamError

ROLES = ("admin", "writer", "reader")
VARIABLES = {role: f"MILLSTREAM_{role.upper()}_TOKEN" for role in ROLES}  # those of the server


@dataclass(frozen=True, slots=True)
class Access:
    """The server's address and trust, and the tokens of its roles that the gateway knows, by role."""

    server: str
    tls_ca: Tls
    tokens: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Settings:
    """What `millstream gateway` was told. A port of None is not served, 0 is any free one."""

    access: Access
    host: str = "127.0.0.1"
    pg_port: int | None = None
    http_port: int | None = None
    cors_origins: tuple[str, ...] = ()
    tls_cert: str | None = None
    tls_key: str | None = None
    pg_bin: Path | None = None
    catalogue: bool = True
    connections_max: int = 100


def check(settings: Settings) -> None:
    """MillstreamError (`invalid`) when the settings contradict each other, or would let strangers in."""
    if settings.pg_port is None and settings.http_port is None:
        raise MillstreamError("invalid", "the gateway has nothing to serve", "give --pg-port, --http-port or both")
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise MillstreamError("invalid", "TLS needs both --tls-cert and --tls-key")
    tokens = list(settings.access.tokens.values())
    if len(set(tokens)) != len(tokens):
        raise MillstreamError("invalid", "two roles have the same token", "give each role a token of its own")
    if not is_loopback(settings.host) and "admin" not in settings.access.tokens:
        hint = f"set {VARIABLES['admin']}, or listen on 127.0.0.1"
        raise MillstreamError("invalid", f"listening on {settings.host} lets other machines in and no token is set", hint)


def tokens_from(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the tokens of the roles that the environment names."""
    return {role: environment[name] for role, name in VARIABLES.items() if environment.get(name)}


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address to listen on."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
