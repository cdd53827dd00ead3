"""Peers of protocol version 1: the client of release 0.1.0 passes, and nobody is told what his version lacks."""

from __future__ import annotations

import asyncio
import json
import site
import subprocess
import sys
from pathlib import Path

import pytest
from millstream.protocol import messages as m
from millstream.protocol.errors import CODES, OLDER_CODES
from millstream.protocol.version import VERSION, VERSIONS, agree

from tests.support.live_server import Harness, run
from tests.support.pairs import Pair

FOLDER = Path(__file__).parents[1] / "support" / "version_1"
ANSWER_S = 60.0


@pytest.mark.process
def test_a_client_of_release_0_1_0_creates_publishes_subscribes_and_resumes() -> None:
    async def test(harness: Harness) -> None:
        packages = [str(Path(p)) for p in sys.path if Path(p).name == "site-packages"] or site.getsitepackages()
        command = [sys.executable, "-S", str(FOLDER / "conversation.py"), harness.address, str(FOLDER / "client-0.1.0.zip"), *packages]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=ANSWER_S, check=False)
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert told.pop("created")
        assert told == {
            "versions": [1],
            "version": 1,
            "query": "positive",
            "ack": [3, 1, [3]],
            "results": [{"v": 1}, {"v": 3}],
            "error": "unknown_name",
            "resumed": [{"v": 5}],
        }

    run(test, within_s=ANSWER_S)


def test_both_ends_know_the_version_once_the_greeting_is_over() -> None:
    assert (Pair(greeted=False).server.version, Pair(greeted=False).client.version) == (None, None)
    assert (Pair().server.version, Pair().client.version) == (VERSION, VERSION)
    assert (Pair(version=1).server.version, Pair(version=1).client.version) == (1, 1)
    assert agree([1]) == 1
    assert agree([1, 2, 3]) == max(VERSIONS) == VERSION


@pytest.mark.parametrize("code", list(OLDER_CODES))
def test_a_code_is_told_to_an_older_peer_as_one_that_it_knows(code: str) -> None:
    since, older = OLDER_CODES[code]
    assert code in CODES
    assert older in CODES
    for version in VERSIONS:
        pair = Pair(version=version)
        pair.client_says(m.Statement(1, "DROP STREAM s"), m.OpenChannel(2, "s"))
        pair.server_says(m.ChannelOpened(2, 1, [], 1, 1))
        said = pair.server_says(m.Failure(code, "the disk is full", 1), m.ChannelClosed(1, code, "the disk is full"))
        assert [message.code for message in said if isinstance(message, m.Failure | m.ChannelClosed)] == [
            code if version >= since else older
        ] * 2
