"""What users get wrong, and what the server tells them: one clear answer, and the connection stays usable."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from millstream.client.errors import MillstreamError

from tests.support.live_server import Harness, rows_of, run

STREAM = "CREATE STREAM packets (ts TIMESTAMP, length INT NOT NULL, proto TEXT) TIMESTAMP BY ts"
EPOCH = "1970-01-01T00:00:00Z"


async def refusal(call: Any) -> MillstreamError:
    with pytest.raises(MillstreamError) as caught:
        await call
    return caught.value


def test_an_unknown_stream_is_named_with_the_nearest_one_and_the_connection_goes_on() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM)
        for call in (
            client.execute("SELECT length FROM packts"),
            client.submit("SELECT length FROM packts"),
            client.publish("packts", [{}]),
        ):
            error = await refusal(call)
            assert error.code == "unknown_name"
            assert "packts" in error.message
            assert "packets" in (error.hint or "")
        assert (await client.execute("SHOW STREAMS")).rows[0]["name"] == "packets"

    run(test)


@pytest.mark.parametrize(
    ("text", "code", "line", "token"),
    [
        ("SELECT length\nFRM packets", "syntax", 2, "FRM"),
        ("SELECT lenght FROM packets", "unknown_name", 1, "lenght"),
        ("SELECT proto + 1 AS x FROM packets", "type", 1, None),
        ("CREATE STREAM packets (v INT)", "exists", None, None),
        ("SELECT length FROM packets WITH (class = 'gold')", "unknown_name", None, None),
        ("DROP QUERY nothing", "unknown_name", None, None),
        ("\n\n -- the third of a script\nDROP QUERY nothing", "unknown_name", 4, None),
        ("\n\nFETCH QUERY nothing", "unknown_name", 3, None),
        ("", "syntax", None, None),
        ("SET POLICY fastest", "invalid", None, None),
    ],
)
def test_a_bad_statement_is_refused_with_its_place(text: str, code: str, line: int | None, token: str | None) -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM)
        error = await refusal(client.execute(text))
        assert error.code == code
        if line is not None:
            assert error.line == line
        if token is not None:
            assert error.token == token
        await client.execute("SHOW QUERIES")

    run(test)


def test_a_bad_row_in_a_train_is_listed_in_the_ack_and_the_rest_is_kept() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM)
        await client.submit("SELECT length FROM packets", name="everything")
        subscription = await client.subscribe("everything")
        good = {"ts": EPOCH, "proto": "tcp"}
        ack = await client.publish(
            "packets",
            [
                {**good, "length": 1},
                {**good, "length": "text"},
                {**good, "length": 2, "extra": 1},
                {"proto": "udp", "ts": EPOCH},
                {**good, "length": 3},
            ],
        )
        assert ack.accepted + ack.rejected_rows == 5
        assert {r.index for r in ack.rejected} == {1, 2, 3}
        assert all(r.reason for r in ack.rejected)
        assert [r["length"] for r in await rows_of(subscription, 2)] == [1, 3]

    run(test)


def test_an_arrow_train_whose_columns_do_not_fit_is_refused_and_says_which() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM)
        ack = await client.publish("packets", pa.table({"ts": pa.array([0], pa.timestamp("us", "UTC")), "length": ["many"]}))
        assert (ack.accepted, ack.rejected_rows) == (0, 1)
        assert "length" in ack.rejected[0].reason
        assert len(await client.execute("SHOW STREAMS")) == 1

    run(test)


def test_rows_for_a_stream_that_has_ended_are_refused_with_the_reason() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM)
        await client.finish("packets")
        ack = await client.publish("packets", [{"ts": EPOCH, "length": 1}])
        assert (ack.accepted, ack.rejected_rows) == (0, 1)
        assert "ended" in ack.rejected[0].reason

    run(test)


def test_names_that_some_surface_could_not_show_are_refused_at_creation_and_others_work_with_every_verb() -> None:
    bad = ["", " x ", "a\n", "..", 'a"b', "x" * 1001]
    fine = ["DROP", "café", "a.b", "select 1"]

    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM)
        for name in bad:
            assert (await refusal(client.submit("SELECT length FROM packets", name=name))).code == "invalid"
        for name in fine:
            query = await client.submit("SELECT length FROM packets", name=name)
            assert name in {r["name"] for r in await client.execute("SHOW QUERIES")}
            await client.execute(f'STOP QUERY "{name}"')
            await client.execute(f'START QUERY "{name}"')
            await client.execute(f'DESCRIBE "{name}"')
            await query.drop()
        assert len(await client.execute("SHOW QUERIES")) == 0

    run(test)


def test_with_on_error_fail_a_bad_row_refuses_its_publish_and_no_other() -> None:
    async def test(harness: Harness) -> None:
        client = await harness.client()
        await client.execute(STREAM + " ON ERROR FAIL")
        ack = await client.publish("packets", [{"ts": EPOCH, "length": 1}, {"ts": EPOCH, "length": "x"}])
        assert (ack.accepted, ack.rejected_rows) == (0, 2)
        publisher = await client.publisher("packets")
        for length in (1, "x", 2):
            await publisher.send_row([0, length, None])
        ack = await publisher.flush()
        assert (ack.accepted, ack.rejected_rows, [r.index for r in ack.rejected]) == (2, 1, [1])

    run(test)
