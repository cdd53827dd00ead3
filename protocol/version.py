"""Agreement on a protocol version: the highest both speak. What a later version has is said to an older peer in its own words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from millstream.protocol.errors import OLDER_CODES
from millstream.protocol.messages import ChannelClosed, Failure, Message

VERSION = 2
VERSIONS = (1, 2)
ANSWERS_HAVE_CREDIT_SINCE = 2
PRODUCERS_SINCE = 2


def agree(offered: Iterable[int], spoken: Iterable[int] = VERSIONS) -> int | None:
    """Return the highest version in both lists, or None if there is none."""
    common = set(offered) & set(spoken)
    return max(common) if common else None


def in_words_of(version: int, message: Message) -> Message:
    """Return `message` as a peer of `version` knows it: a code that its version lacks becomes the nearest that it has."""
    if type(message) is Failure or type(message) is ChannelClosed:
        since, older = OLDER_CODES.get(message.code, (1, ""))
        if version < since:
            return replace(message, code=older)
    return message
