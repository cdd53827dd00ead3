"""What rankings have in common: they say how their numbers move."""

from __future__ import annotations

from typing import ClassVar


class RankingBase:
    """Rank that changes only with estimates. A policy overrides what differs."""

    moves_with_time: ClassVar[bool] = False
    moves_with_queue: ClassVar[bool] = False
