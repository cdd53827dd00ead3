"""A query tried on files that a user gives, before it is started: `millstream run` over them, with the server's own streams.

What runs is one SELECT, which the server has explained under the user's token: no statement of another kind gets into the script.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from millstream.client.connection import AsyncClient
from millstream.client.console.pages import Connector
from millstream.client.console.processes import Alone, Bounds, printed
from millstream.client.errors import MillstreamError
from millstream.client.statements import quoted

FILES_MAX = 8
FILES_BYTES_MAX = 16_777_216
TRY_S_MAX = 60.0
ROWS_TOLD_MAX = 1_000
MESSAGES_MAX = 20
STREAMS_MAX = 64
ENDINGS = (".csv", ".json", ".jsonl", ".ndjson", ".parquet", ".arrow")
_TIME = re.compile(r"TIMESTAMP BY (?!ARRIVAL\b)(.+?)(?= (?:UNIT|ROUND|ZONE|DELAY|SKEW|IDLE|FLUSH)\b|$)")
_REST = re.compile(r" LATE (?:INTO|DROP)\b.*", re.DOTALL)  # what is for a stream that lives: other streams, archive, durability


class Tries:
    """Runs queries on files. Whoever asks for one takes his turn first (`alone`): files are much to hold."""

    def __init__(self, seconds_max: float = TRY_S_MAX) -> None:
        self.alone = Alone("another try on files")
        self._bounds = Bounds(seconds_max, "take fewer rows")

    async def on_files(self, connections: Connector, token: str | None, asked: dict[str, Any]) -> dict[str, Any]:
        """Return the rows that a query gives for the `files` of its streams, the first of many, and what was said meanwhile.

        MillstreamError when the query is refused or fails, or when it takes too much; ValueError for a request that is none.
        """
        sql, files, time_format = asked.get("sql"), asked.get("files"), asked.get("time_format")
        if not isinstance(sql, str) or not isinstance(files, dict) or not 0 < len(files) <= FILES_MAX:
            raise ValueError(f"a try has a query and 1 to {FILES_MAX} files")
        if time_format is not None and not isinstance(time_format, str):
            raise ValueError("time_format is a text")
        with TemporaryDirectory(prefix="millstream-console-") as folder:
            inputs = await asyncio.to_thread(_written, Path(folder), files)
            async with connections.one(token) as client:
                await client.execute(f"EXPLAIN\n{sql}")
                definitions = await _definitions(client, sql, set(files))
            script = Path(folder) / "try.sql"
            await asyncio.to_thread(script.write_text, ";\n".join([*definitions, sql]), "utf-8")
            words = ["run", str(script), "--format", "json", *(word for pair in inputs for word in ("--input", pair))]
            words += ["--time-format", time_format] if time_format else []
            said: list[str] = []
            lines = (await printed("the try", tuple(words), self._bounds, said.append)).splitlines()
        rows = [json.loads(line) for line in lines[:ROWS_TOLD_MAX]]
        return {"rows": rows, "rows_in_all": len(lines), "messages": said[-MESSAGES_MAX:]}


def _written(folder: Path, files: Mapping[str, Any]) -> list[str]:
    """Write the files into a folder and return them as `--input` takes them, STREAM=FILE."""
    inputs, left = [], FILES_BYTES_MAX
    for number, (stream, file) in enumerate(files.items()):
        match file:
            case {"name": str(name), "data": str(data)}:
                ending = Path(name).suffix.lower()
            case _:
                raise ValueError("a file has a name and data")
        if ending not in ENDINGS:
            hint = f"give one whose name ends in {', '.join(ENDINGS)}"
            raise MillstreamError("invalid", f"{name} is none of the files that can be read", hint)
        content = base64.b64decode(data, validate=True)
        left -= len(content)
        if left < 0:
            raise MillstreamError("limit", f"the files of a try have {FILES_BYTES_MAX} bytes at most", "take a part of them")
        path = folder / f"{number}{ending}"
        path.write_bytes(content)
        inputs.append(f"{stream}={path}")
    return inputs


async def _definitions(client: AsyncClient, sql: str, given: set[str]) -> list[str]:
    """Return statements that make the streams of a query anew, those that others are derived from first."""
    streams = {str(row["name"]): row for row in await client.execute("SHOW STREAMS")}
    unknown = given - streams.keys()
    if unknown:
        raise MillstreamError("not_found", f"there is no stream {min(unknown)}")
    wanted: dict[str, str] = {}

    async def want(text: str) -> None:
        for name, row in streams.items():
            if name in wanted or not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE):
                continue
            if len(wanted) >= STREAMS_MAX:
                raise MillstreamError("limit", f"a try reads {STREAMS_MAX} streams at most")
            definition = str(row["definition"])
            if row["kind"] == "derived":
                wanted[name] = ""  # its place is behind what it reads
                await want(definition)
                del wanted[name]
                wanted[name] = f"CREATE STREAM {quoted(name)} AS {definition}"
            else:
                described = await client.execute(f"DESCRIBE STREAM {quoted(name)}")
                columns = ", ".join(
                    f"{quoted(str(column['column']))} {column['type']}{'' if column['nullable'] else ' NOT NULL'}" for column in described
                )
                rule = _TIME.sub(lambda found: f"TIMESTAMP BY {quoted(found[1])}", _REST.sub("", definition))
                wanted[name] = f"CREATE STREAM {quoted(name)} ({columns}) {rule}"

    await want(" ".join([sql, *given]))
    return list(wanted.values())
