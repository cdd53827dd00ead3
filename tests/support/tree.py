"""The repository as the tidy tests see it: its files, its packages, its parsed modules."""

from __future__ import annotations

import ast
import functools
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("client", "engine", "feeder", "protocol", "scheduler", "server")
_NOT_OURS = {".git", ".venv", "build", "dist", "__pycache__", "node_modules"}


@functools.cache
def files(suffix: str = "") -> tuple[Path, ...]:
    """Return the repository's files whose name ends so, relative to its top, sorted; without what git ignores in general."""
    found = (path.relative_to(ROOT) for path in ROOT.rglob(f"*{suffix}") if path.is_file() and not path.is_symlink())
    return tuple(sorted(path for path in found if not _NOT_OURS.intersection(path.parts) and not _is_cache(path)))


def _is_cache(path: Path) -> bool:
    return any(part.endswith(("_cache", ".egg-info")) or part in {".hypothesis", ".benchmarks", "htmlcov"} for part in path.parts)


def modules() -> tuple[Path, ...]:
    """Return the product's Python files."""
    return tuple(path for path in files(".py") if path.parts[0] in PACKAGES)


@functools.cache
def parse(path: Path) -> ast.Module:
    """Return the syntax tree of one of `files()`."""
    return ast.parse((ROOT / path).read_text(), str(path))


def dotted(path: Path) -> str:
    """Return the import name of a product file: engine/data/train.py is millstream.engine.data.train."""
    parts = path.with_suffix("").parts
    return ".".join(("millstream", *(parts[:-1] if parts[-1] == "__init__" else parts)))


def imports(path: Path) -> list[tuple[int, str]]:
    """Return (line, module) of every import in a file, at whatever depth; `from a import b` gives `a.b` too."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            found.extend((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            found.append((node.lineno, base))
            found.extend((node.lineno, f"{base}.{alias.name}") for alias in node.names)
    return found


@functools.cache
def project() -> dict[str, Any]:
    """Return pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())
