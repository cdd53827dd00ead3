"""How many messages without rows are handled, of all peers together: rows have credit, these have turns.

So have rows that are refused: they use no credit up, and some of them cost as much as a message.

Each peer has a few of its own, which those who behave never exceed. What is beyond comes out of one allowance of the server, at once
while there is some and nobody waits, else in turns. So one peer that floods the server has what others leave, a thousand have no more
together, and whoever says little is not kept waiting by either. Nobody is cut off for it: a peer that waits is not read from.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from millstream.server.net.limits import OWN_MESSAGES_MAX, OWN_MESSAGES_PER_S, SHARED_MESSAGES_MAX, TURN_MESSAGES, TURN_S

NS_PER_S = 1_000_000_000


class Waiting(Protocol):
    """A peer that has said more than its share."""

    def go_on(self, messages: int) -> None:
        """Handle so many messages more."""
        ...


class Pacer:
    """The allowance of all. `call_later(seconds, call)` and `now_ns()` are the loop's."""

    def __init__(self, per_s: int, now_ns: Callable[[], int], call_later: Callable[[float, Callable[[], None]], object]) -> None:
        self._per_s = per_s
        self._now_ns = now_ns
        self._call_later = call_later
        self._left = float(SHARED_MESSAGES_MAX)
        self._counted_ns = 0
        self._waiting: deque[Waiting] = deque()
        self._is_due = False

    @property
    def waiting(self) -> int:
        """Peers that wait for their turn."""
        return len(self._waiting)

    def take(self, peer: Waiting) -> int:
        """Return how many messages more a peer may have handled now; 0: `go_on` will be called."""
        self._refill()
        if self._left >= TURN_MESSAGES and not self._waiting:
            return self._turn()
        self._waiting.append(peer)
        self._make_due()
        return 0

    def forget(self, peer: Waiting) -> None:
        """Let a peer that is gone wait no more."""
        if peer in self._waiting:
            self._waiting.remove(peer)

    def _refill(self) -> None:
        now_ns = self._now_ns()
        self._left = min(float(SHARED_MESSAGES_MAX), self._left + (now_ns - self._counted_ns) * self._per_s / NS_PER_S)
        self._counted_ns = now_ns

    def _turn(self) -> int:
        self._left -= TURN_MESSAGES  # whole turns alone, so that nobody is the one who always gets what is left over
        return TURN_MESSAGES

    def _make_due(self) -> None:
        if self._waiting and not self._is_due:
            self._is_due = True
            self._call_later(TURN_S, self._give_turns)

    def _give_turns(self) -> None:
        self._is_due = False
        self._refill()
        while self._left >= TURN_MESSAGES and self._waiting:
            self._waiting.popleft().go_on(self._turn())
        self._make_due()


class MessageAllowance:
    """What one peer may say at once."""

    def __init__(self, pacer: Pacer, now_ns: int) -> None:
        self._pacer = pacer
        self._left = OWN_MESSAGES_MAX
        self._counted_ns = now_ns

    def spend(self, peer: Waiting, now_ns: int, messages: int = 1) -> bool:
        """Count messages of the peer that were handled; False when no other is to be handled until it is told to go on."""
        self._left -= messages
        if self._left > 0:
            return True
        earned = (now_ns - self._counted_ns) * OWN_MESSAGES_PER_S // NS_PER_S
        if earned:
            self._left, self._counted_ns = min(OWN_MESSAGES_MAX, self._left + earned), now_ns
        return self._left > 0 or self._is_given(peer)

    def add(self, peer: Waiting, messages: int) -> bool:
        """Let so many messages more be handled; False when the peer has handled more than these already, and waits for its next turn."""
        self._left += messages
        return self._left > 0 or self._is_given(peer)

    def _is_given(self, peer: Waiting) -> bool:
        while self._left <= 0:
            given = self._pacer.take(peer)
            if not given:
                return False
            self._left += given
        return True
