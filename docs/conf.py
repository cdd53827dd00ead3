"""How Sphinx builds the documents into a site: `make docs`. It needs no network.

Why Sphinx with MyST: the pages stay plain Markdown that reads well in a repository browser, links between pages are checked while
building, search works without a server, and many people look after both.
"""

from __future__ import annotations

import re
from importlib.metadata import version as version_of
from pathlib import Path

from sphinx.application import Sphinx

project = "Millstream"
release = version = version_of("millstream")

extensions = ["myst_parser"]
root_doc = "index"
exclude_patterns = ["_build"]
myst_heading_anchors = 4
suppress_warnings = ["misc.highlighting_failure"]  # a `file` block of the tutorial is in no language that Pygments knows

html_theme = "furo"
html_title = f"Millstream {release}"
html_show_copyright = False

# Pages that stand at the top of the repository, where people look for them, and are pages of the site as well.
TOP = Path(__file__).parents[1]
TOP_PAGES = {"architecture": "ARCHITECTURE.md", "contributing": "CONTRIBUTING.md", "changes": "CHANGELOG.md", "readme": "README.md"}
PAGE_OF = {name: f"{page}.md" for page, name in TOP_PAGES.items()}
LINK = re.compile(r"\[([^\]]*)\]\(([^)#:]+)(#[^)]*)?\)")


def from_the_top(_app: Sphinx, page: str, source: list[str]) -> None:
    """Replace the stub of a top-level page by the page itself, and every link by the one that leads there within the site."""
    if page in TOP_PAGES:
        source[0] = LINK.sub(_in_the_site, (TOP / TOP_PAGES[page]).read_text("utf-8"))
    else:
        source[0] = re.sub(r"\]\(\.\./([A-Z]+\.md)", lambda found: f"]({PAGE_OF.get(found[1], found[0])}", source[0])


def _in_the_site(link: re.Match[str]) -> str:
    text, target, anchor = link[1], link[2], link[3] or ""
    if target in PAGE_OF:
        return f"[{text}]({PAGE_OF[target]}{anchor})"
    if target.startswith("docs/"):
        return f"[{text}]({target.removeprefix('docs/') or 'index.md'}{anchor})"
    return text  # a file that is no page of the site


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", from_the_top)
