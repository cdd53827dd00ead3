"""Writes what tests keep of states: `python -m tests.support.kept_states forms`, or `states N` (CONTRIBUTING.md, "State and upgrades").

`states_N.tar.xz` has a state of every kind of query of `states.py`, with the rows before and after it and the statements, so that an
archive can be read whatever becomes of `states.py`. Archive 1 was written before EMIT had a field more. `forms.json` has the version and
fields of each form as they are today.
"""

from __future__ import annotations

import io
import json
import pkgutil
import sys
import tarfile
from dataclasses import dataclass
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

import millstream.engine
from millstream.engine.state.forms import known_forms
from millstream.server.durability import checkpoints as _  # noqa: F401  has forms, too

from tests.support.states import CASES, Row, history, shared_answers, stopped

KEPT = Path(__file__).parents[1] / "engine" / "state" / "kept"
SEED, CUT = 5, 60
SHARED_NAME = "shared synopses"
DECIMALS = (4, 5)  # the columns w and n of a row


@dataclass(frozen=True)
class Archive:
    """What an archive holds: the statements, the rows, how many of them came before the states, and these by name."""

    queries: dict[str, str]
    rows: list[Row]
    cut: int
    states: dict[str, bytes]


def forms_today() -> dict[str, Any]:
    """Return the version and fields of every form of the engine and of checkpoints, by name."""
    for module in pkgutil.walk_packages(millstream.engine.__path__, "millstream.engine."):
        import_module(module.name)
    return {form.name: {"version": form.version, "fields": list(form.fields)} for form in known_forms()}


def archives() -> list[Path]:
    """Return the archives that are kept."""
    return sorted(KEPT.glob("states_*.tar.xz"))


def read(path: Path) -> Archive:
    """Return what an archive holds."""
    with tarfile.open(path) as archive:
        files = {member.name: file.read() for member in archive if (file := archive.extractfile(member)) is not None}
    told = json.loads(files.pop("cases.json"))
    rows = [(stream, tuple(_value(place, value) for place, value in enumerate(row))) for stream, row in told["rows"]]
    return Archive(told["queries"], rows, told["cut"], {name.removesuffix(".state"): data for name, data in files.items()})


def _value(place: int, value: Any) -> Any:
    return Decimal(value) if place in DECIMALS and value is not None else value


def write_forms() -> None:
    """Write the forms of today."""
    (KEPT / "forms.json").write_text(json.dumps(forms_today(), indent=1) + "\n")


def write_states(number: str) -> None:
    """Write an archive in the forms of today."""
    rows = history(SEED)
    files = {f"{name}.state": stopped(query, rows[:CUT]).state for name, query in CASES.items()}
    files[f"{SHARED_NAME}.state"] = shared_answers(rows, CUT, None, swap=False)[1]
    told = {"queries": dict(CASES), "cut": CUT, "rows": rows}
    files["cases.json"] = json.dumps(told, default=str, indent=0).encode()
    with tarfile.open(KEPT / f"states_{number}.tar.xz", "w:xz") as archive:
        for name, data in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


if __name__ == "__main__":
    {"forms": write_forms, "states": write_states}[sys.argv[1]](*sys.argv[2:])
