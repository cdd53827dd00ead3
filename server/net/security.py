"""Who may do what: roles, the tokens that grant them, and the TLS context."""

from __future__ import annotations

import hmac
import ssl
from enum import IntEnum

from millstream.server.config import Config
from millstream.server.errors import ConfigError, Denied


class AccessRole(IntEnum):
    """What a token grants; a greater one may do all that a lesser one may."""

    READER = 1
    WRITER = 2
    ADMIN = 3

    @property
    def word(self) -> str:
        """The name on the wire and in settings."""
        return self.name.lower()


def role_of(config: Config, token: str | None) -> AccessRole | None:
    """Return the role that a token grants, None for an unknown one. Without any token configured everybody is admin."""
    known = [(AccessRole.ADMIN, config.admin_token), (AccessRole.WRITER, config.writer_token), (AccessRole.READER, config.reader_token)]
    if not any(secret for _, secret in known):
        return AccessRole.ADMIN
    given = (token or "").encode()
    granted: AccessRole | None = None
    for role, secret in known:
        if secret and hmac.compare_digest(given, secret.encode()) and granted is None:
            granted = role
    return granted


def require(role: AccessRole | None, least: AccessRole, what: str) -> None:
    """Raise Denied when `role` is below `least`."""
    if role is None or role < least:
        raise Denied(
            f"{what} needs the {least.word} role and this connection has {role.word if role else 'none'}",
            hint=f"connect with a token of the {least.word} role",
        )


def tls_context(config: Config) -> ssl.SSLContext | None:
    """Return the TLS context of the settings, None when they name no certificate. ConfigError when that cannot be used."""
    if not config.tls_cert:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(config.tls_cert, config.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"cannot use the certificate {config.tls_cert} with the key {config.tls_key}: {error}") from error
    return context
