"""Two connections joined in memory, one of each role: what one says, the other hears."""

from __future__ import annotations

from collections.abc import Iterable

from millstream.protocol.connection import Connection, Event
from millstream.protocol.messages import BytesLike, Hello, Message, Welcome
from millstream.protocol.states import Role
from millstream.protocol.version import VERSION, VERSIONS


def joined(buffers: Iterable[BytesLike]) -> bytes:
    """Return the bytes that a socket would carry."""
    return b"".join(bytes(buffer) for buffer in buffers)


class Pair:
    """A client and a server. `client_says` and `server_says` send messages across and return what the other end heard."""

    def __init__(self, *, greeted: bool = True, version: int | None = None) -> None:
        self.client = Connection(Role.CLIENT)
        self.server = Connection(Role.SERVER)
        if greeted:
            self.client_says(Hello(list(VERSIONS) if version is None else [version]))
            self.server_says(Welcome(version or VERSION))

    def client_says(self, *messages: Message) -> list[Event]:
        """Send as one read."""
        return list(self.server.receive_data(b"".join(joined(self.client.send(message)) for message in messages)))

    def server_says(self, *messages: Message) -> list[Event]:
        """Send as one read."""
        return list(self.client.receive_data(b"".join(joined(self.server.send(message)) for message in messages)))
