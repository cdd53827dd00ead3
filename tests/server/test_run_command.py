"""`millstream run` as its users meet it: output, messages, exit codes."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from millstream.server.run.run_command import command

STREAM = "CREATE STREAM s (ts BIGINT, v INT) TIMESTAMP BY ts UNIT s;\n"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "rows.csv").write_text("ts,v\n1715000001,10\n1715000002,20\n", "utf-8")
    (tmp_path / "bad.csv").write_text("ts,v\n1,10\n2,x\n3,30\n", "utf-8")
    return tmp_path


def run(folder: Path, script: str, *arguments: str) -> Result:
    path = folder / "script.sql"
    path.write_text(script, "utf-8")
    return CliRunner().invoke(command, [str(path), *arguments])


def with_rows(folder: Path, name: str = "rows.csv") -> Sequence[str]:
    return ("--input", f"s={folder / name}")


def test_a_folder_and_a_pattern_mean_their_files(files: Path) -> None:
    (files / "day").mkdir()
    for day, name in enumerate(("a.csv", "b.csv", ".hidden.csv"), 1):
        (files / "day" / name).write_text(f"ts,v\n{day},{day}\n{day},x\n", "utf-8")
    for place in ("day", "day/*.csv", "day/[ab].csv"):
        found = run(files, STREAM + "SELECT v FROM s;", "--input", f"s={files / place}", "--format", "json")
        assert found.stdout == '{"v": 1}\n{"v": 2}\n'
        assert found.stderr == "s: 1 of 2 rows refused: line 3: column v: 'x' is not INT\n" * 2
    none = run(files, STREAM + "SELECT v FROM s;", "--input", f"s={files / 'week' / '*.csv'}")
    assert "give a file, a folder or a pattern" in none.stderr


@pytest.mark.parametrize("train", [1, 3, None])
def test_rows_of_one_stream_from_several_files_come_by_event_time(tmp_path: Path, train: int | None) -> None:
    """However its rows lie in files, a stream's answers are those of one file."""
    choice = random.Random(train or 7)
    script = (
        STREAM + "CREATE STREAM r (ts BIGINT, w INT) TIMESTAMP BY ts UNIT s;"
        "SELECT window_end, COUNT(*) AS n, ARRAY_AGG(v) AS vs FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS];"
        "SELECT v, w FROM s JOIN r ON s.v = r.w WITHIN 4 SECONDS;"
    )
    files: list[list[str]] = [["ts,v"] for _ in range(3)]
    for at in range(90):
        choice.choice(files).append(f"{at},{at % 7}")
    whole = sorted((line for lines in files for line in lines[1:]), key=lambda line: int(line.split(",")[0]))
    for name, lines in [("whole", ["ts,v", *whole]), *((str(n), lines) for n, lines in enumerate(files))]:
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n", "utf-8")
    (tmp_path / "r.csv").write_text("ts,w\n" + "".join(f"{at},{at % 5}\n" for at in range(0, 90, 4)), "utf-8")
    more = ["--input", f"r={tmp_path / 'r.csv'}", "--format", "json", *(() if train is None else ("--train", str(train)))]
    wanted = run(tmp_path, script, "--input", f"s={tmp_path / 'whole.csv'}", *more)
    each = [part for n in range(3) for part in ("--input", f"s={tmp_path / f'{n}.csv'}")]
    assert run(tmp_path, script, *each, *more).stdout == wanted.stdout
    for n in range(3):
        (tmp_path / f"{n}.csv").write_text("\n".join(["ts,v", *whole[30 * n : 30 * n + 30]]) + "\n", "utf-8")
    assert run(tmp_path, script, "--input", f"s={tmp_path / '[012].csv'}", *more).stdout == wanted.stdout
    assert wanted.stdout.count("\n") > 40
    assert not wanted.stderr


def test_a_script_that_reads_what_is_not_there_is_told_what_makes_it(files: Path) -> None:
    found = run(files, STREAM + "SELECT v FROM elsewhere;", *with_rows(files))
    assert "column 15); CREATE STREAM makes one, or an input of that name does" in found.stderr


