"""What every test gets: a check that it leaves nothing behind, and a seed that is printed when it fails."""

from __future__ import annotations

import os
import random
import signal
import zlib
from collections import Counter
from collections.abc import Iterator

import hypothesis
import numpy as np
import pytest

from tests.support.leaks import Belongings, left_behind

SEED = int(os.environ.get("MILLSTREAM_TEST_SEED", "20130101"))

# In CI the examples are the same each time: a failure there is one that the change made. At home they wander.
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.register_profile("home", deadline=None)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "home")

# A shell that starts something in the background lets it ignore Ctrl-C, and all that it starts in turn; some tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test that leaves a thread, a socket, a child process or an unfinished asyncio task behind.

    Fixtures of wider scope are set up before this one looks, so what they hold is not counted. Spark opens connections to its
    own Java process and forks its workers whenever it likes; only its threads are checked.
    """
    spark = request.node.get_closest_marker("spark") is not None
    before = Belongings.now()
    yield
    leaks = left_behind(before, sockets=not spark, children=not spark)
    if leaks:
        pytest.fail("left behind: " + "; ".join(leaks), pytrace=False)


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A number of this test's own, the same at each run; MILLSTREAM_TEST_SEED moves all of them."""
    return SEED + zlib.crc32(request.node.nodeid.encode())


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    """A generator seeded with `seed`."""
    return np.random.default_rng(seed)


@pytest.fixture(autouse=True)
def seeded_random(seed: int) -> None:
    """Make the module `random` repeatable, in case something below uses it."""
    random.seed(seed)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the modules that have most slow tests, so that processes that share the modules end at about the same time."""
    slow = Counter(item.path for item in items if any(item.get_closest_marker(name) for name in ("slow", "spark", "process")))
    items.sort(key=lambda item: -slow[item.path])


def pytest_report_header() -> str:
    """Say the seed, so that any run can be had again."""
    return f"MILLSTREAM_TEST_SEED={SEED}"
