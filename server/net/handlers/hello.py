"""Hello: agree on a version, grant a role, tell the limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol import limits, version
from millstream.protocol.messages import Hello, Welcome
from millstream.server.net.security import role_of

if TYPE_CHECKING:
    from millstream.server.net.session import Session


def handle_hello(session: Session, message: Hello) -> None:
    """Answer with Welcome, or close with the reason."""
    application = session.application
    agreed = version.agree(message.versions)
    if agreed is None:
        session.break_off("version", f"this server speaks protocol versions {list(version.VERSIONS)}, the client {message.versions}")
        return
    role = role_of(application.config, message.token)
    if role is None:
        session.break_off("unauthorized", "the token is missing or unknown")
        return
    if application.is_full:
        session.break_off("overloaded", f"{application.config.connections_max} connections are open (connections_max)")
        return
    session.role, session.client_id = role, message.client_id
    session.send(Welcome(agreed, application.program, application.server_id, role.word, _limits(session)))
    session.log.info("connected", role=role.word, agent=message.agent, client_id=message.client_id)


def _limits(session: Session) -> dict[str, int]:
    return {
        "frame_bytes_max": session.application.config.frame_bytes_max,
        "header_bytes_max": limits.HEADER_BYTES_MAX,
        "train_rows_max": limits.TRAIN_ROWS_MAX,
        "requests_max": limits.REQUESTS_MAX,
    }
