"""The command line against a small server: output on stdout, messages on stderr, exit codes, one clear line for each error."""

from __future__ import annotations

import gzip
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from millstream.client import cli
from millstream.client.commands import common
from millstream.client.commands.publish import READ_BYTES
from millstream.client.errors import MillstreamError, NoServerHere
from millstream.client.installed import own_entry
from millstream.protocol import messages as m

from tests.support.fake_server import FakeServer, ThreadedServer

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def threaded() -> Iterator[ThreadedServer]:
    fake = FakeServer()
    fake.stream("s", ("k", "BIGINT"), ("t", "TEXT"))
    with ThreadedServer(fake) as running:
        yield running


@pytest.mark.parametrize("arguments", [["record", "FILE"], ["policy", "trace", "FILE"]])
def test_a_file_that_cannot_be_written_is_told_before_anything_is_recorded(run: Run, tmp_path: Path, arguments: list[str]) -> None:
    file = tmp_path / "nowhere" / "r.rec"
    code, out, err = run(*[str(file) if a == "FILE" else a for a in arguments])
    assert (code, out, err) == (1, "", f"error: {file}: No such file or directory\n")


@pytest.mark.parametrize("seconds", ["nan", "inf", "1e300", "0", "-1"])
@pytest.mark.parametrize("command", [["record", "r"], ["policy", "trace", "r"], ["query", "submit", "SELECT k FROM s"], ["top"]])
def test_a_time_that_is_none_is_wrong_usage(run: Run, command: list[str], seconds: str) -> None:
    option = {"query": "--lifetime", "top": "--every"}.get(command[0], "--seconds")
    code, out, err = run(*command, option, seconds)
    assert (code, out) == (2, "")
    assert f"Invalid value for '{option}'" in err


