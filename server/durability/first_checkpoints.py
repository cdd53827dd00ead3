"""Checkpoints of version 0.1.0: where streams stood and what tables held are taken over, what queries held is not.

They are pickles that name classes by the places these had then, and the only place where rows of tables are that the journal has let go
of; so they are read once, when a directory of 0.1.0 is converted or salvaged, and nowhere else. Only what columns are made of is loaded;
anything else that a file names becomes an empty stand-in, so that no file can have code run. Nothing is written like that any more.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

from millstream.engine.data.column import Column
from millstream.engine.data.types import DataType, Kind
from millstream.server.durability.checkpoints import Checkpoint, body_of

_OURS = {"Column": Column, "DataType": DataType, "Kind": Kind}
_FOREIGN = {
    ("pyarrow.lib", "_restore_array"),
    ("pyarrow.lib", "type_for_alias"),
    ("pyarrow.lib", "py_buffer"),
    ("pyarrow.lib", "list_"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    *((f"numpy.{core}.multiarray", name) for core in ("core", "_core") for name in ("_reconstruct", "scalar")),
    *((f"numpy.{core}.numeric", "_frombuffer") for core in ("core", "_core")),
}


class _StandIn:
    """An object of a class that is not loaded: its members are kept, nobody reads them but for a checkpoint's own."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        parts = [part for part in (state if isinstance(state, tuple) else (state,)) if isinstance(part, dict)]
        self.__dict__.update({name: value for part in parts for name, value in part.items()})


class _Loader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("millstream.engine."):
            return _OURS.get(name, _StandIn)
        return super().find_class(module, name) if (module, name) in _FOREIGN else _StandIn


def take_over(body: bytes) -> bytes | None:
    """Return the body of a checkpoint of the present format with a former one's streams and tables; None when it cannot be read."""
    try:
        found = _Loader(io.BytesIO(body)).load()
        tables = {int(number): list(columns) for number, columns in found.tables.items()}
        sources = {int(number): dict(state) for number, state in found.sources.items()}
        whole = all(isinstance(c, Column) and isinstance(c.type, DataType) for columns in tables.values() for c in columns)
        made = Checkpoint(int(found.at), sources, tables)
    except Exception:  # what unpickling may raise is not a closed list; the caller says that it is not used
        return None
    return body_of(made) if whole else None