def test_one_result_stands_alone_and_several_stand_under_their_names(files: Path) -> None:
    one = run(files, STREAM + "SELECT v FROM s;", *with_rows(files), "--format", "json")
    assert (one.exit_code, one.stdout, one.stderr) == (0, '{"v": 10}\n{"v": 20}\n', "")
    two = run(files, STREAM + "SELECT v FROM s WHERE v > 50; SELECT v FROM s;", *with_rows(files), "--format", "json")
    assert two.stdout == '-- q1\n-- q2\n{"v": 10}\n{"v": 20}\n'


def test_csv_has_a_header_also_without_rows(files: Path) -> None:
    result = run(files, STREAM + 'SELECT v, v + 1 AS "w,x" FROM s WHERE v > 50;', *with_rows(files), "--format", "csv")
    assert result.stdout == 'v,"w,x"\n'


def test_arrow_is_a_stream_with_the_types(files: Path) -> None:
    result = run(files, STREAM + "SELECT v FROM s;", *with_rows(files), "--format", "arrow")
    table = pa.ipc.open_stream(result.stdout_bytes).read_all()
    assert table.column("v").to_pylist() == [10, 20]
    assert table.schema.field("v").type == pa.int32()


def test_a_table_is_aligned(files: Path) -> None:
    result = run(files, STREAM + "SELECT v, 'é' AS word FROM s;", *with_rows(files))
    assert result.stdout.splitlines() == ["v  | word", "---+-----", "10 | é", "20 | é", "(2 rows)"]


def test_bad_rows_are_counted_and_the_run_succeeds(files: Path) -> None:
    result = run(files, STREAM + "SELECT v FROM s;", *with_rows(files, "bad.csv"), "--format", "json")
    assert (result.exit_code, result.stdout) == (0, '{"v": 10}\n{"v": 30}\n')
    assert "s: 1 of 3 rows refused: line 3" in result.stderr


def test_a_run_fails_when_rows_came_for_a_stream_and_none_was_accepted(files: Path) -> None:
    (files / "useless.csv").write_text("ts,v\n1,x\n2,y\n", "utf-8")
    result = run(files, STREAM + "SELECT COUNT(*) AS n FROM s EMIT FINAL;", *with_rows(files, "useless.csv"), "--format", "json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "Error: s: none of 2 rows was accepted" in result.stderr
    (files / "t.jsonl").write_text('{"stream": "s", "row": {"ts": 1, "v": "x"}}\n{"advance": "1 s"}\n', "utf-8")
    assert run(files, STREAM + "SELECT v FROM s;", "--timeline", str(files / "t.jsonl")).exit_code == 1
    (files / "t.jsonl").write_text('{"stream": "s", "row": {"ts": 1, "v": 1}}\n', "utf-8")
    both = (*with_rows(files, "useless.csv"), "--timeline", str(files / "t.jsonl"))
    assert run(files, STREAM + "SELECT v FROM s;", *both).exit_code == 0
    (files / "empty.csv").write_text("ts,v\n", "utf-8")
    assert run(files, STREAM + "SELECT v FROM s;", *with_rows(files, "empty.csv")).exit_code == 0


TIMED = "CREATE STREAM s (ts TIMESTAMP, v INT) TIMESTAMP BY ts{zone};\nSELECT ts, v FROM s;"


@pytest.mark.parametrize("name", ["x.csv", "x.jsonl", "x.parquet", "x.arrow", "x.csv.zst", "x.jsonl.gz"])
def test_columns_of_other_names_and_times_in_other_formats_are_read_from_every_kind_of_file(files: Path, name: str) -> None:
    rows = [("06.05.2024 12:00", 1), ("2024-05-06 12:00", 2), (None, 3), ("31.02.2024 00:00", 4), ("7.5.2024 1:30", 5)]
    table = pa.table({"V": [v for _, v in rows], "when": [time for time, _ in rows], "ts": [0] * len(rows)})
    path = files / name
    text = "V,when,ts\n" + "".join(f"{v},{time or ''},0\n" for time, v in rows)
    if ".jsonl" in name:
        text = "".join(json.dumps(row) + "\n" for row in table.to_pylist())
    if name.endswith(".parquet"):
        pq.write_table(table, path)
    elif name.endswith(".arrow"):
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    elif name.endswith(".zst"):
        path.write_bytes(pa.compress(text.encode(), codec="zstd", asbytes=True))
    else:
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    told = ("--input", f"s={path}", "--map", "ts=when", "--map", "s.v=V", "--time-format", "%d.%m.%Y %H:%M", "--format", "json")
    result = run(files, TIMED.format(zone=" ZONE 'Europe/Berlin'"), *told)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == '{"ts": "2024-05-06T10:00:00Z", "v": 1}\n{"ts": "2024-05-06T23:30:00Z", "v": 5}\n'
    assert "s: 3 of 5 rows refused" in result.stderr
    assert "'2024-05-06 12:00' does not have the time format %d.%m.%Y %H:%M" in result.stderr
    assert "names a day that does not exist" in result.stderr or "2024-02-31" in result.stderr


@pytest.mark.parametrize(
    ("format", "numbers"), [("s", "1715000000"), ("ms", "1715000000000"), ("us", "1715000000000000"), ("s", "1715000000.0")]
)
def test_numbers_of_any_unit_are_times(files: Path, format: str, numbers: str) -> None:
    (files / "n.csv").write_text(f"ts,v\n{numbers},1\n", "utf-8")
    result = run(files, TIMED.format(zone=""), *with_rows(files, "n.csv"), "--time-format", f"ts={format}", "--format", "csv")
    assert result.stdout == "ts,v\n2024-05-06T12:53:20Z,1\n", result.stderr


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--map", "ts=nowhere", "there is no column nowhere; there are ts, v"),
        ("--map", "x=ts", "--map names x"),
        ("--time-format", "v=%Y-%m-%d", "column v of s is INT, not TIMESTAMP"),
        ("--time-format", "%H", "does not tell a day"),
    ],
)
def test_an_option_that_means_nothing_for_the_files_is_refused(files: Path, option: str, value: str, said: str) -> None:
    result = run(files, TIMED.format(zone=""), *with_rows(files), option, value)
    assert (result.exit_code, said in result.stderr) == (1, True), result.stderr


