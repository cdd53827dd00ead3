"""Files that appear whole or not at all."""

from __future__ import annotations

from pathlib import Path


def check_writable(path: Path) -> None:
    """Raise OSError naming the file if it cannot be written, before work is done for it."""
    part = path.with_name(path.name + ".part")
    try:
        part.touch()
        part.unlink()
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from error


def write_whole(path: Path, text: str) -> None:
    """Write a text file beside its place and move it there."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
