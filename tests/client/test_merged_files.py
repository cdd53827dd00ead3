"""`millstream publish a.csv b.csv`: the order of rows of several files, and what is said of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from millstream.client.commands.merged_files import merged, placed, time_of
from millstream.protocol import messages as m

from tests.client.test_cli import Run, run  # noqa: F401
from tests.support.fake_server import FakeServer, ThreadedServer


@pytest.fixture
def threaded() -> Iterator[ThreadedServer]:
    fake = FakeServer()
    fake.stream("s", ("ts", "BIGINT"), ("v", "BIGINT"))
    columns = [["column", "TEXT", False], ["note", "TEXT", True]]
    fake.answers['DESCRIBE "s"'] = lambda request: m.Reply(request, columns, [["ts", "event time"], ["v", None]])
    with ThreadedServer(fake) as running:
        yield running


TIMES = st.lists(st.one_of(st.integers(0, 20), st.just("no time")), max_size=12)


@given(files=st.lists(TIMES, max_size=4))
def test_rows_come_by_the_latest_time_of_their_file_and_each_file_keeps_its_order(files: list[list[Any]]) -> None:
    keyed = []
    for number, times in enumerate(files):
        latest = -1
        for line, time in enumerate(times, 1):
            latest = max(latest, time if isinstance(time, int) else -1)
            keyed.append((latest, number, line))
    found = merged([placed(str(n), enumerate(({"ts": time} for time in times), 1), "ts") for n, times in enumerate(files)])
    assert [(one.file, one.line) for one in found] == [(str(n), line) for _, n, line in sorted(keyed)]


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("2024-06-03 14:00:00", "2024-06-03T14:00:00.5Z"),
        ("2024-06-03T14:00:00+02:00", "2024-06-03T12:30:00Z"),
        ("9", "10"),
        (None, "1"),
        ("x", 0),
        (float("nan"), -5.5),
    ],
)
def test_a_time_is_ordered_as_the_stream_reads_it(earlier: Any, later: Any) -> None:
    assert time_of(earlier) < time_of(later)


def test_files_are_merged_and_a_refused_line_is_named_with_its_file(threaded: ThreadedServer, run: Run, tmp_path: Path) -> None:  # noqa: F811
    a, b = tmp_path / "a.csv", tmp_path / "b.jsonl"
    a.write_text("when;v\n0;1\n2;2\n3\n4;x\n")
    b.write_text('{"when": 1, "v": 10}\n{"when": 3, "v": 11}\n')
    told = ("publish", "s", str(a), str(b), "--map", "ts=when")
    code, out, err = run(*told)
    assert (code, out) == (0, "")
    assert [row[1] for row in threaded.server.rows["s"]] == [1, 10, 2, 11]
    assert err.splitlines() == [
        "s: 4 rows accepted, 2 refused",
        "  a.csv line 4: 1 field where the header has 2",
        "  a.csv line 5: v is BIGINT, not str",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("a.csv", "-"), "standard input is sent by itself"),
        (("a.csv", "a.csv", "--name", "x"), "--name remembers a place in one file"),
        (("a.csv", "a.parquet"), "a.parquet: several files are merged as CSV or JSON lines"),
    ],
)
def test_what_goes_with_one_file_alone_is_refused(
    threaded: ThreadedServer,
    run: Run,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.csv", "a.parquet"):
        (tmp_path / name).write_text("ts,v\n")
    code, _, err = run("publish", "s", *arguments)
    assert code == 2
    assert said in err