def test_a_packed_file_of_columns_is_refused_in_words(files: Path) -> None:
    (files / "x.parquet.zst").write_bytes(b"")
    result = run(files, TIMED.format(zone=""), *with_rows(files, "x.parquet.zst"))
    assert (result.exit_code, "unpack it" in result.stderr) == (1, True)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("SELECT v FROM nothing;", "nothing"),
        (STREAM + "SELECT v\nFRM s;", "line 3"),
        (STREAM + "SELECT w FROM s;", "w"),
        (STREAM + "SELECT v FROM s;\n  DROP QUERY nothing;", "there is no query nothing (line 3, column 3)"),
        (STREAM + STREAM, "(line 2, column 1)"),
        (STREAM.replace(";", " ON ERROR FAIL;") + "SELECT v FROM s;", "line 3"),
        (STREAM + "CREATE STREAM t (v INT) DURABILITY always;", "DURABILITY"),
        ("CREATE TABLE t (k INT, PRIMARY KEY (k)) FROM 'nowhere.csv';", "nowhere.csv"),
    ],
)
def test_what_cannot_be_done_fails_with_one_line_and_no_output(files: Path, script: str, said: str) -> None:
    arguments = with_rows(files, "bad.csv") if "STREAM s" in script else ()
    result = run(files, script, *arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert said in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [["--input", "s"], ["--input", "s=nowhere.csv"], ["--format", "xml"], ["--train", "0"], ["--timeline", "nowhere.jsonl"]],
)
def test_wrong_usage_is_exit_code_2(files: Path, arguments: list[str]) -> None:
    assert run(files, STREAM, *arguments).exit_code == 2


def test_an_input_for_an_unknown_stream_and_an_unknown_policy_fail(files: Path) -> None:
    unknown = run(files, STREAM, "--input", f"t={files / 'rows.csv'}")
    assert (unknown.exit_code, "there is no stream t" in unknown.stderr) == (1, True)
    policy = run(files, STREAM, "--policy", "fastest")
    assert (policy.exit_code, "fastest" in policy.stderr) == (1, True)
    assert run(files, STREAM, "--policy", "auto").exit_code == 0


def test_a_timeline_interleaves_rows_time_ends_and_cancels(files: Path) -> None:
    events = [
        {"stream": "s", "row": {"ts": 1, "v": 1}},
        {"advance": "3 s"},
        {"stream": "s", "row": {"ts": 2, "v": 2}},
        {"cancel": "q1"},
        {"stream": "s", "row": {"ts": 3, "v": 3}},
        {"end": "s"},
    ]
    (files / "t.jsonl").write_text("\n".join(json.dumps(e) for e in events), "utf-8")
    script = STREAM + "SELECT v FROM s; SELECT v AS w FROM s WHERE v > 1;"
    result = run(files, script, "--timeline", str(files / "t.jsonl"), "--format", "json")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == '-- q1\n{"v": 1}\n{"v": 2}\n-- q2\n{"w": 2}\n{"w": 3}\n'
    assert "q1 was cancelled" in result.stderr


