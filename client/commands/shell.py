"""The interactive shell: history, completion, statements over several lines. Ctrl-C stops what runs, not the shell; Ctrl-D leaves."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.client.commands.common import courtesy, show_answer, show_results, stop_following, subscribed, warn
from millstream.client.errors import MillstreamError
from millstream.client.statements import is_complete, split_script
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

if TYPE_CHECKING:
    from millstream.client.blocking import Client

HELP = """Statements end with a semicolon; docs/language.md explains them.
  SELECT …;         prints results of rows that come from now on, until Ctrl-C
  FETCH SELECT …;   answers once, from the rows that the server holds now
  SHOW STREAMS;  SHOW QUERIES;  DESCRIBE name;  EXPLAIN SELECT …;
  \\x                switches between a table and a line for each value
  exit              leaves, as Ctrl-D does"""
LEAVE = ("exit", "quit", "\\q")
TURN = "\\x"
_WORDS = """
ALL AND AS ASOF AVG BETWEEN BIGINT BOOLEAN BY CASCADE CASE CAST CHANGES CLASS COUNT CREATE DATE DECIMAL DELAY DESCRIBE
DISTINCT DOUBLE DROP DURABILITY ELSE EMIT END EVERY EXISTS EXPLAIN FALSE FETCH FINAL FOR FROM FULL GROUP HAVING HOP IDLE IN INNER
INSERT INT INTERVAL INTO IS JOIN LATE LEFT LIKE LIMIT MAX MEDIAN MIN NOT NULL ON OR ORDER PARTITION PAUSE POLICY PRIORITY
QUERY RANGE RESUME RIGHT ROWS SECONDS SELECT SESSION SET SHED SHOW SLIDE START STOP STREAM STREAMS SUM TABLE TARGET TEXT THEN
TIMESTAMP TRUE TUMBLE UNION VALUES WHEN WHERE WINDOW WITH WITHIN
"""
WORDS = tuple(re.findall(r"\w+", _WORDS))


class WordCompleter(Completer):
    """Completes keywords, and the names of streams, tables and queries as the server lists them."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._names: list[str] = []
        self.refresh()

    def refresh(self) -> None:
        """Ask the server for its names. A server that will not tell leaves only keywords."""
        names: set[str] = set()
        for what in ("STREAMS", "TABLES", "QUERIES"):
            try:
                answer = self._client.execute(f"SHOW {what}")
            except MillstreamError:
                continue
            names.update(str(row["name"]) for row in answer if "name" in row)
        self._names = sorted(names)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield what the word before the cursor may become."""
        word = document.get_word_before_cursor()
        if not word:
            return
        for name in self._names:
            if name.lower().startswith(word.lower()):
                yield Completion(name, start_position=-len(word))
        for keyword in WORDS:
            if keyword.startswith(word.upper()):
                yield Completion(keyword if word[0].isupper() else keyword.lower(), start_position=-len(word))


def history_of(environment: dict[str, str]) -> History:
    """Return the history kept in the user's state folder; in memory when that cannot be written."""
    home = environment.get("XDG_STATE_HOME") or str(Path(environment.get("HOME", "~")).expanduser() / ".local" / "state")
    file = Path(home) / "millstream" / "history"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a"):
            pass
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(file))


def key_bindings() -> KeyBindings:
    """Return the keys: Enter ends a complete statement or a command of the shell, otherwise begins a new line."""
    keys = KeyBindings()

    @keys.add("enter")
    def _enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        text = buffer.text.strip()
        if not text or text.startswith("\\") or text.lower() in (*LEAVE, "help") or is_complete(text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return keys


def run_shell(client: Client, format: str | None) -> None:
    """Read and run statements until the user leaves."""
    print(f"{client.server}, role {client.role}. Type help, or a statement with a semicolon.")
    completer = WordCompleter(client)
    session: PromptSession[str] = PromptSession(
        "millstream> ",
        history=history_of(dict(os.environ)),
        completer=completer,
        complete_while_typing=False,
        multiline=True,
        key_bindings=key_bindings(),
        prompt_continuation=lambda width, _line, _wrapped: "... ".rjust(width),
    )
    while True:
        try:
            text = session.prompt().strip()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if text.lower().rstrip(";") in LEAVE:
            return
        if text.lower().rstrip(";") in ("help", "\\?"):
            print(HELP)
            continue
        if text.lower().rstrip(";") == TURN:
            format = turned(format)
            print("one line per value" if format == "vertical" else "one line per row")
            continue
        if text and not run_line(client, text, format):
            return
        if client.is_open:
            completer.refresh()


def turned(format: str | None) -> str:
    """Return the format after `\\x`: vertical, or the table again."""
    return "table" if format == "vertical" else "vertical"


def run_line(client: Client, text: str, format: str | None) -> bool:
    """Run what was typed, printing results and errors. Returns False when the connection is gone."""
    for statement in split_script(text):
        try:
            answer = client.execute(statement)
            if answer.continuous and answer.query is not None and not answer.durable:
                courtesy("results from now on; Ctrl-C stops; FETCH SELECT … answers at once")
                subscription = subscribed(client, answer)
                show_results(subscription, format or "table")
                stop_following(client, subscription)
            else:
                show_answer(answer, format or "table")
        except MillstreamError as error:
            warn(f"error: {error}")
            return client.is_open
        except KeyboardInterrupt:
            warn("stopped")
            return True
    return True
