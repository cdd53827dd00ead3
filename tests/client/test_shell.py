"""The interactive shell, typed at through a pipe: statements over several lines, errors that do not end it, history, completion."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from millstream.client.blocking import Client, connect
from millstream.client.commands.shell import WordCompleter, history_of, run_line, run_shell
from millstream.protocol import messages as m
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from tests.support.fake_server import FakeServer, ThreadedServer


@pytest.fixture
def threaded() -> Iterator[ThreadedServer]:
    fake = FakeServer()
    fake.stream("s", ("k", "BIGINT"))
    fake.answers["SHOW STREAMS"] = lambda request: m.Reply(request, [["name", "TEXT", False]], [["sensors"]])
    with ThreadedServer(fake) as running:
        yield running


@pytest.fixture
def client(threaded: ThreadedServer) -> Iterator[Client]:
    with connect(threaded.server.address) as ms:
        yield ms


def type_into(client: Client, text: str) -> None:
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text(text)
        run_shell(client, None)


def test_a_statement_may_span_lines_and_ends_with_a_semicolon(
    threaded: ThreadedServer, client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    type_into(client, "CREATE STREAM\r t (k INT);\r\rhelp\rexit\r")
    texts = [event.text for event in threaded.server.heard if isinstance(event, m.Statement)]
    assert "CREATE STREAM\n t (k INT)" in texts
    assert "CREATE STREAM" in (tmp_path / "millstream" / "history").read_text()


def test_a_command_with_a_backslash_needs_no_semicolon(
    threaded: ThreadedServer, client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    type_into(client, "\\d\rexit\r")
    assert "\\d" in [event.text for event in threaded.server.heard if isinstance(event, m.Statement)]


def test_ctrl_c_clears_the_line_and_ctrl_d_leaves(client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    type_into(client, "garbage\x03\x04")
    assert client.is_open


def test_an_error_does_not_end_the_shell(threaded: ThreadedServer, client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    threaded.server.answers["SELCT"] = lambda request: m.Failure("syntax", "SELCT is no statement", request, line=1, column=1)
    assert run_line(client, "SELCT; SHOW STREAMS;", "csv")
    assert capsys.readouterr().err == "error: SELCT is no statement (line 1, column 1)\n"


def test_ctrl_c_stops_a_subscription_and_drops_its_query(
    threaded: ThreadedServer, client: Client, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    threaded.server.answers["SELECT 1"] = lambda request: m.Reply(request, info={"query": "q_s", "continuous": True})
    real_run, calls = client._run, []

    def interrupted(coroutine):  # type: ignore[no-untyped-def]
        calls.append(coroutine.__qualname__)
        if "next_item" in coroutine.__qualname__:
            coroutine.close()
            raise KeyboardInterrupt
        return real_run(coroutine)

    monkeypatch.setattr(client, "_run", interrupted)
    assert run_line(client, "SELECT 1;", "csv")
    assert [e.text for e in threaded.server.heard if isinstance(e, m.Statement)][-1] == 'DROP QUERY "q_s"'
    assert capfd.readouterr().out == "k\n"


def test_names_and_keywords_are_completed(client: Client) -> None:
    completer = WordCompleter(client)

    def completions(text: str) -> list[str]:
        return [c.text for c in completer.get_completions(Document(text), CompleteEvent())]

    assert completions("SELECT * FROM sen") == ["sensors"]
    assert completions("SEL") == ["SELECT"]
    assert completions("sel") == ["select"]
    assert completions("") == []


def test_without_a_place_for_history_it_is_kept_in_memory(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert isinstance(history_of({"XDG_STATE_HOME": str(blocked)}), InMemoryHistory)
