"""Load managers by name, as the setting `load` has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from millstream.scheduler.errors import PolicyError
from millstream.scheduler.load.contract import LoadManager
from millstream.scheduler.load.dilos import Dilos
from millstream.scheduler.load.shedders import ClassShedders, CommonShedder, NoShedder

MANAGERS: Mapping[str, Callable[[], LoadManager]] = {"none": NoShedder, "common": CommonShedder, "class": ClassShedders, "dilos": Dilos}


def load_manager(name: str) -> LoadManager:
    """Make a load manager; raises `PolicyError` naming those there are."""
    if name not in MANAGERS:
        raise PolicyError(f"unknown load manager '{name}'", hint="known are " + ", ".join(MANAGERS))
    return MANAGERS[name]()
