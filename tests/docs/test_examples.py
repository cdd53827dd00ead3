"""The examples of docs/language.md, docs/semantics.md, docs/recipes.md and docs/workers.md do what the page says.

A block ```sql is a script. Blocks ```csv NAME or ```jsonl NAME (rows of a stream), ```jsonl (a timeline) or ```python FILE (a file that
it names) after it are its input, and ```json what comes out, or ```error how it is refused. A script with neither need only be understood.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from millstream.engine.aggregates.table import aggregate_names
from millstream.engine.language.parse import parse_script
from millstream.server.run.embedded import Replay, run_replay
from millstream.server.run.output import write_results

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(sql|csv|jsonl|json|error|python)(?: ([\w.]+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass
class Example:
    place: str
    script: str
    inputs: list[tuple[str, str]] = field(default_factory=list)
    files: list[tuple[str, str]] = field(default_factory=list)
    timeline: str | None = None
    output: str | None = None
    error: str | None = None


def examples() -> list[Example]:
    found: list[Example] = []
    for page in ("language.md", "semantics.md", "recipes.md", "workers.md"):
        text = (DOCS / page).read_text("utf-8")
        for block in BLOCK.finditer(text):
            kind, name, body = block.groups()
            if kind == "sql":
                found.append(Example(f"{page}:{text.count(chr(10), 0, block.start()) + 1}", body))
            elif kind == "csv" or (kind == "jsonl" and name):
                found[-1].inputs.append((f"{name}.{kind}", body))
            elif kind == "python":
                found[-1].files.append((name, body))
            elif kind == "jsonl":
                found[-1].timeline = body
            elif kind == "json":
                found[-1].output = body
            else:
                found[-1].error = body.strip()
    return found


def check(example: Example, folder: Path) -> None:
    inputs = []
    for name, rows in example.inputs:
        path = folder / name
        path.write_text(rows, "utf-8")
        inputs.append((path.stem, path))
    for name, text in example.files:
        (folder / name).write_text(text, "utf-8")
    timeline = None
    if example.timeline is not None:
        timeline = folder / "timeline.jsonl"
        timeline.write_text(example.timeline, "utf-8")
    outcomes = run_replay(Replay(example.script, inputs, timeline))
    assert outcomes.failure == example.error
    if example.output is not None:
        out = io.BytesIO()
        write_results(outcomes.results, "json", out)
        assert out.getvalue().decode() == example.output


@pytest.mark.parametrize("example", examples(), ids=lambda e: e.place)
def test_an_example_does_what_the_page_says(example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if example.output is None and example.error is None:
        assert list(parse_script(example.script))
    else:
        check(example, tmp_path)


def test_the_pages_have_examples_with_answers() -> None:
    assert sum(e.output is not None for e in examples()) >= 12


def test_every_recipe_has_its_answer() -> None:
    sections = re.split(r"^## ", (DOCS / "recipes.md").read_text("utf-8"), flags=re.MULTILINE)[1:]
    assert len(sections) >= 12
    shown = [section.partition("\n")[0] for section in sections if "```json\n{" not in section and "```console\n$ " not in section]
    assert shown == []


def test_every_aggregate_is_listed() -> None:
    text = (DOCS / "language.md").read_text("utf-8")
    assert [name for name in aggregate_names() if name.upper() not in text] == []
