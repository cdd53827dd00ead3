"""A policy of the user's own, from a short Python file.

The file defines one class with a method `rank(self, unit, now_ns) -> float`, greatest first; `unit` is a `view.UnitView`. It may state
`moves_with_time = False` when the number of a unit does not change while nothing arrives and nothing runs.

Whatever the file does when it is loaded or asked, what comes of it is a number or a `PolicyError` that names the line. How long it may take
is the business of whoever calls it (`UserCalls`): the live server does so in a thread of its own, the simulator here.
"""

from __future__ import annotations

import importlib.util
import math
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import numpy as np
from millstream.scheduler.contracts import FloatColumn, UnitRanking, UserCalls
from millstream.scheduler.errors import PolicyError
from millstream.scheduler.limits import USER_CALL_NS_MAX, USER_LOAD_NS_MAX
from millstream.scheduler.view import UnitView, View

Answer = TypeVar("Answer")


def called_here(work: Callable[[], Answer], limit_ns: int) -> Answer:
    """Return what a user's code answers, called in this thread, however long that takes."""
    return work()


class LeftBehind(BaseException):
    """Ends a user's code whose answer nobody waits for any more."""


class UserRanking:
    """Asks the user's `rank` for one unit after the other. Slow beside the built-in ones, which rank all units at once."""

    moves_with_queue = True

    def __init__(self, ranking: UnitRanking, path: str, calls: UserCalls, moves_with_time: bool) -> None:
        self.moves_with_time = moves_with_time
        self._ranking = ranking
        self._path = path
        self._calls = calls

    def rank(self, view: View, now_ns: int) -> FloatColumn:
        """Return the user's numbers; raises `PolicyError` with the file's line when it raised, and for what is no number."""
        units = [view.unit(unit, now_ns) for unit in view.index.tolist()]
        found = self._calls(lambda: _in_words(self._path, lambda: self._numbers(units, now_ns)), USER_CALL_NS_MAX)
        return np.array(found, dtype=np.float64)

    def _numbers(self, units: Sequence[UnitView], now_ns: int) -> list[float]:
        return [_number(self._ranking.rank(unit, now_ns)) for unit in units]


def _number(rank: object) -> float:
    """Return a rank as a float; raises `ValueError` for what is no number."""
    number = math.nan if isinstance(rank, str | bytes) else float(rank)  # type: ignore[arg-type]
    if math.isnan(number):
        raise ValueError(f"a unit was ranked with {str(rank)[:40]!r}, which is not a number")
    return number


def _in_words(path: str, work: Callable[[], Answer]) -> Answer:
    """Return what a user's code returns; raises `PolicyError` in place of whatever it raises, which may be anything at all.

    The words are made here, where the code runs: an exception's text is the user's code too.
    """
    try:
        return work()
    except (LeftBehind, KeyboardInterrupt):
        raise
    except BaseException as problem:
        lines = [frame.lineno for frame in traceback.extract_tb(problem.__traceback__) if frame.filename == path]
        if isinstance(problem, SyntaxError) and problem.filename == path and problem.lineno is not None:
            lines, problem = [problem.lineno], SyntaxError(problem.msg)
        place = f"{os.path.basename(path)}, line {lines[-1]}" if lines else os.path.basename(path)
        message = _text(problem)
    raise PolicyError(f"{place}: {message}")


def _text(problem: BaseException) -> str:
    """Return what an exception of the user's code says. That is the user's code too, and may raise in turn."""
    try:
        if isinstance(problem, AttributeError) and isinstance(problem.obj, UnitView):
            return f"a unit has no {problem.name}; it has {', '.join(UnitView.__slots__[1:])}"
        return f"{problem}" if isinstance(problem, PolicyError) else f"{type(problem).__name__}: {problem}"
    except (LeftBehind, KeyboardInterrupt):
        raise
    except BaseException:
        return "an exception that has no text, as its __str__ raises another"


def load_user_ranking(path: str, calls: UserCalls = called_here) -> UserRanking:
    """Return the ranking of a file; raises `PolicyError` when it cannot be read or has not one such class."""
    file = Path(path)
    module_spec = importlib.util.spec_from_file_location(f"millstream_user_policy_{file.stem}", file)
    if not file.exists():
        raise PolicyError(f"there is no policy file '{path}'")
    if module_spec is None or module_spec.loader is None or not file.is_file():
        raise PolicyError(f"policy file '{path}' is not a Python file that can be read")
    module, run, place = importlib.util.module_from_spec(module_spec), module_spec.loader.exec_module, str(module_spec.origin)
    sys.modules[module.__name__] = module  # as an import would: dataclasses look their module up there

    def made() -> tuple[UnitRanking, bool]:
        run(module)
        ranking = _only_ranking(module)()
        return ranking, bool(getattr(ranking, "moves_with_time", True))

    try:
        ranking, moves_with_time = calls(lambda: _in_words(place, made), USER_LOAD_NS_MAX)
    except PolicyError as problem:
        raise PolicyError(f"policy file '{path}' cannot be loaded: {problem}") from problem
    return UserRanking(ranking, place, calls, moves_with_time)


def _only_ranking(module: ModuleType) -> type[UnitRanking]:
    """Return the class of the file that ranks. A second name of it is no other class, and what it derives from is no policy beside it."""
    own = {one for one in vars(module).values() if isinstance(one, type) and one.__module__ == module.__name__}
    rank = {one for one in own if callable(getattr(one, "rank", None))}
    found = [one for one in rank if not any(other is not one and issubclass(other, one) for other in rank)]
    if len(found) != 1:
        told = f"{len(found)} classes" if found else "no class"
        raise PolicyError(f"it defines {told} with a method rank(self, unit, now_ns); a policy is one such class")
    return found[0]
