"""Every case from the field is tested, and the table that says where says what is true."""

from __future__ import annotations

import re

from tests.support.tree import ROOT

TESTS = ROOT / "tests"
CASES = [f"C{number:02}" for number in range(1, 43)]
ROW = re.compile(r"^\| (C\d\d) \| [^|]+ \| (.*) \|$", re.MULTILINE)


def table() -> dict[str, list[str]]:
    """Return the tests of each case, as the README beside the golden cases lists them."""
    text = (TESTS / "golden" / "README.md").read_text("utf-8")
    return {case: re.findall(r"`([^`]+)`", names) for case, names in ROW.findall(text)}


def test_every_case_stands_in_the_table_with_tests() -> None:
    found = table()
    assert sorted(found) == CASES
    assert [case for case, names in found.items() if not names] == []


def test_every_test_in_the_table_exists() -> None:
    names = sorted({name for names in table().values() for name in names})
    golden = TESTS / "golden" / "cases"
    assert [n for n in names if not ((TESTS / n).is_file() if n.endswith(".py") else (golden / f"{n}.sql").is_file())] == []
