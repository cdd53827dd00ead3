"""A server process whose files may not grow any more, by the operating system's own limit: a full disk for that process alone."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from millstream.client import connect
from millstream.client.errors import MillstreamError

from tests.server.test_serve_process import START_S, serving

resource = pytest.importorskip("resource", reason="the system has no limits of a process")
pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux lets one process change another's limits"),
]
BYTES_MAX = 256 * 1024
ROWS = 500


def limit(pid: int, bytes_max: int) -> None:
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (bytes_max, hard))


def code_of(deed: Callable[[], object]) -> str | None:
    """Do something; return the code of its error, None when it went well."""
    try:
        deed()
    except MillstreamError as error:
        return error.code
    return None


def test_a_full_disk_refuses_what_is_to_be_kept_and_the_server_goes_on_by_itself_once_there_is_room(tmp_path: Path) -> None:
    arguments = ("--data-dir", str(tmp_path), "--log-level", "info")
    acked: list[int] = []
    refused = 0
    with serving(*arguments) as (process, port):
        with connect(f"127.0.0.1:{port}") as client:
            client.execute("CREATE STREAM plain (v BIGINT)")
            client.execute("CREATE STREAM kept (v BIGINT) DURABILITY journal")
            client.execute("CREATE QUERY every AS SELECT COUNT(*) AS n FROM plain EMIT FINAL")
            limit(process.pid, BYTES_MAX)
            for block in range(200):
                values = list(range(block * ROWS, (block + 1) * ROWS))
                code = code_of(lambda values=values: client.publish("kept", [{"v": v} for v in values]))
                assert code in (None, "storage")
                acked += values if code is None else []
                refused += code is not None
                if refused == 3:
                    break
            assert refused == 3
            assert client.publish("plain", [{"v": 1}]).accepted == 1
            texts = [f"CREATE STREAM s{number} (v BIGINT) -- {'x' * 20_000}" for number in range(40)]
            codes = [code_of(lambda text=text: client.execute(text)) for text in texts]
            assert set(codes) - {None} == {"storage"}
            made = codes.count(None)
            limit(process.pid, resource.RLIM_INFINITY)
            client.execute("CREATE STREAM again (v BIGINT)")
            client.publish("kept", [{"v": -1}])
            acked.append(-1)
            streams = len(client.execute("SHOW STREAMS").rows)
        process.send_signal(signal.SIGKILL)
        process.wait(START_S)
    with serving(*arguments) as (_, port), connect(f"127.0.0.1:{port}") as client:
        assert client.query_once("SELECT v FROM kept")["v"].to_pylist() == acked
        assert len(client.execute("SHOW STREAMS").rows) == streams == made + 3
