"""Inside a folder imports go down from room to room, and few files stand in a circle."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.support.rooms import FOLDERS, ROOT, Picture, code_lines, pictures
from tests.support.tree import modules, parse

FOLDERS_WITH_FLOORS = ("client", "engine", "scheduler", "server")  # those whose rooms have a contract
CIRCLE_FILES_MAX = 5
FILES_MAX = 777  # of the product; a new idea may have a new file, a crumb may not


@pytest.fixture(scope="module")
def found() -> dict[str, Picture]:
    return pictures()


@pytest.mark.parametrize("folder", FOLDERS_WITH_FLOORS)
def test_no_import_goes_up(found: dict[str, Picture], folder: str) -> None:
    assert found[folder].layers
    assert found[folder].up == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_more_than_five_files_import_each_other_in_a_circle(found: dict[str, Picture], folder: str) -> None:
    assert [circle for circle in found[folder].circles if len(circle) > CIRCLE_FILES_MAX] == []


def test_rooms_that_meet_call_no_two_classes_alike(found: dict[str, Picture]) -> None:
    """Two rooms meet where one imports the other; a room meets itself. Names with an underscore stay in their file."""
    assert [(folder, *alike) for folder, picture in found.items() for alike in picture.namesakes] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_another_room_calls_says_what_it_returns_and_raises(found: dict[str, Picture], folder: str) -> None:
    wanted = {
        "return": re.compile(r"\b([Rr]eturns?|Yields?|Tells?|Whether)\b"),
        "raise": re.compile(r"\b[Rr]aises?\b|\b[A-Z][a-z]+[A-Z]\w+|\bUnsupported\b"),
    }
    silent = []
    for (module, name), node in functions_called_from_outside(found[folder]).items():
        text = ast.get_docstring(node) or ""
        gives = node.returns is not None and ast.unparse(node.returns) not in ("None", "NoReturn")
        raises = any(isinstance(inner, ast.Raise) and inner.exc is not None for inner in ast.walk(node))
        due = [what for what, does in (("return", gives), ("raise", raises)) if does and not wanted[what].search(text)]
        silent += [f"{module}.{name}: {what}" for what in due]
    assert silent == []


def functions_called_from_outside(picture: Picture) -> dict[tuple[str, str], ast.FunctionDef]:
    """Return the functions of a folder that a module of another room, or folder, imports."""
    own = {(m, n.name): n for m, source in picture.sources.items() for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)}
    prefix = f"millstream.{picture.folder}."
    asked = {
        key
        for path, module, name in from_imports()
        if module.startswith(prefix) and (key := (module.removeprefix(prefix), name)) in own
        if path.parts[0] != picture.folder or picture.room(".".join(path.with_suffix("").parts[1:])) != picture.room(key[0])
    }
    return {key: own[key] for key in sorted(asked)}


@cache
def from_imports() -> list[tuple[Path, str, str]]:
    """Return each `from module import name` of the repository with the file where it stands."""
    nodes = [(path, node) for path in modules() for node in ast.walk(parse(path)) if isinstance(node, ast.ImportFrom) and node.module]
    return [(path, node.module or "", alias.name) for path, node in nodes for alias in node.names]


def test_the_product_has_no_more_files_than_it_needs(found: dict[str, Picture]) -> None:
    assert sum(len(picture.sources) for picture in found.values()) <= FILES_MAX


def test_where_is_what_names_files_and_functions_that_exist() -> None:
    """A name that stands behind a file, or before it with "in" or "of" between, is in that file."""
    table = (ROOT / "ARCHITECTURE.md").read_text("utf-8").split("### Where is what", 1)[1].split("\n## ", 1)[0]
    rows = [line.split("|")[2] for line in table.splitlines() if line.startswith("| ") and "---" not in line][1:]
    assert len(rows) >= 15
    missing = [place for row in rows for place in re.findall(r"`([\w/]+/[\w/]*\.?\w*)`", row) if not (ROOT / place).exists()]
    assert missing == []
    named = [pair for row in rows for pair in re.findall(r"`([A-Za-z_.]+)`(?: and `\w+`)? (?:in|of) `([\w/]+\.py)`", row)]
    assert len(named) >= 8
    texts = {
        path: next(text for at in (ROOT / path, *ROOT.glob(f"server/*/{path}")) if at.exists() for text in [at.read_text("utf-8")])
        for _, path in named
    }
    assert [(name, path) for name, path in named if not re.search(rf"\b(def|class) {name.rpartition('.')[2]}\b", texts[path])] == []


def test_namesakes_are_found_in_a_room_and_between_rooms_that_meet() -> None:
    body = "class One:\n    pass\nclass _Own:\n    pass\n"
    sources = {
        "low.a": body,
        "low.b": body,
        "high.c": f"import millstream.house.low.a\n{body}",
        "side.d": body,
        "low": "",
        "high": "",
        "side": "",
    }
    picture = Picture("house", sources, frozenset(("low", "high", "side")))
    assert picture.namesakes == [("One", "high.c", "low.a"), ("One", "high.c", "low.b"), ("One", "low.a", "low.b")]


def test_imports_at_any_depth_count() -> None:
    sources = {
        "low.a": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from millstream.house.high import b\n",
        "low.c": "import millstream.house.low.a\n",
        "high.b": "def f():\n    from millstream.house.low.c import x\n    return x\n",
        "low": "",
        "high": "",
    }
    picture = Picture("house", sources, frozenset(("low", "high")), (("high",), ("low",)))
    assert picture.up == [("low.a", "high.b")]
    assert picture.circles == [["high.b", "low.a", "low.c"]]
    assert picture.between == {("low", "high"): 1, ("high", "low"): 1}


def test_rooms_without_a_contract_stand_so_that_few_imports_go_up() -> None:
    sources = {"x.a": "import millstream.house.y.b", "y.b": "import millstream.house.z.c", "z.c": "", "x": "", "y": "", "z": ""}
    picture = Picture("house", sources, frozenset("xyz"))
    assert picture.floors == [("x",), ("y",), ("z",)]
    assert picture.up == []


def test_lines_of_code_are_those_without_blanks_comments_and_docstrings() -> None:
    source = '"""Text."""\n\n# why\ndef f(x):\n    """Return it.\n\n    Always.\n    """\n    return [\n        x,\n\n    ]\n'
    assert code_lines(source) == 4