@pytest.fixture
def run(threaded: ThreadedServer, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process; returns exit code, stdout, stderr."""
    monkeypatch.setenv("MILLSTREAM_SERVER", threaded.server.address)

    def call(*arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        read, write = os.pipe()
        os.write(write, stdin)
        os.close(write)
        with os.fdopen(read) as source:
            monkeypatch.setattr(sys, "stdin", source)
            capfd.readouterr()
            code = cli.run(list(arguments))
            out, err = capfd.readouterr()
        return code, out, err

    return call


def statements(threaded: ThreadedServer) -> list[str]:
    return [event.text for event in threaded.server.heard if isinstance(event, m.Statement)]


def test_the_help_lists_every_command_without_importing_any() -> None:
    heavy = "{'pyarrow', 'rich', 'asyncio', 'numpy', 'msgpack'}"
    code = f"import sys; from millstream.client import cli; cli.run(['--help']); print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert all(name in done.stdout for name in cli.SUMMARIES)
    assert done.stdout.endswith("[]\n")


def test_the_summaries_in_the_help_are_those_of_the_commands() -> None:
    for entry in entry_points(group=cli.GROUP):
        command = entry.load()
        first = (command.help or "").partition("\n")[0]
        assert entry.name in cli.SUMMARIES
        if entry.value.startswith("millstream.client"):
            assert first, entry.name


@pytest.mark.parametrize("group", ["query", "stream", "policy", "journal", "spark", "experiment"])
def test_a_list_of_commands_has_whole_sentences(run: Run, group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run(group, "--help")
    assert (code, "..." in out.partition("Commands:")[2]) == (0, False)


def test_a_server_that_is_starting_on_this_machine_is_waited_for() -> None:
    answers: list[MillstreamError] = [NoServerHere("no server answers at 127.0.0.1:7415")] * 3
    pauses: list[float] = []

    def connect() -> Any:
        if answers:
            raise answers.pop()
        return "client"

    assert common.once_started(connect, 1.0, pauses.append) == "client"  # type: ignore[comparison-overlap]
    assert (answers, len(pauses)) == ([], 3)
    answers += [NoServerHere("no server answers at 127.0.0.1:7415")] * 30
    with pytest.raises(MillstreamError, match="no server answers"):
        common.once_started(connect, 1.0, pauses.append)
    assert sum(pauses) == pytest.approx(1.3)


@pytest.mark.parametrize(
    ("arguments", "exit_code", "said"),
    [
        (("nonsense",), 2, "No such command 'nonsense'."),
        (("runn",), 2, "No such command 'runn'. Did you mean run?"),
        (("simulate", "nowhere.toml"), 2, "Invalid value for 'WORKLOAD': File 'nowhere.toml' does not exist."),
        (("simulate", "{load}", "--policy", "best"), 1, "unknown policy 'best'; known are "),
        (("policy", "set", "user:mine.py"), 2, "'mine.py' is not of the form NAME=VALUE; a file of your own is user:file=mine.py"),
        (("record", "{load}", "--seconds", "soon"), 2, "Invalid value for '--seconds': 'soon' is not a number."),
        (("tail", "q", "--limit", "few"), 2, "Invalid value for '--limit': 'few' is not a whole number."),
        (("advise", "{load}", "--policy", "best"), 1, "unknown policy 'best'; known are "),
        (("journal", "check", "{load}"), 2, "Invalid value for 'DIR': Directory"),
        (("sql", "--server", "10.0.0.7:port", "-c", "SHOW STREAMS"), 1, ""),
    ],
)
def test_errors_of_all_commands_begin_alike(run: Run, tmp_path: Path, arguments: tuple[str, ...], exit_code: int, said: str) -> None:
    load = tmp_path / "load.toml"
    load.write_text('[stream.s]\nrate = 1\ncount = 3\n[[query]]\nname = "q"\nboxes = [{ name = "b", input = "s" }]\n')
    code, out, err = run(*(one.format(load=load) for one in arguments))
    assert (code, out) == (exit_code, ""), err
    assert "Error:" not in err
    assert err.splitlines()[-1].startswith(f"error: {said}")
    if exit_code == 2:
        assert err.startswith("Usage: millstream")


def test_one_elsewhere_is_not_waited_for_whatever_its_mend_says() -> None:
    elsewhere = MillstreamError("unreachable", "no server answers at 10.0.0.7:7415", "start one with: millstream serve")

    def connect() -> Any:
        raise elsewhere

    pauses: list[float] = []
    with pytest.raises(MillstreamError) as raised:
        common.once_started(connect, 1.0, pauses.append)
    assert (raised.value, pauses) == (elsewhere, [])


def test_commands_are_found_in_our_own_files_as_importlib_finds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {entry.name: own_entry(cli.GROUP, entry.name) for entry in entry_points(group=cli.GROUP)} == {
        entry.name: entry.value for entry in entry_points(group=cli.GROUP)
    }
    assert own_entry(cli.GROUP, "nothing") is None
    assert own_entry("millstream.nothing", "run") is None
    monkeypatch.setattr(sys, "path", [str(tmp_path / "absent"), str(tmp_path)])
    assert own_entry(cli.GROUP, "run") is None
    (tmp_path / "millstream-9.dist-info").mkdir()
    assert own_entry(cli.GROUP, "run") is None
    (tmp_path / "millstream-9.dist-info" / "entry_points.txt").write_text("[other]\nrun = a:b\n\n[millstream.commands]\nrun=c.d:e\n")
    assert own_entry(cli.GROUP, "run") == "c.d:e"


def test_a_command_of_another_distribution_is_found_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "others-1.dist-info").mkdir()
    (tmp_path / "others-1.dist-info" / "METADATA").write_text("Name: others\nVersion: 1\n")
    (tmp_path / "others-1.dist-info" / "entry_points.txt").write_text("[millstream.commands]\nshout = shouting:command\n")
    (tmp_path / "shouting.py").write_text("import click\n@click.command()\ndef command():\n    click.echo('hey')\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert cli.run(["shout"]) == 0


def test_a_statement_is_run_and_its_table_printed(threaded: ThreadedServer, run: Run) -> None:
    threaded.server.answers["SHOW STREAMS"] = lambda request: m.Reply(
        request, [["name", "TEXT", False], ["rows", "BIGINT", True]], [["s", None]]
    )
    assert run("sql", "-c", "SHOW STREAMS") == (0, "name,rows\ns,\n", "")
    assert run("sql", "-c", "SHOW STREAMS", "--format", "json") == (0, '{"name": "s", "rows": null}\n', "")
    assert run("stream", "list", "--format", "csv") == (0, "name,rows\ns,\n", "")
    code, out, _ = run("sql", "-c", "SHOW STREAMS", "--format", "table")
    assert (code, [line.split() for line in out.splitlines()][0::2]) == (0, [["name", "rows"], ["s", "NULL"]])


def test_a_table_of_show_has_what_a_person_needs_first_and_fits_80_columns(threaded: ThreadedServer, run: Run) -> None:
    columns = [["name", "TEXT", False], ["state", "TEXT", True], ["note", "TEXT", True], ["rows", "BIGINT", True], ["ms", "DOUBLE", True]]
    columns += [["target", "INTERVAL", True], ["held", "BOOLEAN", True], *([f"more_{i}", "BIGINT", True] for i in range(12))]
    rest = [300_000, True, *range(12)]
    rows = [
        ["a_name_of_more_than_twenty_letters", "running", "x" * 70, 276_488, 28.677928868493307, *rest],
        ["b", None, "y", None, None, *rest],
    ]
    first = ["name", "state", "rows", "ms", "target", "held", "note"]
    threaded.server.answers["SHOW QUERIES"] = lambda request: m.Reply(request, columns, rows, info={"first": first})
    code, out, _ = run("sql", "-c", "SHOW QUERIES", "--format", "table")
    lines = out.splitlines()
    assert (code, max(map(len, lines))) == (0, 80)
    assert lines[0].split() == ["name", "state", "rows", "ms", "target", "held", "note"]
    assert lines[2].split()[:7] == ["a_name_of_more_than_twenty_lett…", "running", "276488", "28.68", "300", "ms", "yes"]
    assert lines[2].endswith("…")
    assert lines[3].split() == ["b", "300", "ms", "yes", "y"]
    for form in ("csv", "json", "vertical"):
        assert "more_11" in run("sql", "-c", "SHOW QUERIES", "--format", form)[1]
    assert '"ms": 28.677928868493307' in run("query", "list", "--format", "json")[1]


def test_rows_are_printed_a_line_a_value(threaded: ThreadedServer, run: Run) -> None:
    threaded.server.rows["s"] = [[1, "a"], [2, None]]
    _, out, _ = run("tail", "q_s", "--from-start", "--limit", "2", "--format", "vertical")
    assert out == "─[ 1 ]─────\nk │ 1\nt │ a\n─[ 2 ]─────\nk │ 2\nt │ NULL\n".replace("─[ 1 ]─────", "─[ 1 ]").replace(
        "─[ 2 ]─────", "─[ 2 ]"
    )
    assert run("tail", "q_s", "--limit", "0", "--format", "vertical")[1] == "(no rows)\n"


def test_a_script_comes_from_a_file_or_standard_input(threaded: ThreadedServer, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "script.sql"
    file.write_text("CREATE STREAM a (k INT); -- one; two\nSHOW QUERIES;")
    assert run("sql", "-f", str(file))[0] == 0
    assert run("sql", stdin=b"SHOW CLASSES")[0] == 0
    assert run("sql", "-c", "SHOW A; SHOW B -- all", "-c", "\nSHOW C")[0] == 0
    assert statements(threaded) == [
        *["CREATE STREAM a (k INT)", " -- one; two\nSHOW QUERIES", "SHOW CLASSES", "SHOW A", " SHOW B -- all", "\nSHOW C"]
    ]


def test_results_of_several_selects_come_one_after_the_other_under_their_names(threaded: ThreadedServer, run: Run) -> None:
    fake = threaded.server
    fake.rows["s"] = [[1, "a"], [2, ""]]
    for text in ("SELECT 1", "SELECT 2"):
        fake.answers[text] = lambda request: m.Reply(request, info={"query": "q_s", "continuous": True})
    fake.answers["FINISH"] = lambda request: (fake.end("q_s", "finished"), m.Reply(request))[1]
    fake.queries["q_two"] = "s"
    fake.answers["SELECT 2"] = lambda request: m.Reply(request, info={"query": "q_two", "continuous": True})
    fake.answers["FINISH"] = lambda request: (fake.end("q_s", "finished"), fake.end("q_two", "finished"), m.Reply(request))[2]
    code, out, err = run("sql", "-c", "SELECT 1;SELECT 2;FINISH")
    assert (code, out, err) == (0, '-- q1\nk,t\n1,a\n2,""\n-- q2\nk,t\n1,a\n2,""\n', "")


def test_a_query_that_is_created_is_waited_for_only_on_request(threaded: ThreadedServer, run: Run, tmp_path: Path) -> None:
    fake = threaded.server
    fake.rows["s"] = [[1, "a"]]
    fake.queries["made"] = "s"
    fake.answers["CREATE QUERY made AS SELECT 1"] = lambda request: m.Reply(
        request, info={"query": "made", "continuous": True, "durable": True}
    )
    file = tmp_path / "setup.sql"
    file.write_text("CREATE QUERY made AS SELECT 1;")
    assert run("sql", "-f", str(file)) == (0, "", "")
    assert run("sql", "-c", "CREATE QUERY made AS SELECT 1") == (0, "", "")
    assert not [event for event in fake.heard if isinstance(event, m.Subscribe)]
    fake.answers["FINISH"] = lambda request: (fake.end("made", "finished"), m.Reply(request))[1]
    assert run("sql", "-f", str(file), "-c", "x")[0] == 2
    file.write_text("CREATE QUERY made AS SELECT 1;FINISH")
    assert run("sql", "--follow", "-f", str(file)) == (0, "k,t\n1,a\n", "")


def test_errors_are_one_line_and_exit_with_one(threaded: ThreadedServer, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    threaded.server.answers["SELCT"] = lambda request: m.Failure("syntax", "SELCT is no statement", request, "did you mean SELECT?", 1, 1)
    error = "error: SELCT is no statement (line 1, column 1); did you mean SELECT?\n"
    assert run("sql", "-c", "SELCT") == (1, "", error)
    code, _, err = run("sql", "-c", "SHOW CLASSES;SELCT;SHOW STREAMS")
    assert (code, err) == (1, "statement 2 of 3 failed; those after it did not run\n" + error)
    assert run("tail", "nowhere") == (1, "", "error: there is no query nowhere\n")
    monkeypatch.setattr(common, "START_S_MAX", 0.0)
    code, out, err = run("query", "list", "--server", "127.0.0.1:1")
    assert (code, out, err) == (1, "", "error: no server answers at 127.0.0.1:1; start one with: millstream serve\n")
    assert run("query", "list", "--tls-ca", "/nowhere.pem")[0] == 1


def test_a_fault_of_our_own_is_one_line_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.client.commands.sql.run_script", lambda *_, **__: 1 / 0)
    code, out, err = run("sql", "-c", "SHOW STREAMS")
    assert (code, out) == (1, "")
    assert err == "error: ZeroDivisionError: division by zero; a fault of millstream itself, MILLSTREAM_TRACEBACK=1 shows where\n"


def test_wrong_usage_exits_with_two(run: Run) -> None:
    for arguments in (
        ["query", "stop"],
        ["nonsense"],
        ["sql", "-c", "x", "-f", "/dev/null"],
        ["query", "submit"],
        ["tail", "q", "--limit", "-1"],
    ):
        code, out, err = run(*arguments)
        assert (code, out) == (2, "")
        assert err.startswith("Usage:")


def test_tail_prints_rows_until_the_limit(threaded: ThreadedServer, run: Run) -> None:
    threaded.server.rows["s"] = [[i, None] for i in range(10)]
    assert run("tail", "Q_S", "--from-start", "--limit", "2", "--format", "json") == (0, '{"k": 0, "t": null}\n{"k": 1, "t": null}\n', "")
    assert run("tail", "q_s", "--resume", "t9", "--limit", "1", "--format", "csv") == (0, "k,t\n9,\n", "")


@pytest.mark.parametrize("form", ["csv", "json", "table", "vertical", "arrow"])
def test_every_format_can_carry_the_token(threaded: ThreadedServer, run: Run, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    threaded.server.rows["s"] = [[i, None] for i in range(3)]
    out = io.BytesIO()
    with monkeypatch.context() as patched:
        patched.setattr("millstream.client.commands.common.output", lambda: out)
        assert run("tail", "q_s", "--from-start", "--limit", "3", "--tokens", "--format", form)[0] == 0
    if form == "arrow":
        assert pa.ipc.open_stream(out.getvalue()).read_all()["resume_token"].to_pylist() == [None, None, "t3"]
    else:
        text = out.getvalue().decode()
        assert "resume_token" in text
        assert text.count("t3") == 1, "beside the last row of the batch"
    assert run("tail", "q_s", "--from-start", "--limit", "2", "--tokens", "--receipts", "--format", "csv")[1].splitlines() == [
        "k,t,resume_token,rows_seen,rows_shed,share_seen",
        "0,,,,0,1.0",
        "1,,,,0,1.0",
    ]


def test_the_verbs_of_queries_quote_names_and_stay_quiet_in_a_pipe(threaded: ThreadedServer, run: Run) -> None:
    for verb in ("start", "stop", "pause", "resume", "drop"):
        assert run("query", verb, "Avg", "a/b") == (0, "", "")
    run("query", "drop", "x", "--cascade")
    run("query", "explain", "x", "--analyze")
    run("query", "explain", "SELECT 1 FROM s")
    run("stream", "create", "new", "k BIGINT", "--timestamp-by", "ts", "--delay", "2 SECONDS", "--if-not-exists")
    run("stream", "drop", "new")
    run("policy", "set", "bsd", "--option", "quantum=5", "--option", "mode=it's")
    assert statements(threaded) == [
        *(f'{verb} QUERY "{name}"' for verb in ("START", "STOP", "PAUSE", "RESUME", "DROP") for name in ("avg", "a/b")),
        'DROP QUERY "x" CASCADE',
        'EXPLAIN ANALYZE "x"',
        "EXPLAIN SELECT 1 FROM s",
        'CREATE STREAM IF NOT EXISTS "new" (k BIGINT) TIMESTAMP BY "ts" DELAY 2 SECONDS',
        'DROP STREAM "new"',
        "SET POLICY \"bsd\" WITH (quantum = 5, mode = 'it''s')",
    ]


def test_submit_takes_text_or_a_plan(threaded: ThreadedServer, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"version": 1, "name": "p", "root": {"op": "source", "stream": "s"}}))
    assert run("query", "submit", "SELECT * FROM s", "--name", "Q", "--class", "gold", "--lifetime", "1.5") == (0, "", "")
    assert run("query", "submit", "--plan", str(file))[0] == 0
    text, plan = (event for event in threaded.server.heard if isinstance(event, m.Submit))
    assert (text.sql, text.name, text.options, text.lifetime_us) == ("SELECT * FROM s", "q", {"class": "gold"}, 1_500_000)
    assert plan.plan == json.loads(file.read_text())
    file.write_text("{")
    assert run("query", "submit", "--plan", str(file))[0] == 1


def test_a_script_or_plan_that_is_no_text_is_refused_with_the_place(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "binary"
    file.write_bytes(b"SELECT \xff\xfe")
    for arguments in (("sql", "-f", str(file)), ("query", "submit", "--plan", str(file))):
        assert run(*arguments) == (1, "", f"error: {file} is not UTF-8 text (byte 7)\n")


def test_explain_prints_a_plan_object_as_json(threaded: ThreadedServer, run: Run) -> None:
    threaded.server.answers['EXPLAIN "q"'] = lambda request: m.Reply(
        request, [["plan", "TEXT", False]], [["source s"]], info={"plan": {"version": 1}}
    )
    assert json.loads(run("query", "explain", "q", "--format", "json")[1]) == {"version": 1}
    assert run("query", "explain", "q", "--format", "csv")[1] == "plan\nsource s\n"
    assert run("sql", "-c", 'EXPLAIN "q"', "--format", "json")[1] == '{"version": 1}\n'
    assert run("sql", "-c", 'EXPLAIN "q"', "--format", "csv")[1] == "plan\nsource s\n"


def test_policies_are_listed_and_the_one_in_use_is_shown(threaded: ThreadedServer, run: Run) -> None:
    columns = [["name", "TEXT", False], ["in_force", "BOOLEAN", False]]
    threaded.server.answers["SHOW POLICIES"] = lambda request: m.Reply(request, columns, [["hnr", True], ["bsd", False]])
    assert run("policy", "show")[1] == "name,in_force\nhnr,true\n"
    assert run("policy", "show", "bsd")[1] == "name,in_force\nbsd,false\n"
    assert run("policy", "show", "x")[0] == 1


def test_an_explanation_is_lines_of_text_unless_a_format_is_given(threaded: ThreadedServer, run: Run) -> None:
    lines = [["Operators"], ['  1: source "s", all']]
    threaded.server.answers["EXPLAIN q"] = lambda request: m.Reply(request, [["explanation", "TEXT", False]], lines)
    assert run("sql", "-c", "EXPLAIN q")[1] == 'Operators\n  1: source "s", all\n'
    assert run("sql", "-c", "EXPLAIN q", "--format", "csv")[1] == 'explanation\nOperators\n"  1: source ""s"", all"\n'


CSV = b'k,t\n1,"a,b"\nx,c\n3,\n4\n5,""\n'


def test_publish_counts_and_names_the_refused_lines(threaded: ThreadedServer, run: Run) -> None:
    code, out, err = run("publish", "s", stdin=CSV)
    assert (code, out) == (0, "")
    assert threaded.server.rows["s"] == [[1, "a,b"], [3, None], [5, ""]]
    assert err.splitlines() == [
        "s: 3 rows accepted, 2 refused",
        "  line 3: k is BIGINT, not str",
        "  line 5: 1 field where the header has 2",
    ]


def test_publish_says_in_words_of_json_what_a_line_is_that_is_no_object(run: Run) -> None:
    lines = {"null": "null", "[1]": "an array", '"a"': "a string", "1.5": "a number", "2": "a number", "true": "a truth value"}
    code, _, err = run("publish", "s", "--format", "jsonl", stdin="\n".join(lines).encode())
    assert code == 1
    told = [line.split(": it is ")[1] for line in err.splitlines() if ": it is " in line]
    assert told
    assert told == list(lines.values())[: len(told)]


@pytest.mark.parametrize("format", ["csv", "jsonl", "parquet", "arrow", "arrows"])
def test_publish_reads_every_format(threaded: ThreadedServer, run: Run, tmp_path: Path, format: str) -> None:
    table = pa.table({"k": pa.array([9007199254740993, None], pa.int64()), "t": ["测试", "b"]})
    file = tmp_path / f"data.{format}"
    match format:
        case "csv":
            file.write_text("t,k\n测试,9007199254740993\nb,\n")
        case "jsonl":
            file.write_text('{"k": 9007199254740993, "t": "测试"}\n{"t": "b"}\n')
        case "parquet":
            pq.write_table(table, file)
        case _:
            sink = io.BytesIO()
            with (pa.ipc.new_file if format == "arrow" else pa.ipc.new_stream)(sink, table.schema) as writer:
                writer.write_table(table)
            file.write_bytes(sink.getvalue())
    assert run("publish", "s", str(file), "--finish") == (0, "", "s: 2 rows accepted, 0 refused\n")
    assert threaded.server.rows["s"] == [[9007199254740993, "测试"], [None, "b"]]
    assert [event.stream for event in threaded.server.heard if isinstance(event, m.Finish)] == ["s"]


def test_publish_fails_when_rows_came_and_none_was_accepted(threaded: ThreadedServer, run: Run) -> None:
    assert run("publish", "s", "--finish", stdin=b"k,t\nx,a\ny,b\n") == (
        1,
        "",
        "s: 0 rows accepted, 2 refused\n  line 2: k is BIGINT, not str\n  line 3: k is BIGINT, not str\n",
    )
    assert not [event for event in threaded.server.heard if isinstance(event, m.Finish)], "who mends the file can send it again"
    assert run("publish", "s", "--finish", stdin=b"k,t\n") == (0, "", "s: 0 rows accepted, 0 refused\n")
    assert [event.stream for event in threaded.server.heard if isinstance(event, m.Finish)] == ["s"]


@pytest.mark.parametrize("suffix", ["gz", "zst"])
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_publish_unpacks_files_and_standard_input(threaded: ThreadedServer, run: Run, tmp_path: Path, form: str, suffix: str) -> None:
    text = CSV[:-5] if form == "csv" else b'{"k": 1, "t": "a,b"}\n{"k": 3}\n'
    line = text.splitlines(keepends=True)[-1]
    copies = READ_BYTES // len(line) + 1  # more than one read
    text += copies * line
    packed = gzip.compress(text) if suffix == "gz" else pa.compress(text, codec="zstd", asbytes=True)
    file = tmp_path / f"rows.{form}.{suffix}"
    file.write_bytes(packed)
    code, _, err = run("publish", "s", str(file))
    assert (code, err.partition(" rows accepted")[0]) == (0, f"s: {2 + (copies if form == 'jsonl' else 0):,}")
    before = len(threaded.server.rows["s"])
    assert run("publish", "s", "--format", form, stdin=packed)[0] == 0
    assert len(threaded.server.rows["s"]) == 2 * before
    code, _, err = run("publish", "s", "--format", form, stdin=packed[:-4])
    assert code == 1
    assert err.splitlines()[-1].startswith("error: the compressed input is damaged or incomplete: ")


def test_publish_refuses_files_that_are_not_what_they_say(run: Run, tmp_path: Path) -> None:
    for name in ("x.parquet", "x.arrow"):
        (tmp_path / name).write_bytes(b"junk" * 10)
        code, _, err = run("publish", "s", str(tmp_path / name))
        assert code == 1
        assert err.startswith("error: ")
    assert run("publish", "s", "--format", "parquet")[0] == 2


def environment(threaded: ThreadedServer) -> dict[str, str]:
    return {**os.environ, "MILLSTREAM_SERVER": threaded.server.address, "PYTHONWARNINGS": "error"}


START = [sys.executable, "-c", "from millstream.client.cli import main; main()"]


@pytest.mark.process
@pytest.mark.parametrize("attempt", range(3))  # where in the wait the signal comes is chance
def test_ctrl_c_ends_a_tail_quietly(threaded: ThreadedServer, attempt: int) -> None:
    threaded.server.rows["s"] = [[1, "a"]]
    with subprocess.Popen(
        [*START, "tail", "q_s", "--from-start"], env=environment(threaded), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"k,t\n"
        assert process.stdout.readline() == b"1,a\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (0, b"", b"")


@pytest.mark.process
def test_a_reader_that_leaves_ends_the_command_without_a_word(threaded: ThreadedServer) -> None:
    threaded.server.rows["s"] = [[i, "x" * 100] for i in range(20_000)]
    with subprocess.Popen(
        [*START, "tail", "q_s", "--from-start"], env=environment(threaded), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"k,t\n"
        process.stdout.close()
        assert process.stderr is not None
        assert (process.stderr.read(), process.wait(20)) == (b"", 0)


@pytest.mark.process
def test_rows_are_published_as_they_are_typed(threaded: ThreadedServer) -> None:
    with subprocess.Popen([*START, "publish", "s"], env=environment(threaded), stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        for i in range(3):
            process.stdin.write(b"k,t\n1,a\n" if i == 0 else b"2,b\n")
            process.stdin.flush()
            while len(threaded.call(lambda: list(threaded.server.rows["s"]))) <= i:
                assert process.poll() is None
        process.stdin.close()
        assert process.stderr is not None
        assert (process.stderr.read(), process.wait(20)) == (b"s: 3 rows accepted, 0 refused\n", 0)


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_told_on_a_terminal_and_replaced_by_what_follows(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    common.told("progress", "42% of the history is read")
    common.told("slowed", "a publisher waits")
    assert ("\r\x1b[K42% of the history is read\r" in capsys.readouterr().err) == terminal
