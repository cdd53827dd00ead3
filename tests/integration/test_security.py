"""Tokens and their roles."""

from __future__ import annotations

from pathlib import Path

import pytest
from millstream.client.address import pinned_context
from millstream.client.errors import MillstreamError

from tests.support.live_server import Harness, run

TOKENS = {"admin_token": "a", "writer_token": "w", "reader_token": "r"}
STREAM = "CREATE STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT us"


async def code_of(call: object) -> str:
    try:
        await call  # type: ignore[misc]
    except MillstreamError as error:
        return error.code
    return "done"


def test_each_role_may_do_what_it_may_and_no_more() -> None:
    async def test(harness: Harness) -> None:
        admin, writer, reader = [await harness.client(token=t) for t in ("a", "w", "r")]
        assert (admin.role, writer.role, reader.role) == ("admin", "writer", "reader")
        await admin.execute(STREAM)
        may: dict[str, list[str]] = {}
        for client in (admin, writer, reader):
            may[client.role] = [
                await code_of(client.execute("SHOW STREAMS")),
                await code_of(client.execute("SELECT v FROM s")),
                await code_of(client.publish("s", [{"ts": 1, "v": 1}])),
                await code_of(client.submit("SELECT v FROM s", name=f"q_{client.role}")),
                await code_of(client.execute(f"CREATE STREAM t_{client.role} (v INT)")),
            ]
        for statement, called in (("CREATE STREAM t (v INT)", "CREATE STREAM"), ("STOP QUERY q", "STOP QUERY"), ("DROP STREAM s", "DROP")):
            with pytest.raises(MillstreamError, match=f"^{called} needs the admin role and this connection has reader"):
                await reader.execute(statement)
        assert may == {
            "admin": ["done"] * 5,
            "writer": ["done"] * 3 + ["forbidden"] * 2,
            "reader": ["done"] * 2 + ["forbidden"] * 3,
        }

    run(test, **TOKENS)


@pytest.mark.parametrize("token", [None, "", "x"])
def test_a_missing_or_unknown_token_is_turned_away(token: str | None) -> None:
    async def test(harness: Harness) -> None:
        with pytest.raises(MillstreamError) as caught:
            await harness.client(token=token)
        assert caught.value.code == "unauthorized"
        assert "MILLSTREAM_TOKEN" in str(caught.value)

    run(test, **TOKENS)


def test_with_a_certificate_only_tls_is_spoken() -> None:
    certificates = Path(__file__).parents[1] / "support" / "tls"

    async def test(harness: Harness) -> None:
        client = await harness.client(tls=certificates / "cert.pem")
        await client.execute(STREAM)
        ack = await client.publish("s", [{"ts": 1, "v": 1}])
        assert ack.accepted == 1
        with pytest.raises(MillstreamError):
            await harness.client(timeout=2.0)

    run(test, tls_cert=str(certificates / "cert.pem"), tls_key=str(certificates / "key.pem"), frame_s=0.5)


def test_a_pinned_certificate_is_trusted_by_any_name_and_no_other_is(tmp_path: Path) -> None:
    certificates = Path(__file__).parents[1] / "support" / "tls"
    whole = tmp_path / "chain.pem"
    whole.write_text((certificates / "named-cert.pem").read_text() + (certificates / "cert.pem").read_text())

    async def test(harness: Harness) -> None:
        assert (await harness.client(tls=pinned_context(harness.server.config.tls_cert or ""))).role == "admin"
        if "named" not in str(harness.server.config.tls_cert):
            with pytest.raises(MillstreamError, match="CERTIFICATE_VERIFY_FAILED"):
                await harness.client(tls=pinned_context(whole))  # the authority in it is not trusted, the first certificate alone is

    for name in ("named-", ""):
        run(test, tls_cert=str(certificates / f"{name}cert.pem"), tls_key=str(certificates / f"{name}key.pem"))
    for wrong in (tmp_path / "nothing.pem", certificates / "key.pem"):
        with pytest.raises(MillstreamError, match="cannot read the certificate"):
            pinned_context(wrong)
