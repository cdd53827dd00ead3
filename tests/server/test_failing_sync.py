"""A server process whose disk cannot be forced, below Python and SQLite: the C library's fsync and fdatasync fail while a file is there."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from millstream.client import connect
from millstream.client.errors import MillstreamError

from tests.server.test_serve_process import serving

SOURCE = Path(__file__).parents[1] / "support" / "failing_sync.c"
COMPILER = shutil.which("cc") or shutil.which("gcc")
pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(COMPILER is None or not sys.platform.startswith("linux"), reason="needs a C compiler and the loader of Linux"),
]


def code_of(deed: Callable[[], object]) -> str | None:
    try:
        deed()
    except MillstreamError as error:
        return error.code
    return None


def test_nothing_is_acked_or_in_force_while_the_disk_cannot_be_forced_and_all_goes_on_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library, sign = tmp_path / "failing_sync.so", tmp_path / "fails"
    assert COMPILER is not None
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE)], check=True)
    arguments = ("--data-dir", str(tmp_path / "data"), "--log-level", "info")
    acked = []
    with monkeypatch.context() as patch:
        patch.setenv("LD_PRELOAD", str(library))
        patch.setenv("FAILING_SYNC", str(sign))
        with serving(*arguments) as (_, port), connect(f"127.0.0.1:{port}") as client:
            client.execute("CREATE STREAM safe (v BIGINT) DURABILITY sync")
            client.execute("CREATE STREAM plain (v BIGINT)")
            client.publish("safe", [{"v": 0}])
            acked.append(0)
            for round_ in range(3):
                sign.touch()
                assert code_of(lambda: client.publish("safe", [{"v": -1}])) == "storage"
                assert code_of(lambda: client.execute("DROP STREAM plain")) == "storage"
                assert code_of(lambda number=round_: client.execute(f"CREATE QUERY q{number} AS SELECT v FROM safe")) == "storage"
                assert client.publish("plain", [{"v": 1}]).accepted == 1
                assert not client.execute("SHOW QUERIES").rows
                sign.unlink()
                while code_of(lambda number=round_: client.publish("safe", [{"v": number + 1}])) is not None:
                    pass  # the journal looks once a second whether the disk goes again
                acked.append(round_ + 1)
                client.execute(f"CREATE CLASS c{round_} PRIORITY 2")
    with serving(*arguments) as (_, port), connect(f"127.0.0.1:{port}") as client:
        assert client.query_once("SELECT v FROM safe")["v"].to_pylist() == acked
        assert not client.execute("SHOW QUERIES").rows
        assert client.publish("plain", [{"v": 2}]).accepted == 1
        assert len(client.execute("SHOW CLASSES").rows) == 4
