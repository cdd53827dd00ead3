"""What the texts of the repository must say, and must not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.tree import ROOT, files

TEXTS = (
    ".py",
    ".md",
    ".toml",
    ".txt",
    ".in",
    ".yaml",
    ".yml",
    ".json",
    ".sql",
    ".sh",
    ".service",
    ".cfg",
    "Makefile",
    "Dockerfile",
    "run",
    "setup",
)

# Put together from parts, so that this file does not find itself.
MACHINE_PATH = re.compile(r"(?<![\w.~-])/" + r"(?:work|farm|root|home/\w+|tmp/\w+|opt/pypi\S*)(?=[/\s\"'`)]|$)")
DOWNLOAD_HOST = re.compile(r"\b(?:files\.python" + r"hosted|pypi\." + r"org/simple|registry\.npm" + r"js|deb\." + r"debian)", re.IGNORECASE)


@pytest.mark.parametrize(("pattern", "what"), [(MACHINE_PATH, "a path of one machine"), (DOWNLOAD_HOST, "a download host")])
def test_no_text_names(pattern: re.Pattern[str], what: str) -> None:
    found = [
        f"{path}:{number} {line.strip()[:100]}"
        for path in files()
        if path.name.endswith(TEXTS)
        for number, line in enumerate((ROOT / path).read_text().splitlines(), start=1)
        if pattern.search(line)
    ]
    assert found == [], what


@pytest.mark.parametrize("text", ["see /" + "work/main/x", "'/" + "root/.cache'", "/" + "home/ann/x", "(/" + "tmp/abc)"])
def test_the_path_pattern_catches(text: str) -> None:
    assert MACHINE_PATH.search(text)


@pytest.mark.parametrize("text", ["the server/work/x.py file", "rows/" + "root", "a /" + "workshop", "~/" + "work/x"])
def test_the_path_pattern_lets_pass(text: str) -> None:
    assert MACHINE_PATH.search(text) is None


def test_the_changelog_has_an_open_heading_on_top() -> None:
    headings = [line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")]
    assert headings[0] == "## Unreleased"


def test_links_between_the_documents_lead_somewhere() -> None:
    broken = [
        f"{path}: {target}"
        for path in files(".md")
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", (ROOT / path).read_text())
        if not (ROOT / path.parent / target).exists()
    ]
    assert broken == []


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "docs/index.md"])
def test_a_newcomer_finds(name: str) -> None:
    assert Path(ROOT / name).stat().st_size > 300


def test_no_text_keeps_the_marks_of_an_unsettled_merge() -> None:
    marks = re.compile(r"^(?:<{7} |>{7} |={7}$)", re.MULTILINE)
    assert [str(path) for path in files() if path.name.endswith(TEXTS) and marks.search((ROOT / path).read_text())] == []
