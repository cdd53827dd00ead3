"""Stored data as Spark reads it: CSV, JSON lines, Parquet, ORC; any path, glob or address that Spark understands.

Every reader also says where a row stands (path argument, file, start of its block) and, for text, which rows could not be parsed.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from millstream.client.inputs import separator_in
from millstream.feeder.errors import SourceError
from millstream.feeder.numbering import BLOCK, FILE, SOURCE

BROKEN = "_broken"  # the text of a row that could not be parsed, else NULL
EXTENSIONS = {
    "csv": "csv",
    "tsv": "csv",
    "json": "jsonl",
    "jsonl": "jsonl",
    "ndjson": "jsonl",
    "parquet": "parquet",
    "pq": "parquet",
    "orc": "orc",
}
_COMPRESSIONS = {"gz", "bz2", "zst", "lz4", "snappy", "deflate"}
_UNREADABLE = {"xz", "7z", "zip", "rar"}
# Only quoting tells an empty text from none. Spark's reader calls both NULL when "" is its mark of NULL; no file holds this one.
_NOTHING = "\x00\x01"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How to read: the format (None: by the files' names), the NULL mark and delimiter of CSV, whether a CSV value may span lines."""

    format: str | None = None
    null: str = ""
    delimiter: str | None = None
    one_line: bool = False


def check_paths(paths: Sequence[str]) -> None:
    """Raise SourceError for a path of this machine at which nothing is, which Spark would find out some seconds later.

    Addresses, and all paths where Hadoop's settings may place them elsewhere, are left to Spark.
    """
    if "HADOOP_CONF_DIR" in os.environ:
        return
    for path in paths:
        if re.match(r"[a-z][a-z0-9+.-]*:", path) is None and "{" not in path and not glob.glob(path) and not os.path.exists(path):
            raise SourceError(f"there is nothing at {path}", hint="give a file, a folder or a pattern such as 'rows/*.csv'")


def read(session: Any, paths: Sequence[str], options: ReadOptions, json_columns: Sequence[str] | None) -> Any:
    """Return one data frame over all paths, in their order, with the columns SOURCE, FILE, BLOCK and BROKEN beside the data.

    `json_columns` are the fields wanted from JSON lines; None: look for all, which reads the files once more.
    """
    frames = []
    for position, path in enumerate(paths):
        with reading(path):
            frames.append(_read_one(session, path, position, options, json_columns))
    return reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), frames)


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn whatever Spark raises inside into a SourceError that says what was being read and why it did not work."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise SourceError(f"cannot read {what}: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """Return the sentence of a Spark error, without its class mark, plan and trace; of a Java error that of its first cause."""
    java = getattr(error, "java_exception", None)
    while java is not None and java.getCause() is not None:
        java = java.getCause()
    text = str(error) if java is None else str(java.getMessage() or java.toString())
    return text.strip().splitlines()[0].split("] ", 1)[-1]


def format_of(path: str) -> str | None:
    """Return the format that a file name speaks of, None when it says nothing; raises SourceError for what Spark cannot open."""
    parts = path.rstrip("/*").rsplit("/", 1)[-1].lower().split(".")
    if parts[-1] in _UNREADABLE:
        raise SourceError(f"{path} is packed with {parts[-1]}, which Spark does not read", hint="unpack it, or pack it with gzip")
    if parts[-1] in _COMPRESSIONS:
        parts.pop()
    return EXTENSIONS.get(parts[-1]) if len(parts) > 1 else None


def is_columnar(paths: Sequence[str], options: ReadOptions) -> bool:
    """Return whether all the files are known to be Parquet or ORC, which hold no broken rows."""
    return all((options.format or format_of(path)) in {"parquet", "orc"} for path in paths)


def _read_one(session: Any, path: str, position: int, options: ReadOptions, json_columns: Sequence[str] | None) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    kind = options.format or format_of(path) or _format_of_files(session, path)
    if kind == "csv":
        frame = _read_csv(session, path, options)
    elif kind == "jsonl":
        frame = _read_json(session, path, json_columns)
    else:
        frame = session.read.format(kind).load(path).withColumn(BROKEN, F.lit(None).cast("string"))
    return frame.select(
        *[F.col(f"`{name}`") for name in frame.columns],
        F.lit(position).alias(SOURCE),
        F.col("_metadata.file_path").alias(FILE),
        F.col("_metadata.file_block_start").alias(BLOCK),
    )


def _format_of_files(session: Any, path: str) -> str:
    files = session.read.format("binaryFile").load(path).inputFiles()
    found = {format_of(file) for file in files}
    if len(found) == 1 and None not in found:
        return str(found.pop())
    seen = ", ".join(sorted(file.rsplit("/", 1)[-1] for file in files)[:3])
    raise SourceError(f"cannot tell the format of {path} ({seen})", hint="give --format csv, jsonl, parquet or orc")


def _read_csv(session: Any, path: str, options: ReadOptions) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    delimiter = options.delimiter or ("\t" if path.lower().rstrip("*").rsplit("/", 1)[-1].split(".")[1:2] == ["tsv"] else ",")
    reader = session.read.option("header", True).option("sep", delimiter).option("quote", '"').option("escape", '"')
    names = reader.csv(path).columns
    if options.delimiter is None and len(names) == 1 and (other := separator_in(names[0])) != delimiter:
        return _read_csv(session, path, replace(options, delimiter=other))
    schema = ", ".join(f"`{name.replace('`', '``')}` STRING" for name in [*names, BROKEN])
    reader = (
        session.read.option("header", True)
        .option("sep", delimiter)
        .option("quote", '"')
        .option("escape", '"')
        .option("nullValue", _NOTHING)
        .option("emptyValue", "")
        .option("multiLine", not options.one_line)
        .option("mode", "PERMISSIVE")
        .option("columnNameOfCorruptRecord", BROKEN)
        .option("maxCharsPerColumn", -1)
    )
    frame = reader.schema(schema).csv(path)
    if not options.null:
        return frame
    marked = [F.when(F.col(f"`{name}`") != options.null, F.col(f"`{name}`")).alias(name) for name in names]
    return frame.select(*marked, BROKEN, "_metadata")


def _read_json(session: Any, path: str, columns: Sequence[str] | None) -> Any:
    reader = session.read.option("columnNameOfCorruptRecord", BROKEN).option("mode", "PERMISSIVE").option("primitivesAsString", True)
    if columns is None:
        found = reader.json(path)
        columns = [f"`{f.name.replace('`', '``')}` {f.dataType.simpleString()}" for f in found.schema.fields if f.name != BROKEN]
    else:
        columns = [f"`{name.replace('`', '``')}` STRING" for name in columns]
    return reader.schema(", ".join([*columns, f"{BROKEN} STRING"])).json(path)
