"""Every rule has a random test, and the table that says which says what is true."""

from __future__ import annotations

import re

from tests.support.tree import ROOT

TESTS = ROOT / "tests"
RULES = [f"K{number}" for number in range(1, 30)]
ROW = re.compile(r"^\| (K\d+) \| [^|]+ \| (.*) \|$", re.MULTILINE)
IS_RANDOM = re.compile(r"@given|random\.Random|\bseed\b|\brng\b")


def table() -> dict[str, list[str]]:
    """Return the test files of each rule, as the README of the random tests lists them."""
    text = (TESTS / "property" / "README.md").read_text("utf-8")
    return {rule: re.findall(r"`([^`]+)`", names) for rule, names in ROW.findall(text)}


def test_every_rule_stands_in_the_table_and_in_the_documents() -> None:
    semantics = (ROOT / "docs" / "semantics.md").read_text("utf-8")
    assert list(table()) == RULES
    assert [rule for rule in RULES if not re.search(rf"^\*\*{rule} ", semantics, re.MULTILINE)] == []


def test_every_test_in_the_table_exists_and_is_random() -> None:
    files = {name: TESTS / name if "/" in name else TESTS / "property" / name for names in table().values() for name in names}
    assert [name for name, path in files.items() if not path.is_file() or not IS_RANDOM.search(path.read_text("utf-8"))] == []