@pytest.mark.parametrize("line", ["{", '{"stream": "s"}', '{"advance": "soon"}', '{"advance": "-1 s"}', "[]", '{"stream": "s", "row": 1}'])
def test_a_malformed_timeline_is_refused_with_its_line(files: Path, line: str) -> None:
    (files / "t.jsonl").write_text('{"advance": "1 s"}\n' + line + "\n", "utf-8")
    result = run(files, STREAM, "--timeline", str(files / "t.jsonl"))
    assert (result.exit_code, "t.jsonl line 2" in result.stderr) == (1, True)


def test_rows_of_a_timeline_for_a_stream_that_has_ended_fail_with_the_reason(files: Path) -> None:
    (files / "t.jsonl").write_text('{"end": "s"}\n{"stream": "s", "row": {"ts": 1, "v": 1}}\n', "utf-8")
    result = run(files, STREAM + "SELECT v FROM s;", "--timeline", str(files / "t.jsonl"))
    assert "has ended" in result.stderr


def test_inputs_are_merged_by_event_time_and_compressed_files_are_read(files: Path) -> None:
    import gzip

    with gzip.open(files / "other.csv.gz", "wt") as out:
        out.write("ts,v\n1715000001,11\n1715000002,21\n1715000003,31\n")
    script = STREAM + STREAM.replace("STREAM s", "STREAM t") + "SELECT v FROM s UNION ALL SELECT v FROM t;"
    result = run(files, script, *with_rows(files), "--input", f"t={files / 'other.csv.gz'}", "--format", "json")
    assert [json.loads(line)["v"] for line in result.stdout.splitlines()] == [10, 11, 20, 21, 31]


@pytest.mark.parametrize(("name", "text"), [("t.csv", "time,v\n1,10\n"), ("t.jsonl", '{"time": 1, "v": 10}\n')])
def test_a_file_whose_columns_have_other_names_is_told_of_map(files: Path, name: str, text: str) -> None:
    (files / name).write_text(text, "utf-8")
    result = run(files, STREAM + "SELECT v FROM s;", *with_rows(files, name))
    assert result.exit_code == 1
    assert "--map COLUMN=FILE_COLUMN fills a column from one of another name in the file" in result.stderr
    assert "--time-format" not in result.stderr
    mapped = run(files, STREAM + "SELECT v FROM s;", *with_rows(files, name), "--map", "s.ts=time")
    assert (mapped.exit_code, "--map" in mapped.stderr) == (0, False)


def test_a_file_that_writes_times_in_a_way_of_its_own_is_told_of_time_format(files: Path) -> None:
    (files / "t.csv").write_text("ts,v\n06.05.2024 12:00,1\n", "utf-8")
    script = "CREATE STREAM s (ts TIMESTAMP, v INT) TIMESTAMP BY ts; SELECT v FROM s;"
    result = run(files, script, *with_rows(files, "t.csv"))
    assert result.exit_code == 1
    assert "--time-format says how a file writes times" in result.stderr
    assert run(files, script, *with_rows(files, "t.csv"), "--time-format", "%d.%m.%Y %H:%M").exit_code == 0


