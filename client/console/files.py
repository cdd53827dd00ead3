"""The page's files, which `make console` bundles and the wheel has; and the rules under which a browser runs them.

With the page come docs/experiments.md and its figures, compressed: so an installed console has them too.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

from millstream.client.errors import MillstreamError

BUNDLE = Path(__file__).parent / "bundle"
PAGE = "index.html"
EXPERIMENTS = "experiments.txt"
PACKED = ".gz"
NONCE = "{{nonce}}"  # in the page, where the number goes by which the editor's styles are let in
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Bundle:
    """The page, its files by name, each with its headers, and the text that tells of the experiments."""

    page: str
    files: dict[str, tuple[bytes, dict[str, str]]]
    experiments: str = ""


def load(folder: Path = BUNDLE) -> Bundle:
    """Return the bundle. MillstreamError (`unsupported`) when it was not made."""
    if not (folder / PAGE).is_file():
        raise MillstreamError(
            "unsupported",
            "the console's page has not been bundled: this is a clone without it",
            "run make console (it needs Node 18 or later and npm), or install the wheel",
        )
    files = {path.name.removesuffix(PACKED): _file(path) for path in sorted(folder.iterdir()) if _type(path) and path.name != PAGE}
    told = folder / EXPERIMENTS
    return Bundle((folder / PAGE).read_text("utf-8"), files, told.read_text("utf-8") if told.is_file() else "")


def _type(path: Path) -> str | None:
    return TYPES.get(Path(path.name.removesuffix(PACKED)).suffix)


def _file(path: Path) -> tuple[bytes, dict[str, str]]:
    headers = {"Content-Type": _type(path) or ""}
    return path.read_bytes(), headers | ({"Content-Encoding": "gzip"} if path.suffix == PACKED else {})


def page(bundle: Bundle) -> tuple[str, dict[str, str]]:
    """Return the page as one browser gets it, and its headers: no script but ours, no style but ours and the editor's, no other host."""
    nonce = secrets.token_urlsafe(16)
    policy = (
        "default-src 'self'; script-src 'self'; connect-src 'self'; worker-src 'self'; img-src 'self' data:; "
        f"style-src 'self' 'nonce-{nonce}'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return bundle.page.replace(NONCE, nonce), {"Content-Security-Policy": policy}
