"""The command line and the blocking client against the real server, in this process over loopback."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from millstream.client import cli, connect, rows_of

from tests.support.live_server import Harness, run


def test_from_a_stream_to_results_on_the_command_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "rows.csv"
    data.write_text("ts,k,v\n2024-01-01T00:00:00Z,1,1.5\n2024-01-01T00:00:01.25Z,9007199254740993,NaN\nbad,1,1\n2024-01-01T00:00:02Z,3,\n")

    async def test(harness: Harness) -> None:
        monkeypatch.setenv("MILLSTREAM_SERVER", harness.address)

        async def command(*arguments: str) -> tuple[int, str, str]:
            code = await asyncio.to_thread(cli.run, list(arguments))
            return code, *capfd.readouterr()

        assert await command("stream", "create", "s", "ts TIMESTAMP, k BIGINT, v DOUBLE", "--timestamp-by", "ts") == (0, "", "")
        assert await command("query", "submit", "SELECT ts, k, v FROM s", "--name", "all") == (0, "", "")
        code, _, err = await command("publish", "s", str(data), "--finish")
        assert (code, err.splitlines()[0]) == (0, "s: 3 rows accepted, 1 refused")
        assert err.splitlines()[1].startswith("  line 4: ")
        assert await command("tail", "all", "--from-start", "--format", "json") == (
            0,
            '{"ts": "2024-01-01T00:00:00Z", "k": 1, "v": 1.5}\n'
            '{"ts": "2024-01-01T00:00:01.250000Z", "k": 9007199254740993, "v": "NaN"}\n'
            '{"ts": "2024-01-01T00:00:02Z", "k": 3, "v": null}\n',
            "",
        )
        other = tmp_path / "other.csv"
        other.write_text("timestamp,k\n2024-01-01T00:00:05Z,1\n")
        code, _, err = await command("publish", "s", str(other))
        assert code == 1
        assert err.splitlines()[2:] == [
            "  line 2: column ts is missing",
            "--map COLUMN=FILE_COLUMN fills a column from one of another name in the file",
        ]
        assert (await command("query", "drop", "all"))[0] == 0
        assert await command("tail", "all") == (1, "", "error: there is no query all; SHOW QUERIES lists them\n")
        code, _, err = await command("tail", "s")
        assert code == 1
        assert err.startswith("error: s is a stream or table, and readers follow queries; CREATE QUERY all_rows AS SELECT * FROM s")

    run(test)


def test_the_blocking_client_sees_every_row_that_was_acked_and_leaves_nothing_behind() -> None:
    async def test(harness: Harness) -> None:
        def talk() -> tuple[list[int], str]:
            with connect(harness.address) as ms:
                ms.execute("CREATE STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT us")
                ms.submit("SELECT v FROM s WHERE v % 2 = 0", name="even")
                results = ms.subscribe("even")
                ack = ms.publish("s", pa.table({"ts": range(50_000), "v": range(50_000)}))
                assert (ack.accepted, ack.rejected) == (50_000, [])
                ms.finish("s")
                values = results.to_arrow().column("v").to_pylist()
                assert results.end is not None
                return values, results.end.reason

        before = set(threading.enumerate())
        values, reason = await asyncio.to_thread(talk)
        assert values == list(range(0, 50_000, 2))
        assert reason == "finished"
        assert not [thread for thread in set(threading.enumerate()) - before if thread.name == "millstream-client"]

    run(test)


def test_instants_of_a_parquet_file_are_published_as_what_they_are(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    instants = [dt.datetime(2020, 1, 1, 20, tzinfo=dt.UTC), dt.datetime(3000, 1, 1, tzinfo=dt.UTC)]
    table = pa.table({"ts": pa.array(instants, pa.timestamp("us", "UTC"))})
    pyarrow.parquet.write_table(table, tmp_path / "adjusted.parquet")
    pyarrow.parquet.write_table(table, tmp_path / "int96.parquet", use_deprecated_int96_timestamps=True)
    local = pa.table({"ts": pa.array([dt.datetime(2020, 1, 1, 12)], pa.timestamp("us"))})
    pyarrow.parquet.write_table(local, tmp_path / "local.parquet")

    async def test(harness: Harness) -> None:
        monkeypatch.setenv("MILLSTREAM_SERVER", harness.address)

        async def command(*arguments: str) -> tuple[int, str, str]:
            code = await asyncio.to_thread(cli.run, list(arguments))
            return code, *capfd.readouterr()

        for name, zone in (("s", ""), ("z", " ZONE 'America/Los_Angeles'")):
            assert (await command("sql", "-c", f"CREATE STREAM {name} (ts TIMESTAMP) TIMESTAMP BY ts{zone}"))[0] == 0
            assert (await command("query", "submit", f"SELECT ts FROM {name}", "--name", f"all_{name}"))[0] == 0
            for file in ("adjusted", "int96"):
                assert await command("publish", name, str(tmp_path / f"{file}.parquet")) == (0, "", f"{name}: 2 rows accepted, 0 refused\n")
        code, _, refused = await command("publish", "s", str(tmp_path / "local.parquet"))
        assert (code, "column ts holds local time without a zone" in refused) == (1, True)
        assert await command("publish", "s", str(tmp_path / "adjusted.parquet"), "--finish") == (0, "", "s: 2 rows accepted, 0 refused\n")
        assert await command("publish", "z", str(tmp_path / "local.parquet"), "--finish") == (0, "", "z: 1 row accepted, 0 refused\n")
        shown = '{"ts": "2020-01-01T20:00:00Z"}\n{"ts": "3000-01-01T00:00:00Z"}\n'
        assert (await command("tail", "all_s", "--from-start", "--format", "json"))[1] == 3 * shown
        assert (await command("tail", "all_z", "--from-start", "--format", "json"))[1] == 2 * shown + '{"ts": "2020-01-01T20:00:00Z"}\n'

    run(test)


def test_publish_fills_columns_from_others_and_reads_times_as_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.csv").write_text("n,time,k\n7,06/05/2024 12:30,0\n8,2024-05-06 12:30,0\n9,31/02/2024 00:00,0\n")
    (tmp_path / "y.csv").write_text("n,k\n1,2\n")
    (tmp_path / "x.jsonl").write_text('{"at": 1715000000123, "k": 1}\n{"at": "x", "k": 1}\n')
    pyarrow.parquet.write_table(pa.table({"at": ["1715000000", "2024-05-06"], "k": [2, 3]}), tmp_path / "x.parquet")

    async def test(harness: Harness) -> None:
        monkeypatch.setenv("MILLSTREAM_SERVER", harness.address)

        async def publish(file: str, *options: str) -> tuple[int, list[str]]:
            code = await asyncio.to_thread(cli.run, ["publish", "s", str(tmp_path / file), *options])
            return code, capfd.readouterr().err.splitlines()

        client = await harness.client()
        await client.execute("CREATE STREAM s (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts DELAY 1 DAY")
        await client.execute("CREATE QUERY q AS SELECT * FROM s")
        code, err = await publish("x.csv", "--map", "ts=time", "--map", "k=n", "--time-format", "%d/%m/%Y %H:%M")
        assert (code, err[:3]) == (
            0,
            [
                "left out column k, which the stream does not have",
                "s: 1 row accepted, 2 refused",
                "  line 3: column ts: '2024-05-06 12:30' does not have the time format %d/%m/%Y %H:%M",
            ],
        )
        assert "line 4" in err[3]
        code, err = await publish("x.jsonl", "--format", "json", "--map", "ts=at", "--time-format", "ts=ms")
        assert (code, err[0]) == (0, "s: 1 row accepted, 1 refused")
        code, err = await publish("x.parquet", "--map", "ts=at", "--time-format", "s", "--finish")
        assert (code, err[0]) == (0, "s: 1 row accepted, 1 refused")
        assert "2024-05-06 (not s)" in err[1]
        assert await publish("y.csv", "--map", "ts=time") == (1, ["error: --map ts=time: there is no column time; there are n, k"])
        code, err = await publish("y.csv", "--map", "x=time")
        assert (code, "--map names x, which is not a column; s has ts, k" in err[-1]) == (2, True)
        rows = await (await client.subscribe("q", from_start=True)).to_arrow()
        day = dt.datetime(2024, 5, 6, 12, tzinfo=dt.UTC)
        times = [(7, dt.timedelta(minutes=30)), (1, dt.timedelta(minutes=53, seconds=20.123)), (2, dt.timedelta(minutes=53, seconds=20))]
        assert [(row["k"], row["ts"] - day) for row in rows.to_pylist()] == times

    run(test)


def test_every_format_leaves_out_what_the_stream_lacks_and_takes_the_rest(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"more": ["x", "y"], "V": [1, 2], "ts": pa.array([0, 1], pa.timestamp("us", "UTC"))})
    other = table.select(["more"])
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet")
    pyarrow.parquet.write_table(other, tmp_path / "other.parquet")
    with pa.OSFile(str(tmp_path / "rows.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    (tmp_path / "rows.csv").write_text("more,V,ts\nx,1,1970-01-01T00:00:00Z\ny,2,1970-01-01T00:00:01Z\n")
    (tmp_path / "rows.jsonl").write_text(
        '{"more": {"deep": 1}, "V": 1, "ts": "1970-01-01T00:00:00Z"}\n{"v": 2, "ts": "1970-01-01T00:00:01Z"}\n'
    )

    async def test(harness: Harness) -> None:
        monkeypatch.setenv("MILLSTREAM_SERVER", harness.address)

        async def command(*arguments: str) -> tuple[int, str, str]:
            code = await asyncio.to_thread(cli.run, list(arguments))
            return code, *capfd.readouterr()

        await command("sql", "-c", "CREATE STREAM s (ts TIMESTAMP, v INT) TIMESTAMP BY ts")
        await command("query", "submit", "SELECT v FROM s", "--name", "all")
        for name in ("rows.csv", "rows.jsonl", "rows.parquet", "rows.arrow"):
            code, _, err = await command("publish", "s", str(tmp_path / name))
            assert code == 0, name
            assert err.splitlines() == ["left out column more, which the stream does not have", "s: 2 rows accepted, 0 refused"], name
        code, _, err = await command("publish", "s", str(tmp_path / "other.parquet"))
        assert (code, "names no column of the stream: more" in err) == (1, True)
        await asyncio.to_thread(_finish, harness.address)
        assert (await command("tail", "all", "--from-start", "--format", "csv"))[1] == "v\n" + "1\n2\n" * 4

    run(test)


def _finish(address: str) -> None:
    with connect(address) as ms:
        ms.finish("s")


def test_a_nested_value_or_a_number_for_an_instant_is_one_refused_row(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = tmp_path / "rows.jsonl"
    lines.write_text(
        '{"ts": "1970-01-01T00:00:00Z", "t": "a"}\n'
        '{"ts": "1970-01-01T00:00:01Z", "t": {"deep": [1, {"x": null}]}}\n'
        '{"ts": "1970-01-01T00:00:02Z", "t": ["a"]}\n'
        '{"ts": 1715000000, "t": "b"}\n'
        + '{"ts": "1970-01-01T00:00:03Z", "t": ' + "[" * 100_000 + "\n"
        + '{"ts": "1970-01-01T00:00:03Z", "t": ' + "[" * 500 + "]" * 500 + "}\n"
        + '{"ts": "1970-01-01T00:00:04Z", "t": "c"}\n'
    )  # fmt: skip
    nested = "column t: {} is not TEXT (declare the column JSON, a STRUCT or a LIST, or give its parts columns of their own)"

    async def test(harness: Harness) -> None:
        monkeypatch.setenv("MILLSTREAM_SERVER", harness.address)

        def talk() -> tuple[list[tuple[int, str]], int]:
            with connect(harness.address) as ms:
                ms.execute("CREATE STREAM s (ts TIMESTAMP, t TEXT) TIMESTAMP BY ts")
                now = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
                ack = ms.publish(
                    "s", [{"ts": now, "t": "a"}, {"ts": now, "t": {"deep": 1}}, {"TS": 1715000000123, "t": "b"}, [now, "c"], [5, "d"]]
                )
                return [(r.index, r.reason) for r in ack.rejected], ack.accepted

        rejected, accepted = await asyncio.to_thread(talk)
        assert accepted == 2
        assert rejected[0] == (1, nested.format("an object"))
        assert [i for i, _ in rejected] == [1, 2, 4]
        assert "as ms it would be 2024-05-06T12:53:20.123Z" in rejected[1][1]
        code = await asyncio.to_thread(cli.run, ["publish", "s", str(lines)])
        err = capfd.readouterr().err
        assert code == 0, err
        assert err.splitlines()[0] == "s: 2 rows accepted, 5 refused"
        assert f"line 2: {nested.format('an object')}" in err
        assert f"line 3: {nested.format('a list')}" in err
        assert "line 4: column ts: 1715000000 is a number without a unit: as s it would be 2024-05-06T12:53:20Z" in err
        assert "line 5: is nested too deeply" in err
        assert "line 6: is nested too deeply" in err

    run(test)


def test_times_beyond_those_of_python_come_as_text() -> None:
    async def test(harness: Harness) -> None:
        def talk() -> tuple[list[dict[str, object]], list[dict[str, object]]]:
            with connect(harness.address) as ms:
                ms.execute("CREATE STREAM s (ts BIGINT, d BIGINT) TIMESTAMP BY ts UNIT s")
                far = "window_end - INTERVAL '1 s' + INTERVAL '9000 years' AS far"
                ms.submit(f"SELECT window_end, ARRAY_AGG(TO_TIMESTAMP(ts)) AS l, {far} FROM s [RANGE 1 SECOND SLIDE 1 SECOND]", name="q")
                results = ms.subscribe("q")
                ms.publish("s", [{"ts": 1}, {"ts": 253_402_300_799}, {"ts": 253_402_300_800}])
                ms.finish("s")
                rows = [row for batch in results for row in rows_of(batch)]
                ms.execute("CREATE TABLE t (at TIMESTAMP, k DATE, PRIMARY KEY (k))")
                ms.execute(
                    "INSERT INTO t VALUES ('+12345-01-02T03:04:05.5Z', '+12345-01-02'), ('2024-01-01', '2024-01-01'), (NULL, '0000-12-31')"
                )
                return rows, list(ms.execute("FETCH SELECT at, k FROM t"))

        rows, table = await asyncio.to_thread(talk)
        year_9999, second = dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=dt.UTC), dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)
        assert [row["window_end"] for row in rows] == [
            second + dt.timedelta(seconds=1),
            "10000-01-01T00:00:00Z",
            "10000-01-01T00:00:01Z",
        ]
        assert [row["l"] for row in rows][:2] == [[second], [year_9999]]
        assert "10000-01-01T00:00:00Z" in str(rows[2]["l"])
        assert [row["far"] for row in rows] == ["10970-01-01T00:00:01Z", "18999-12-31T23:59:59Z", "19000-01-01T00:00:00Z"]
        assert table == [
            {"at": "12345-01-02T03:04:05.500000Z", "k": "12345-01-02"},
            {"at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "k": dt.date(2024, 1, 1)},
            {"at": None, "k": "0000-12-31"},
        ]

    run(test)
