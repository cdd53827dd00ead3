"""One Spark session for all tests that need one, and streams without a daemon."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from millstream.feeder.session import start_session, stop_session


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A local session on two threads, started once. A task that fails is tried again, as on a cluster."""
    session = start_session("local[2,2]", brief=True)
    yield session
    stop_session(session)
