"""The process that the server starts for sources and sinks: how it comes in."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from millstream.client.address import pinned_context

from tests.support.live_server import Harness, run
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