def test_files_of_a_pattern_that_overlap_in_time_are_said_to_be_read_one_after_the_other(files: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (files / f"device_{name}").write_text("ts,v\n1,1\n5,2\n", "utf-8")
    script = STREAM + "SELECT COUNT(*) AS n FROM s [RANGE 1 SECOND SLIDE 1 SECOND];"
    late = run(files, script, "--input", f"s={files / 'device_*.csv'}")
    assert "q1: 1 late row" in late.stderr
    assert "to merge them by event time, give each an --input of its own" in late.stderr
    both = [argument for name in ("a.csv", "b.csv") for argument in ("--input", f"s={files / f'device_{name}'}")]
    assert run(files, script, *both).stderr == ""


def test_reasons_of_refusals_stand_on_lines_of_their_own(files: Path) -> None:
    (files / "bad.csv").write_text("ts,v\n1,x\n2,y\n3,3\n", "utf-8")
    told = run(files, STREAM + "SELECT v FROM s;", *with_rows(files, "bad.csv")).stderr
    assert told.splitlines() == [
        "s: 2 of 3 rows refused:",
        "  line 2: column v: 'x' is not INT",
        "  line 3: column v: 'y' is not INT",
    ]


def test_a_map_without_an_input_says_what_is_missing(files: Path) -> None:
    told = run(files, STREAM + "SELECT v FROM s;", "--map", "ts=t").stderr
    assert told == "Error: --map names ts, which is not a column; there is no stream that a file fills: --input STREAM=FILE names both\n"
    told = run(files, STREAM + "SELECT v FROM s;", "--time-format", "ms").stderr
    assert told == "Error: --time-format: there is no stream that a file fills: --input STREAM=FILE names both\n"


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_the_header_of_a_csv_file_tells_its_separator(files: Path, separator: str) -> None:
    (files / "sheet.csv").write_text(f'ts{separator}v\n1{separator}"2"\n2{separator}3,5\n', "utf-8")
    found = run(files, "CREATE STREAM s (ts BIGINT, v TEXT) TIMESTAMP BY ts UNIT s;\nSELECT v FROM s;", *with_rows(files, "sheet.csv"))
    assert found.stdout.splitlines()[2:4] == ["2", "3,5"]


@pytest.mark.parametrize(
    ("name", "content", "hint"),
    [
        (
            "sheet.csv",
            b"ts;x\n1;0,5\n2;1,5\n",
            "a DOUBLE has a decimal point; of a file with ; between its fields, tr , . < FILE makes one",
        ),
        ("some.csv", b"ts;x\n1;0,5\n2;1\n", "a DOUBLE has a decimal point; of a file with ; between its fields, tr , . < FILE makes one"),
        ("gaps.csv", b"ts,x\n1,N/A\n2,1\n", "an empty field is NULL: sed 's#N/A##g' FILE makes one of N/A"),
        ("west.csv", b"ts,x,t\n1,1,\xe9t\xe9\n2,1,t\n", "of one in Latin-1, iconv -f latin1 -t utf-8 FILE makes that"),
        (
            "array.json",
            b'[\n{"ts": 1, "x": 1},\n{"ts": 2, "x": 1}\n]\n',
            "this value goes on in the next; jq -c '.[]' FILE makes lines of it",
        ),
        ("wide.json", b'{\n  "ts": 1,\n  "x": 1\n}\n', "this value goes on in the next; jq -c . FILE makes lines of it"),
        (
            "bare.csv",
            b"1,5.5\n2,6.5\n",
            "bare.csv has no column ts; a CSV file begins with a line of column names, and here that is 1, 5.5",
        ),
    ],
)
def test_rows_in_another_form_are_refused_with_the_mend(files: Path, name: str, content: bytes, hint: str) -> None:
    (files / name).write_bytes(content)
    script = "CREATE STREAM s (ts BIGINT, x DOUBLE, t TEXT) TIMESTAMP BY ts UNIT s;\nSELECT x FROM s;"
    assert hint in run(files, script, *with_rows(files, name)).stderr


def test_what_holds_for_many_files_is_said_once(files: Path) -> None:
    for name in ("a", "b", "c"):
        (files / f"part_{name}.csv").write_text(f"ts,v,{'more' if name == 'c' else 'extra'}\n1,1,1\n", "utf-8")
    told = run(files, STREAM + "SELECT v FROM s;", "--input", f"s={files / 'part_*.csv'}").stderr
    assert told.splitlines() == [
        "part_a.csv and 1 more: left out column extra, which the stream does not have",
        "part_c.csv: left out column more, which the stream does not have",
    ]


def test_local_times_of_parquet_need_a_zone_also_under_a_map(files: Path) -> None:
    pq.write_table(pa.table({"when": pa.array([0], pa.timestamp("us")), "v": [1]}), files / "x.parquet")
    told = ("--input", f"s={files / 'x.parquet'}", "--map", "ts=when")
    assert "column when holds local time without a zone" in run(files, TIMED.format(zone=""), *told).stderr
    assert run(files, TIMED.format(zone=" ZONE 'UTC'"), *told).exit_code == 0
