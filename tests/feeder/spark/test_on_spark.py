"""Through a real session: each kind of cut, DataFrames both ways, files written by tasks that fail at first, and what is said of errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from millstream.feeder.errors import SourceError, what_failed
from millstream.feeder.spark.run import SparkScript, run
from millstream.protocol.values.text import json_lines
from millstream.server.run.embedded import Replay, run_replay
from pyarrow import parquet

from tests.support.spark_answers import CREATE, check_same, expected, on, rows

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TEXT = "".join(CREATE.format(name=name, delay=" DELAY 1 SECOND") for name in "ab") + ";".join(
    (
        "CREATE QUERY plain AS SELECT k, v FROM a WHERE v > 3",
        "CREATE QUERY merged AS SELECT k, SUM(v) AS s, AVG(x) AS m, window_end FROM a [RANGE 10 SECONDS SLIDE 5 SECONDS] GROUP BY k",
        "CREATE QUERY keyed AS SELECT k, LAST(v) AS l, MEDIAN(x) AS m, window_end FROM a [SESSION 2 SECONDS] GROUP BY k",
        "CREATE QUERY joined AS SELECT x.k AS k, x.v AS xv, y.v AS yv FROM a AS x LEFT JOIN b AS y ON x.k = y.k WITHIN 1 SECOND",
        "CREATE QUERY best AS SELECT k, SUM(v) AS s FROM a [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k ORDER BY s DESC LIMIT 2",
    )
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("rows")
    rng = np.random.default_rng(5)
    for name in "ab":
        (folder / name).mkdir()
        for part in range(2):
            parquet.write_table(rows(rng, 90), folder / name / f"{part}.parquet", row_group_size=40)
        parquet.write_table(
            pa.concat_tables([parquet.read_table(folder / name / f"{p}.parquet") for p in range(2)]), folder / f"{name}.parquet"
        )
    return {"folder": str(folder), "a": str(folder / "a"), "b": str(folder / "b")}


def place(row: dict[str, Any]) -> str:
    """Order rows by what is not a float, as the answers of a DataFrame have no order."""
    return json.dumps({name: value for name, value in row.items() if not isinstance(value, float)})


def inputs(files: dict[str, str]) -> dict[str, str]:
    return {name: files[name] for name in "ab"}


def whole(files: dict[str, str]) -> dict[str, str]:
    return {name: f"{files['folder']}/{name}.parquet" for name in "ab"}


def test_each_kind_of_cut_gives_the_rows_of_millstream_run(spark: Any, files: dict[str, str]) -> None:
    check_same(on(spark, TEXT, inputs(files), 3), expected(TEXT, whole(files)), "folders of files")


def test_data_frames_go_in_and_come_out(spark: Any, files: dict[str, str]) -> None:
    frames = {name: spark.read.parquet(files[name]).coalesce(1) for name in "ab"}
    answers = run(spark, TEXT, {"a": frames["a"], "b": files["b"]}, partitions=2)
    assert list(answers) == ["plain", "merged", "keyed", "joined", "best"]
    # Spark reads the files of a folder in an order of its own: what is expected is the answer over the rows as they come.
    seen = str(Path(files["folder"]) / "seen.parquet")
    parquet.write_table(frames["a"].toArrow(), seen)
    want = dict(expected(TEXT, {"a": seen, "b": whole(files)["b"]}))
    for name in ("plain", "merged", "joined"):
        found = [json.loads(line) for batch in answers[name].toArrow().to_batches() for line in json_lines(batch).splitlines()]
        check_same([(name, sorted(found, key=place))], [(name, sorted(want[name], key=place))], name)
    assert answers["merged"].schema.simpleString() == "struct<k:bigint,s:decimal(38,0),m:double,window_end:timestamp>"
    assert answers["merged"].where("k IS NULL").count() == sum(row["k"] is None for row in want["merged"])


def test_nested_columns_leave_as_spark_s_own(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        '{"ts": "2024-01-01T00:00:00Z", "l": [1, null], "m": {"x": 2}, "s": {"p q": 0.5, "t": [{"u": "é"}]}, "j": {"a": [1]}}\n'
    )
    text = (
        'CREATE STREAM a (ts TIMESTAMP, l BIGINT[], m MAP(TEXT, BIGINT), s STRUCT("p q" DOUBLE, t STRUCT(u TEXT)[]), j JSON)'
        " TIMESTAMP BY ts; SELECT l, m, s, j FROM a"
    )
    (row,) = run(spark, text, {"a": str(tmp_path / "a.jsonl")}, partitions=1)["q1"].collect()
    assert row.asDict(recursive=True) == {"l": [1, None], "m": {"x": 2}, "s": {"p q": 0.5, "t": [{"u": "é"}]}, "j": '{"a": [1]}'}


def test_a_signal_to_the_group_does_not_reach_java(spark: Any) -> None:
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    assert gateway is not None
    assert os.getpgid(gateway.proc.pid) != os.getpgrp()


def test_files_are_written_once_though_tasks_fail_at_first(spark: Any, files: dict[str, str], tmp_path: Path) -> None:
    script = SparkScript(spark, TEXT, inputs(files), 3)
    number = [q.name for q in script.script.queries].index("keyed")
    marks = str(tmp_path / "tried")
    Path(marks).mkdir()
    plain = script._results([number])

    def fails_once(part: int, items: Any) -> Any:
        kept = list(items)
        mark = Path(marks) / str(part)
        if not mark.exists():
            mark.touch()
            if part == 1:
                os._exit(1)  # the Python worker dies as under kill -9
            raise OSError("the disk went away")
        return kept

    script._results = lambda _: plain.mapPartitionsWithIndex(fails_once)  # type: ignore[method-assign]
    ((_, written),) = script.write({number: str(tmp_path / "out")})
    assert written == len(dict(expected(TEXT, whole(files)))["keyed"])


def test_an_answer_in_files(spark: Any, files: dict[str, str], tmp_path: Path) -> None:
    script = SparkScript(spark, TEXT, inputs(files), 2)
    want = dict(expected(TEXT, whole(files)))["keyed"]
    assert list(script.write({2: str(tmp_path / "out")})) == [(2, len(want))]
    table = parquet.read_table(tmp_path / "out")
    assert table.num_rows == len(want)
    assert sorted(row["l"] is None for row in table.to_pylist()) == sorted(row["l"] is None for row in want)
    assert not list((tmp_path / "out").glob("_staging*"))
    with pytest.raises(SourceError, match="is not empty"):
        list(script.write({2: str(tmp_path / "out")}))


def test_a_bad_row_of_a_stream_that_fails_is_told_in_one_sentence(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ts,k\nnever,1\n")
    text = "CREATE STREAM a (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts ON ERROR FAIL; SELECT k FROM a"
    with pytest.raises(Exception, match="'never' is not TIMESTAMP") as caught:
        SparkScript(spark, text, {"a": str(tmp_path / "a.csv")}).tables()
    sentence = what_failed(caught.value)
    assert sentence is not None
    assert sentence.startswith("a: line 2: column ts: 'never' is not TIMESTAMP")


@pytest.mark.cluster
@pytest.mark.timeout(1500)
def test_the_benchmark_gives_figures_and_its_answers_are_those_of_spark() -> None:
    program = Path(sys.executable).with_name("millstream")
    done = subprocess.run([str(program), "bench", "spark", "--quick", "--format", "json"], capture_output=True, text=True, timeout=1_400)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["name"] for line in lines] == [
        "spark-chain", "spark-window", "spark-chain-frames", "spark-window-frames", "spark-batch",
        "spark-join", "spark-sharing",
    ]  # fmt: skip
    assert all(line["ratio"] > 0 for line in lines if line["name"] != "spark-batch")


def test_late_rows_are_counted_in_tasks_and_told(spark: Any, files: dict[str, str]) -> None:
    script = SparkScript(spark, TEXT, inputs(files), 3)
    script.tables()
    outcome = run_replay(Replay(TEXT, [(name, Path(path)) for name, path in whole(files).items()]))
    told = [{m.partition(",")[0] for m in messages if " late" in m} for messages in (script.messages, outcome.messages)]
    assert told[0] == told[1]
    assert len(told[0]) > 1
