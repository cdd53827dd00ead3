"""An archive in an S3 store: moto's server, a real S3 API on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from tests.integration.test_archive import SETTINGS, STREAM, archive_of, rows, settle
from tests.support.live_server import Harness, running

moto = pytest.importorskip("moto.server", reason="moto, an S3 server for tests, is not installed")
KEY = "testing"


@pytest.fixture(name="store")
def fixture_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name, value in (("ACCESS_KEY_ID", KEY), ("SECRET_ACCESS_KEY", KEY), ("EC2_METADATA_DISABLED", "true"), ("REGION", "us-east-1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def opened(store: Any) -> Any:
    host, port = store.get_host_and_port()
    allowed = {"allow_bucket_creation": True, "allow_bucket_deletion": True}
    return fs.S3FileSystem(access_key=KEY, secret_key=KEY, scheme="http", endpoint_override=f"{host}:{port}", region="us-east-1", **allowed)


def committed(system: Any, harness: Harness) -> list[int]:
    files = archive_of(harness).state.files
    tables = [pq.read_table(f"bucket/s/{file.path}", filesystem=system, partitioning=None) for file in files]
    return sorted(v for table in tables for v in table["v"].to_pylist())


def test_rows_go_to_a_bucket_and_wait_in_the_journal_while_it_refuses_them(tmp_path: Path, store: Any) -> None:
    system = opened(store)
    system.create_dir("bucket")
    host, port = store.get_host_and_port()
    into = f"INTO 's3://bucket/s?scheme=http&endpoint_override={host}:{port}' PARTITION BY DAY"

    async def test() -> None:
        async with running(data_dir=str(tmp_path), **SETTINGS) as harness:
            client = await harness.client()
            await client.execute(STREAM.format("journal", into))
            for part in range(8):
                await client.publish("s", rows(part * 3, part * 3 + 3))
                await settle(harness)
            assert committed(system, harness) == list(range(24))
            assert len(archive_of(harness).state.files) == 1  # they were merged
            there = system.get_file_info(fs.FileSelector("bucket/s", recursive=True))
            assert [info.path for info in there if info.is_file] == [f"bucket/s/{f.path}" for f in archive_of(harness).state.files]
            system.delete_dir("bucket")
            await client.publish("s", rows(24, 27))
            await settle(harness)
            shown = (await client.execute("SHOW ARCHIVES")).rows[0]
            assert (shown["failures"], shown["place"]) == (1, "s3://bucket/s")
            assert shown["last_error"]
        async with running(data_dir=str(tmp_path), **SETTINGS) as harness:  # also a start does without the store
            system.create_dir("bucket")
            await settle(harness)
            files = archive_of(harness).state.files
            assert sum(file.rows for file in files) == 27
            table = pq.read_table(f"bucket/s/{files[-1].path}", filesystem=system, partitioning=None)
            assert table["v"].to_pylist() == [24, 25, 26]

    asyncio.run(test())
