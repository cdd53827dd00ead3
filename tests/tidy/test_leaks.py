"""The leak check itself: each kind of thing that can be left behind is seen, and what was there before is not."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading

import pytest

from tests.support.leaks import Belongings, left_behind, unfinished_tasks

on_linux = sys.platform == "linux"


def test_nothing_is_found_where_nothing_was_left() -> None:
    assert left_behind(Belongings.now()) == []


def test_a_thread_that_runs_on_is_named() -> None:
    before = Belongings.now()
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name="straggler")
    thread.start()
    try:
        assert left_behind(before) == ["thread 'straggler'"]
        assert left_behind(Belongings.now()) == []
    finally:
        stop.set()
        thread.join()


def test_an_open_socket_is_seen_even_under_the_descriptor_of_a_closed_one() -> None:
    first = socket.socket()
    before = Belongings.now()
    first.close()
    with socket.socket():
        assert len(left_behind(before)) == (1 if on_linux else 0)
    assert left_behind(before) == []


def test_a_child_that_was_not_waited_for_is_seen() -> None:
    before = Belongings.now()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert left_behind(before) == ([f"child process {child.pid}"] if on_linux else [])
    assert left_behind(before) == []


def test_a_task_that_never_ended_is_seen_after_its_loop_stopped() -> None:
    before = Belongings.now()
    loop = asyncio.new_event_loop()

    async def wait_for_ever() -> None:
        await asyncio.Event().wait()

    task = loop.create_task(wait_for_ever(), name="sleeper")
    loop.call_soon(loop.stop)
    loop.run_forever()
    try:
        leaks = [line for line in left_behind(before) if line.startswith("asyncio task")]
        assert [line.split(":")[0] for line in leaks] == ["asyncio task 'sleeper'"]
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(task)
        loop.close()
    assert task not in unfinished_tasks()
