"""A policy of the user's own, from a short Python file.

The file defines one class with a method `rank(self, unit, now_ns) -> float`, greatest first; `unit` is a `view.UnitView`. It may state
`moves_with_time = False` when the number of a unit does not change while nothing arrives and nothing runs.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
from millstream.scheduler.contracts import FloatColumn, UnitRanking
from millstream.scheduler.errors import PolicyError
from millstream.scheduler.view import View


class UserRanking:
    """Asks the user's `rank` for one unit after the other. Slow beside the built-in ones, which rank all units at once."""

    moves_with_queue = True

    def __init__(self, ranking: UnitRanking, name: str) -> None:
        self.name = name
        self.moves_with_time = bool(getattr(ranking, "moves_with_time", True))
        self._ranking = ranking

    def rank(self, view: View, now_ns: int) -> FloatColumn:
        """Return the user's numbers; raises `PolicyError` for one that is no number."""
        numbers = np.array([float(self._ranking.rank(view.unit(unit, now_ns), now_ns)) for unit in view.index.tolist()])
        for number in numbers[~np.isfinite(numbers)].tolist():
            if math.isnan(number):
                raise PolicyError(f"policy {self.name} ranked a unit with a value that is not a number")
        return numbers


def load_user_ranking(path: str) -> UserRanking:
    """Read the file and return its ranking; raises `PolicyError` when it cannot be read or has not one such class."""
    file = Path(path)
    module_spec = importlib.util.spec_from_file_location(f"millstream_user_policy_{file.stem}", file)
    if module_spec is None or module_spec.loader is None or not file.is_file():
        raise PolicyError(f"policy file '{path}' is not a Python file that can be read")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module.__name__] = module  # as an import would: dataclasses look their module up there
    try:
        module_spec.loader.exec_module(module)
        ranking = _only_ranking(module, path)()
    except PolicyError:
        raise
    except Exception as problem:
        raise PolicyError(f"policy file '{path}' cannot be loaded: {type(problem).__name__}: {problem}") from problem
    return UserRanking(ranking, file.stem)


def _only_ranking(module: ModuleType, path: str) -> type[UnitRanking]:
    """Return the class of the file that ranks. A second name of it is no other class, and what it derives from is no policy beside it."""
    own = {one for one in vars(module).values() if isinstance(one, type) and one.__module__ == module.__name__}
    rank = {one for one in own if callable(getattr(one, "rank", None))}
    found = [one for one in rank if not any(other is not one and issubclass(other, one) for other in rank)]
    if len(found) != 1:
        raise PolicyError(f"policy file '{path}' defines {len(found)} classes with a method rank, not one")
    return found[0]
