"""From a failing seed to the smallest case that still fails: one query and as few rows as will do, written as golden files are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.property.oracle.scenario import Scenario, Way

Make = Callable[[int, frozenset[int] | None], Scenario]
Wrong = Callable[[Scenario, Way], list[str]]
FOLDER = Path(__file__).parents[3] / "build" / "random"


def _fails(make: Make, wrong: Wrong, seed: int, query: int, places: frozenset[int], way: Way) -> bool:
    scenario = make(seed, places)
    scenario.queries = [scenario.queries[query]]
    return bool(wrong(scenario, way))


def smallest(make: Make, wrong: Wrong, seed: int, way: Way) -> Scenario | None:
    """Leave out queries, then rows, in halves and at last one by one, as long as what is left fails; None when nothing fails singly."""
    everything = frozenset(range(len(make(seed, None).arrivals)))
    for query in range(len(make(seed, None).queries)):
        if not _fails(make, wrong, seed, query, everything, way):
            continue
        places, step = everything, max(1, len(everything) // 2)
        while step:
            for start in range(0, len(everything), step):
                fewer = places - set(range(start, start + step))
                if fewer != places and _fails(make, wrong, seed, query, fewer, way):
                    places = fewer
            step //= 2
        found = make(seed, places)
        found.queries = [found.queries[query]]
        return found
    return None


def write_smallest(make: Make, wrong: Wrong, seed: int, name: str, way: Way | None = None) -> Any:
    """Write NAME.sql and NAME.timeline.jsonl, ready to be moved to tests/golden/cases; say where, or why there are none.

    The right rows stand in the script's head. Once they come out, `pytest tests/golden --regenerate` writes the expected file.
    """
    found = smallest(make, wrong, seed, way or Way(train=7))
    if found is None:
        return "none by itself at trains of 7; look at the whole script"
    FOLDER.mkdir(parents=True, exist_ok=True)
    right = "".join(f"-- right: {row}\n" for row in found.queries[0].rows)
    (FOLDER / f"{name}.sql").write_text(right + found.script(), "utf-8")
    (FOLDER / f"{name}.timeline.jsonl").write_text(found.timeline(), "utf-8")
    return FOLDER / f"{name}.sql"
