"""A file is one idea, short enough to read at a sitting; a function is short enough for a screen."""

from __future__ import annotations

import ast
import warnings

import pytest

from tests.support.tree import ROOT, files, parse

FILE_LINES_SOFT = 600  # one idea may take more, and is never cut in two for that
FUNCTION_LINES_MAX = 60


@pytest.mark.filterwarnings("default")
def test_a_file_of_more_than_600_lines_is_told_of() -> None:
    lengths = {str(path): len((ROOT / path).read_text().splitlines()) for path in files(".py")}
    long = {path: lines for path, lines in lengths.items() if lines > FILE_LINES_SOFT}
    if long:
        warnings.warn(f"look whether these are still one idea each: {long}", stacklevel=1)


def test_no_function_is_longer_than_60_lines_without_its_docstring() -> None:
    too_long = [
        f"{path}:{node.lineno} {node.name}: {length(node)}"
        for path in files(".py")
        for node in ast.walk(parse(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and length(node) > FUNCTION_LINES_MAX
    ]
    assert too_long == []


def length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the lines from `def` to the end, less those of the docstring."""
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines
