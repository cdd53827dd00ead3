"""The README's first query, the tutorial, the recipes on a server and the page for researchers work as they stand: their commands are run
in their order, against a server of their own, and print what the page shows.

A block ```file NAME is a file that the reader writes. In a block ```console, `$ ` begins a command, and the lines below it are what it
prints to standard output. A block ```python is a script. `millstream serve &` starts the server; another command that
ends in ` &` runs until the page is done.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.services import free_port

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FIRST_QUERY = re.compile(r"^## A first query\n\n```sh\n(.*?)^```\n\n```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(file|console|python)(?: ([\w.]+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SERVE = "millstream serve &"
COMMAND_S = 300


class Reader:
    """Somebody who follows the page in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = f"127.0.0.1:{free_port()}"
        here = {"MILLSTREAM_SERVER": self.address, "MILLSTREAM_PORT": self.address.rpartition(":")[2]}
        self.environment = os.environ | here | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        self.server: subprocess.Popen[str] | None = None
        self.behind: list[subprocess.Popen[bytes]] = []
        (folder / "feeder").symlink_to(ROOT / "feeder")

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, "utf-8")

    def console(self, block: str) -> None:
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, expected = step.partition("\n")
            if command == SERVE:
                self.serve()
            elif command.endswith(" &"):
                shell = ["bash", "-c", command.removesuffix(" &")]
                self.behind.append(subprocess.Popen(shell, cwd=self.folder, env=self.environment, start_new_session=True))
            else:
                assert self.output(["bash", "-o", "pipefail", "-c", command]) == expected, command

    def serve(self) -> None:
        words = SERVE.removesuffix(" &").split()
        self.server = subprocess.Popen(words, cwd=self.folder, env=self.environment, stderr=subprocess.PIPE, text=True)
        assert self.server.stderr is not None
        assert any('"listening"' in line for line in self.server.stderr), "the server ended before it listened"

    def script(self, text: str) -> str:
        return self.output([sys.executable, "-c", text.replace("127.0.0.1:7415", self.address)])

    def output(self, words: list[str]) -> str:
        done = subprocess.run(words, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=COMMAND_S, check=False)
        assert done.returncode == 0, f"{words[-1]}: {done.stderr}"
        return done.stdout


@contextmanager
def reader(folder: Path) -> Iterator[Reader]:
    one = Reader(folder)
    try:
        yield one
    finally:
        for process in one.behind:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(COMMAND_S)
        if one.server is not None:
            one.server.terminate()
            one.server.communicate(timeout=COMMAND_S)


@pytest.mark.slow
@pytest.mark.process
def test_the_first_query_of_the_readme_prints_what_it_shows(tmp_path: Path) -> None:
    found = FIRST_QUERY.search((ROOT / "README.md").read_text("utf-8"))
    assert found
    _set_up, serve, steps = found[1].split("\n", 2)
    assert serve == SERVE
    with reader(tmp_path) as one:
        one.serve()
        assert one.output(["bash", "-e", "-c", steps]) == found[2]


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize(("page", "consoles_min"), [("tutorial.md", 10), ("research.md", 5), ("recipes.md", 2)])
def test_every_step_of_a_page_prints_what_the_page_shows(tmp_path: Path, page: str, consoles_min: int) -> None:
    steps = BLOCK.findall((DOCS / page).read_text("utf-8"))
    with reader(tmp_path) as one:
        for kind, name, body in steps:
            if kind == "file":
                one.write(name, body)
            elif kind == "console":
                one.console(body)
            else:
                assert "'flights': 275" in one.script(body)
    assert [kind for kind, _, _ in steps].count("console") >= consoles_min
