"""Hello: agree on a version, grant a role, tell the limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.protocol import limits, version
from millstream.protocol.messages import Hello, Welcome
from millstream.server.net.limits import LOGGED_NAME_MAX
from millstream.server.net.security import Role, role_of

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
    session.role = role
    # A name belongs to the role that uses it: else whoever may read could have an admin's connection replaced by its own.
    session.client_id = None if message.client_id is None else f"{role.word}:{message.client_id}"
    if role is Role.READER:
        config = application.config
        session.connection.accept_frames_of(min(config.frame_bytes_max, config.reader_frame_bytes_max))
    session.send(Welcome(agreed, application.program, application.server_id, role.word, _limits(session)))
    client_id = session.client_id and session.client_id[:LOGGED_NAME_MAX]
    session.log.info("connected", role=role.word, agent=message.agent[:LOGGED_NAME_MAX], client_id=client_id)


def _limits(session: Session) -> dict[str, int]:
    return {
        "frame_bytes_max": session.connection.frame_bytes_max,
        "header_bytes_max": limits.HEADER_BYTES_MAX,
        "train_rows_max": limits.TRAIN_ROWS_MAX,
        "requests_max": limits.REQUESTS_MAX,
    }
