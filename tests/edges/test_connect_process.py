"""The processes that the server starts for sources and sinks and for the console: how they come in, and what happens when one cannot."""

from __future__ import annotations

import asyncio
import io
import os
from pathlib import Path

import pytest
from millstream.client.address import pinned_context
from millstream.client.cli import run as run_command
from millstream.client.console import files
from millstream.server import connecting
from millstream.server.config import Config
from millstream.server.connecting import ClientProcess
from millstream.server.net.security import AccessRole

from tests.support.consoles import bundled
from tests.support.live_server import Harness, run, until
from tests.support.services import free_port
from tests.support.tree import ROOT

TLS = ROOT / "tests" / "support" / "tls"
BEGUN_S = 60.0

pytestmark = [pytest.mark.process, pytest.mark.slow]


def test_it_comes_in_by_whatever_certificate_and_token_the_server_has(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"v": 1}\n{"v": 2}\n')

    async def test(harness: Harness) -> None:
        admin = await harness.client(token="a", tls=pinned_context(TLS / "named-cert.pem"))
        await admin.execute("CREATE STREAM s (v BIGINT)")
        await admin.execute(f"CREATE SOURCE files INTO s WITH (connector = 'files', path = '{tmp_path / 'in.jsonl'}')")
        while (await admin.execute("SHOW SOURCES")).rows[0]["rows"] != 2:
            await asyncio.sleep(0.1)

    named = {"tls_cert": str(TLS / "named-cert.pem"), "tls_key": str(TLS / "named-key.pem")}
    run(test, admin_token="a", within_s=BEGUN_S, **named)


def test_the_console_comes_with_the_server_and_goes_with_it() -> None:
    bundled()
    port = free_port()

    async def page() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
            return await reader.read()
        finally:
            writer.close()

    async def test(harness: Harness) -> None:
        while True:
            try:
                assert b"<title>Millstream" in await page()
                break
            except OSError:
                await asyncio.sleep(0.05)
        sessions = harness.server.application.sessions
        await until(lambda: any(session.role is AccessRole.ADMIN for session in sessions.values()), "it looks with the admin's token")

    named = {"tls_cert": str(TLS / "named-cert.pem"), "tls_key": str(TLS / "named-key.pem")}
    run(test, admin_token="a", console_port=port, within_s=BEGUN_S, **named)
    with pytest.raises(OSError, match="Connect call failed"):
        asyncio.run(page())


class Heard:
    """A log that is read."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def info(self, event: str, **told: object) -> None:
        self.lines.append((event, str(told.get("text", ""))))

    warning = error = info


def test_a_console_that_lacks_something_says_so_and_is_not_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
    load = files.load
    monkeypatch.setattr(files, "load", lambda folder: load(tmp_path))
    assert run_command(["console", "--with-parent", "--server", "127.0.0.1:1"]) == os.EX_CONFIG
    said = capsys.readouterr().err
    assert said.startswith("error: the console's page has not been bundled")
    assert run_command(["console", "--server", "127.0.0.1:1"]) == 1

    heard = Heard()
    monkeypatch.setattr(connecting, "COMMAND", f"import sys; print({said.strip()!r}, file=sys.stderr); sys.exit({os.EX_CONFIG})")
    process = ClientProcess("console", [], Config(), 1, heard)

    async def ended() -> None:
        process.look(0, wanted=True)
        await until(lambda: process._process is None or process._process.poll() is not None, "it has ended")
        for later in (1, 2, 3):
            process.look(later * connecting.PAUSE_NS_MAX, wanted=True)
        await until(lambda: len(heard.lines) == 3, "all is told")

    asyncio.run(ended())
    assert sorted(heard.lines) == [("console_ended", ""), ("console_said", said.strip()), ("console_started", "")]
