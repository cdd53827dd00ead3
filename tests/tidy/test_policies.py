"""Every policy says where it comes from and by which equation it ranks, has a row in the catalogue, and is tested by name."""

from __future__ import annotations

import ast
import re

import pytest
from millstream.scheduler.catalog import CATALOG

from tests.support.tree import ROOT, files, modules, parse

NO_POLICIES = {"__init__.py", "base.py", "user.py"}
FILES = [path for path in modules() if path.parts[:2] == ("scheduler", "policies") and path.name not in NO_POLICIES]
SOURCES = r"\((Pajjuri 2004|Carney 2005|Sharaf 2007|Golab 2006|Pham 2013|Babcock)"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_policy_names_its_source_and_its_equation(path: object) -> None:
    said = ast.get_docstring(parse(path)) or ""  # type: ignore[arg-type]
    assert re.search(SOURCES, said.splitlines()[0]), "the first line of the docstring names the source"
    assert re.search(r" = | <= |Σ|in turn", said), "the docstring has the equation, or says whose turn it is"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_policy_has_a_row_in_the_catalogue(path: object) -> None:
    catalogue = (ROOT / "scheduler" / "catalog.py").read_text()
    assert f"from millstream.scheduler.policies.{path.stem} import" in catalogue  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", sorted(CATALOG))
def test_a_policy_is_tested_by_its_name(name: str) -> None:
    tests = [path for path in files(".py") if path.parts[0] == "tests" and {"scheduler", "simulation"} & set(path.parts)]
    assert any(re.search(rf"[\"']{re.escape(name)}\b", (ROOT / path).read_text()) for path in tests)


@pytest.mark.parametrize("row", [row for row in CATALOG.values() if row.name != "user"], ids=lambda row: row.name)
def test_a_row_says_what_it_does_and_where_it_is_from(row: object) -> None:
    assert row.summary  # type: ignore[attr-defined]
    assert re.search(r"\d{4}", row.source)  # type: ignore[attr-defined]
