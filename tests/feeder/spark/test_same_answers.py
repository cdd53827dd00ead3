"""A script gives the same rows on Spark as under `millstream run`, in the same order, for any number of partitions.

The cuts and pieces are tried without Java, on RDDs in this process; some go through a real session (`test_on_spark.py`), and all of them
do in `make cluster`.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from millstream.engine.data.errors import InvalidDefinition, TypeProblem, UnknownName
from millstream.engine.data.schema import Schema
from millstream.engine.language import recipes
from millstream.feeder.errors import SourceError
from millstream.feeder.spark import frames
from millstream.feeder.spark.cuts import ANYWHERE, BY_KEY, MERGEABLE, ONE_PLACE
from millstream.feeder.spark.cutting import cut
from millstream.feeder.spark.explain import explained
from millstream.feeder.spark.nodes import name_of
from millstream.feeder.spark.run import SparkScript
from millstream.feeder.spark.script import read_script
from millstream.feeder.spark.stream import StreamRun
from millstream.server.run.embedded import Replay, run_replay
from pyarrow import csv

from tests.golden.test_golden import NAMES, Case, load
from tests.support.local_spark import LocalSession
from tests.support.spark_answers import CREATE, check_same, expected, on, random_script, read, rows

CASES = [name for name in NAMES if (case := load(name)).inputs and case.timeline is None and case.fails is None]
SEEDS = 24


def paths(case: Case) -> dict[str, str]:
    return {name: str(path) for name, path in case.inputs}


@pytest.mark.parametrize("name", CASES)
def test_golden_cases(name: str) -> None:
    case = load(name)
    check_same(on(LocalSession(), case.script, paths(case), 7), expected(case.script, paths(case)), name)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_queries(seed: int, tmp_path: Path) -> None:
    text, inputs = random_script(seed, tmp_path)
    want = expected(text, inputs)
    for partitions in (2, 7):
        check_same(on(LocalSession(), text, inputs, partitions), want, (partitions, text))


def several_windows(seed: int, folder: Path) -> tuple[str, dict[str, str], int]:
    """Return a script with windows that merge, some over both streams, among other random queries; its files; how many merge."""
    text, inputs = random_script(seed, folder, 3)
    choice = random.Random(seed)
    windows = []
    for _ in range(8):
        size, slide = choice.randrange(1, 9), choice.randrange(1, 5)
        source = choice.choice(("a", "a", "(SELECT k, v, x FROM a WHERE v > 1)", "(SELECT k, v, x FROM a UNION ALL SELECT k, v, x FROM b)"))
        kept = choice.choice(("", " WHERE v < 6")) if source == "a" else ""
        what = ", ".join(choice.sample(("COUNT(*) AS n", "SUM(v) AS s", "AVG(x) AS m", "MIN(x) AS l", "MAX(v) AS h"), 3))
        key, by = choice.choice((("", ""), ("k, ", " GROUP BY k")))
        windows.append(f"SELECT {key}{what}, window_end FROM {source} [RANGE {size} SECONDS SLIDE {slide} SECONDS] AS u{kept}{by}")
    return ";".join((text, *windows)), inputs, len(windows)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(3000, 3006), *(pytest.param(seed, marks=pytest.mark.cluster) for seed in range(3006, 3200))])
def test_windows_that_merge_run_in_one_job(seed: int, tmp_path: Path) -> None:
    text, inputs, merging = several_windows(seed, tmp_path)
    script = SparkScript(LocalSession(), text, inputs, 3)
    jobs = script._jobs(range(len(script.script.queries)))
    assert sum(len(job) > 1 for job in jobs) <= 4
    assert sum(len(job) for job in jobs if len(job) > 1) >= merging - 2
    check_same(read(script.tables()), expected(text, inputs), text)
    outcome = run_replay(Replay(text, [(name, Path(path)) for name, path in inputs.items()]))
    assert late_rows(script.messages) == late_rows(outcome.messages)


@pytest.mark.cluster
@pytest.mark.spark
@pytest.mark.parametrize("name", CASES)
def test_golden_cases_on_spark(name: str, spark: Any) -> None:
    case = load(name)
    want = expected(case.script, paths(case))
    for partitions in (1, 2, 7):
        check_same(on(spark, case.script, paths(case), partitions), want, (partitions, name))


@pytest.mark.cluster
@pytest.mark.parametrize("seed", range(1000, 1400))
def test_many_random_queries(seed: int, tmp_path: Path) -> None:
    text, inputs = random_script(seed, tmp_path)
    want = expected(text, inputs)
    for partitions in (1, 2, 7):
        check_same(on(LocalSession(), text, inputs, partitions), want, (partitions, text))


@pytest.mark.cluster
@pytest.mark.spark
@pytest.mark.parametrize("seed", range(2000, 2060))
def test_random_queries_on_spark(seed: int, tmp_path: Path, spark: Any) -> None:
    text, inputs = random_script(seed, tmp_path)
    want = expected(text, inputs)
    for partitions in (1, 2, 7):
        check_same(on(spark, text, inputs, partitions), want, (partitions, text))


LABELS = {
    "SELECT k, v + 1 AS w FROM a WHERE v > 3": (ANYWHERE, False, ""),
    "SELECT k, COUNT(*) AS n FROM a [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k": (MERGEABLE, False, ""),
    "SELECT MEDIAN(v) AS m FROM a [RANGE 4 SECONDS SLIDE 2 SECONDS]": (ONE_PLACE, False, "PERCENTILE_CONT without a key"),
    "SELECT k, MEDIAN(v) AS m FROM a [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k": (BY_KEY, False, ""),
    "SELECT k, COUNT(*) AS n FROM a [SESSION 2 SECONDS] GROUP BY k": (BY_KEY, False, ""),
    "SELECT x.k AS k, y.v AS v FROM a AS x JOIN b AS y ON x.k = y.k WITHIN 1 SECOND": (BY_KEY, False, ""),
    "SELECT x.v AS v FROM a AS x JOIN b AS y ON x.v > y.v WITHIN 1 SECOND": (ONE_PLACE, False, "no equality"),
    "SELECT k, SUM(v) AS s FROM a [RANGE 4 SECONDS SLIDE 4 SECONDS] GROUP BY k ORDER BY s LIMIT 1": (MERGEABLE, True, "ORDER BY LIMIT"),
    "SELECT a.k, u.item FROM a CROSS JOIN UNNEST(ARRAY[k, v]) AS u(item)": (ONE_PLACE, False, "UNNEST"),
    "SELECT v, LAG(v) OVER (PARTITION BY k) AS p FROM a": (ONE_PLACE, False, "LAG"),
}


@pytest.mark.parametrize("query", LABELS)
def test_what_a_plan_is_cut_into(query: str) -> None:
    text = "".join(CREATE.format(name=name, delay="") for name in "ab") + query
    found = cut(read_script(text).queries[0].root)
    label, has_rest, reason = LABELS[query]
    assert (found.label, found.rest is not None) == (label, has_rest)
    assert reason in found.reason


NESTED = [
    "SELECT k, u.item FROM a CROSS JOIN UNNEST(l) AS u(item)",
    "SELECT k, u.item, u.place FROM a LEFT JOIN UNNEST(l) WITH ORDINALITY AS u(item, place) ON TRUE",
    "SELECT item, COUNT(*) AS n FROM (SELECT u.item AS item FROM a CROSS JOIN UNNEST(l) AS u(item))"
    " [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY item",
    "SELECT s, COUNT(*) AS n, LAST(k) AS last FROM a [RANGE 4 SECONDS SLIDE 4 SECONDS] GROUP BY s",
    "SELECT DISTINCT l FROM a",
    "SELECT DISTINCT m FROM a",
    "SELECT x.k AS k, y.k AS other FROM a AS x JOIN b AS y ON x.s = y.s WITHIN 1 SECOND",
]


def nested_rows(folder: Path) -> tuple[str, dict[str, str]]:
    """Return two streams of nested values, among which are both zeros, NULLs and equal lists, and their files."""
    rows = [
        {"ts": f"2024-01-01T00:00:{i:02d}Z", "k": i % 5, "l": list(range(i % 4)) if i % 7 else None, "m": {"x": -0.0 if i % 2 else 0.0}}
        | {"s": {"p": -0.0 if i % 3 else 0.0, "q": None if i % 5 else "é"}}
        for i in range(40)
    ]
    text = ""
    for name in "ab":
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        text += (
            f"CREATE STREAM {name} (ts TIMESTAMP, k BIGINT, l BIGINT[], m MAP(TEXT, DOUBLE), s STRUCT(p DOUBLE, q TEXT)) TIMESTAMP BY ts;"
        )
    return text, {name: str(folder / f"{name}.jsonl") for name in "ab"}


@pytest.mark.parametrize("query", NESTED)
def test_items_and_keys_of_nested_values(query: str, tmp_path: Path) -> None:
    text, inputs = nested_rows(tmp_path)
    want = expected(text + query, inputs)
    assert want[0][1]
    check_same(on(LocalSession(), text + query, inputs, 7), want, query)


def test_a_query_that_is_split_by_key_is_cut_as_a_whole_one_is() -> None:
    window = "SELECT k, COUNT(*) AS n, SUM(x) AS total FROM a [RANGE 5 SECONDS SLIDE 5 SECONDS] GROUP BY k"
    text = CREATE.format(name="a", delay="")
    whole, split = (read_script(f"{text}{window}{option}").queries[0].root for option in ("", " WITH (split = 3)"))
    assert split == whole


def test_every_operator_has_a_name() -> None:
    def below(kind: type) -> list[type]:
        return [k for sub in kind.__subclasses__() for k in (sub, *below(sub))]

    unplanned = {recipes.KeyedJoinRecipe, recipes.SinkRecipe, recipes.AggregateRecipe}  # a base; beside the plan; named by its calls
    nothing = Schema(())
    for kind in set(below(recipes.Recipe)) - unplanned:
        if kind.__module__ != recipes.__name__:
            continue
        given = {f.name: nothing if f.name == "schema" else None for f in fields(kind) if f.default is MISSING}
        assert name_of(kind(**given)), kind


def test_a_stream_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(UnknownName, match="there is no stream aa"):
        SparkScript(LocalSession(), CREATE.format(name="a", delay="") + "SELECT k FROM a", {"aa": "x.parquet"})


def test_no_file_and_a_file_of_no_format_are_refused(tmp_path: Path) -> None:
    text = CREATE.format(name="a", delay="") + "SELECT k FROM a"
    with pytest.raises(SourceError, match="there are no files at"):
        SparkScript(LocalSession(), text, {"a": str(tmp_path / "*.parquet")}).tables()
    (tmp_path / "a.xls").write_text("")
    with pytest.raises(SourceError, match="cannot tell the format of"):
        SparkScript(LocalSession(), text, {"a": str(tmp_path / "a.xls")}).tables()


def test_parquet_times_mean_what_they_mean_without_spark(tmp_path: Path) -> None:
    """Local times are refused unless the stream has a zone; INT96 are instants, of all years; a column that lacks is named."""
    times = [dt.datetime(2024, 5, 6), dt.datetime(3024, 5, 6)]
    table = pa.table({"ts": pa.array(times, pa.timestamp("us")), "k": [1, 2]})
    pq.write_table(table, tmp_path / "local.parquet")
    pq.write_table(table, tmp_path / "int96.parquet", use_deprecated_int96_timestamps=True)
    create = "CREATE STREAM a ({} TIMESTAMP, k BIGINT) TIMESTAMP BY {}{}; SELECT {}, k FROM a"
    zoned = create.format("ts", "ts", " ZONE 'Europe/Berlin'", "ts")
    for name, text in (("local", zoned), ("int96", create.format("ts", "ts", "", "ts"))):
        (result,) = SparkScript(LocalSession(), text, {"a": str(tmp_path / f"{name}.parquet")}).tables()
        here = run_replay(Replay(text, [("a", tmp_path / f"{name}.parquet")])).results[0]
        assert [b.to_pydict() for b in result.batches] == [b.to_pydict() for b in here.batches]
        assert [year for b in result.batches for year in pc.year(b.column(0)).to_pylist()] == [2024, 3024]
    with pytest.raises(InvalidDefinition, match="holds local time without a zone"):
        SparkScript(LocalSession(), create.format("ts", "ts", "", "ts"), {"a": str(tmp_path / "local.parquet")}).tables()
    with pytest.raises(InvalidDefinition, match=r"int96\.parquet has no column at"):
        SparkScript(LocalSession(), create.format("at", "at", "", "at"), {"a": str(tmp_path / "int96.parquet")}).tables()


def test_refused_rows_have_no_place_and_are_told(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("ts,k,v,x\n2024-01-01T00:00:01Z,1,5,\nnever,1,1,\n2024-01-01T00:00:02Z,1,many,\n")
    (tmp_path / "2.csv").write_text("ts,k,v,x\n2024-01-01T00:00:03Z,2,7,1.5\n")
    text = CREATE.format(name="a", delay="") + "SELECT k, v FROM a"
    script = SparkScript(LocalSession(), text, {"a": str(tmp_path)})
    assert [batch.to_pydict() for result in script.tables() for batch in result.batches] == [{"k": [1, 2], "v": [5, 7]}]
    told = [m for m in script.messages if "refused" in m]
    assert [m.split(" (")[0] for m in told] == ["a: 2 of 4 rows refused: line 3: column ts: 'never' is not TIMESTAMP"]


def test_inputs_with_too_many_different_times_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.feeder.spark.run.STEPS_MAX", 3)
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text("ts,k\n" + "".join(f"2024-01-01T00:00:0{i}Z,1\n" for i in range(5)))
    text = "".join(CREATE.format(name=name, delay="") for name in "ab") + "SELECT k FROM a UNION ALL SELECT k FROM b"
    with pytest.raises(SourceError, match="10 different event times, more than the 3"):
        SparkScript(LocalSession(), text, {n: str(tmp_path / f"{n}.csv") for n in "ab"}).tables()


def late_rows(messages: list[str]) -> dict[str, str]:
    return {m.partition(":")[0]: found[1] for m in messages if (found := re.search(r"(\d+) late", m))}


@pytest.mark.parametrize("seed", [2, 5, 7, 16, 39, 45])
def test_late_rows_are_counted_as_in_one_place(seed: int, tmp_path: Path) -> None:
    """Among these a self-join, whose rows are late at two places, and rows that have failed before they could be late."""
    text, inputs = random_script(seed, tmp_path)
    script = SparkScript(LocalSession(), text, inputs, 3)
    assert script.script.whole is None
    script.tables()
    here = run_replay(Replay(text, [(name, Path(path)) for name, path in inputs.items()]))
    assert late_rows(script.messages) == late_rows(here.messages)
    again = list(script.messages)
    script.tables()  # tasks may run again: what they counted counts once
    assert late_rows(script.messages) == late_rows(again)


def test_late_rows_of_each_query_are_told_also_where_answers_go_to_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ts,k,v,x\n" + "".join(f"2024-01-01T00:00:{s:02}Z,1,1,\n" for s in (1, 2, 40, 3, 41, 4, 5)))
    text = CREATE.format(name="a", delay="") + (
        "CREATE QUERY sums AS SELECT k, SUM(v) AS s, window_end FROM a [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k;"
        "CREATE QUERY all_rows AS SELECT k, v FROM a"
    )
    script = SparkScript(LocalSession(), text, {"a": str(tmp_path / "a.csv")}, 2)
    list(script.write({0: str(tmp_path / "out")}))
    script.tables(leave_out=["sums"])
    assert [m for m in script.messages if "late" in m] == ["sums: 3 late rows"]


def test_tasks_are_told_whole_paths_as_executors_stand_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "a.csv").write_text("ts,k,v,x\n2024-01-01T00:00:01Z,1,1,\n")
    text = CREATE.format(name="a", delay="") + "CREATE QUERY q AS SELECT k FROM a"
    script = SparkScript(LocalSession(), text, {"a": "a.csv"}, 2)
    results = script._results([0]).mapPartitions(in_another_folder(tmp_path / "elsewhere"))
    script._results = lambda _: results  # type: ignore[method-assign]
    assert list(script.write({0: "out"})) == [(0, 1)]
    assert [path.name for path in sorted((tmp_path / "out").iterdir())] == ["_SUCCESS", "part-00000.parquet"]
    monkeypatch.chdir(tmp_path)
    run = StreamRun(LocalSession(), text, {"a": "in"}, {"q": "out"}, "check")
    assert (run.checkpoint, run.outputs) == (tmp_path / "check", {"q": str(tmp_path / "out")})


def in_another_folder(folder: Path) -> Any:
    def moved(items: Any) -> Any:
        os.chdir(folder)
        return items

    return moved


def test_batches_of_a_data_frame_become_blocks_that_are_large_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = pa.record_batch({"v": np.arange(10, dtype=np.int64)})

    def blocks(count: int) -> list[int]:
        return [pa.ipc.open_stream(row.column(0)[0].as_py()).read_all().num_rows for row in frames.stretches([batch] * count)]

    assert (blocks(0), blocks(50)) == ([], [500])
    monkeypatch.setattr(frames, "STRETCH_ROWS", 35)
    assert blocks(7) == [30, 30, 10]
    monkeypatch.setattr(frames, "STRETCH_BYTES", 2 * batch.nbytes)
    assert blocks(3) == [20, 10]
    monkeypatch.setattr(frames, "STRETCH_BYTES", 1)  # a batch that is too large by itself is a block
    assert blocks(2) == [10, 10]


def test_an_explanation_names_aggregates_with_what_they_are_asked_of() -> None:
    text = CREATE.format(name="a", delay="") + (
        "CREATE QUERY q AS SELECT k, COUNT(*) AS n, COUNT(v) AS m, COUNT(DISTINCT x) AS d, SUM(v * v) AS s, window_end"
        " FROM a [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k;"
        "CREATE QUERY r AS SELECT SUM(v) FILTER (WHERE k > 3) AS y FROM a EMIT FINAL;"
        "CREATE QUERY t AS SELECT k FROM a GROUP BY k EMIT FINAL"
    )
    lines = [line.strip().rsplit("  ", 1)[0].strip() for line in explained(text)]
    assert "COUNT(*), COUNT(v), COUNT(DISTINCT x), SUM(v * v) hopping window" in lines
    assert "SUM(v) FILTER (WHERE k > 3)" in lines
    assert "GROUP BY" in lines


MAPPED = (
    CREATE.format(name="a", delay=" DELAY 5 SECONDS")
    + "SELECT k, COUNT(*) AS n, SUM(v) AS s, window_end FROM a [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k"
)


@pytest.mark.parametrize("kind", ["parquet", "parquet of other types", "csv"])
def test_columns_of_other_names_and_times_of_another_format(kind: str, tmp_path: Path) -> None:
    table = rows(np.random.default_rng(3), 90)
    mapped, formats = ["ts=When", "v=val"], []
    if kind != "parquet":
        times = pc.strftime(table["ts"], "%d.%m.%Y %H:%M:%S") if kind == "csv" else pc.divide(pc.cast(table["ts"], pa.int64()), 1_000)
        formats = ["ts=%d.%m.%Y %H:%M:%S.%f"] if kind == "csv" else ["ms"]
        table = table.set_column(0, "ts", times)
    table = table.rename_columns(["When", "k", "val", "x"])
    path = tmp_path / f"rows.{kind.split()[0]}"
    if kind == "csv":
        csv.write_csv(table, path)
    else:
        pq.write_table(table, path, row_group_size=20)
    outcome = run_replay(Replay(MAPPED, [("a", path)], maps=mapped, time_formats=formats))
    assert outcome.failure is None
    want = read(outcome.results)
    assert len(want[0][1]) > 20
    check_same(read(SparkScript(LocalSession(), MAPPED, {"a": str(path)}, 3, mapped, formats).tables()), want, kind)


def test_what_is_said_of_a_map_that_means_nothing(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(rows(np.random.default_rng(3), 9), path)
    with pytest.raises(SourceError, match="--map names tz, which is not a column; a has ts, k, v, x"):
        SparkScript(LocalSession(), MAPPED, {"a": str(path)}, 3, ["tz=ts"])
    with pytest.raises(TypeProblem, match="--map v=w: there is no column w; there are ts, k, v, x"):
        SparkScript(LocalSession(), MAPPED, {"a": str(path)}, 3, ["v=w"]).tables()
