"""The live server's wiring: one event loop, one thread that executes statements, the scheduler's thread and its workers.

The loop's thread owns sessions, feeds and channels. Statements run on a thread of their own, one after the other, so that planning
never keeps the loop from its sockets. Results, ends of queries and the like come to the loop over the bridge, in order.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.engine.errors import UnknownName
from millstream.engine.language.names import did_you_mean
from millstream.engine.schema import Schema
from millstream.protocol.messages import Submit
from millstream.server.bridge import Bridge
from millstream.server.config import Config
from millstream.server.logs import logger
from millstream.server.outcome import Outcome
from millstream.server.security import Role, require
from millstream.server.subscriptions import Bounds, Feed

if TYPE_CHECKING:
    from millstream.server.intake import Intake
    from millstream.server.publishing import Channel
    from millstream.server.session import Session

SWEEP_S = 0.25  # how often overdue peers, held credit and slow subscribers are looked at
FAREWELL_S = 2.0  # how long a peer that is told to go may take to read that
NS_PER_S = 1_000_000_000

Result = TypeVar("Result")
