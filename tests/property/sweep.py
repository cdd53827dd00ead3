"""Many random queries of every kind, by seed: against the oracle's reading of the rules, or against DuckDB.

python -m tests.property.sweep 0 1000                    # seeds 0 to 999 of every kind
python -m tests.property.sweep 0 1000 patterns sets      # of these kinds
python -m tests.property.sweep 0 1000 --minutes 30       # as far as it comes; it says which seeds were done

Each seed is three to nine queries over the same rows, run by one of five policies, shared or not, with trains of 1, 7 or 4096 rows and one
worker or three. What differs is printed with its seed; the last lines say how many queries of each kind were run, and of which seeds.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from tests.property import test_fetch_sets, test_fetch_subqueries, test_tables_as_inputs
from tests.property.oracle.scenario import Way
from tests.property.oracle.shapes import SHAPES, failing

POLICIES = ("fcfs", "round-robin", "hnr", "chain", "bsd-log")


@dataclass
class Count:
    """What was done of one kind."""

    queries: int = 0
    seeds: int = 0
    wrong: int = 0


def of_shape(name: str, seed: int) -> tuple[int, list[str]]:
    """Return how many different queries a scenario has, and what is wrong with their answers."""
    scenario = SHAPES[name](seed)
    dice = random.Random(f"{name} {seed}")
    way = Way(dice.choice([1, 7, 4096]), dice.choice([1, 1, 3]), POLICIES[seed % len(POLICIES)], sharing=dice.random() < 0.7)
    wrong = failing(scenario, way)
    return len({query.sql for query in scenario.queries}), [f"{way}\n{scenario.definitions}\n{one}" for one in wrong]


def of_check(check: Callable[[int], None], queries: int) -> Callable[[int], tuple[int, list[str]]]:
    """Return a check that raises as one that says how many queries it ran and what was wrong."""

    def checked(seed: int) -> tuple[int, list[str]]:
        try:
            check(seed)
        except AssertionError as wrong:
            return queries, [str(wrong)]
        return queries, []

    return checked


KINDS: dict[str, Callable[[int], tuple[int, list[str]]]] = {
    **{name: (lambda seed, name=name: of_shape(name, seed)) for name in SHAPES},
    "views": of_check(test_tables_as_inputs.check_reader, len(test_tables_as_inputs.VIEWS) + 1),
    "fetch_subqueries": of_check(test_fetch_subqueries.check, test_fetch_subqueries.QUERIES),
    "fetch_sets": of_check(test_fetch_sets.check, test_fetch_subqueries.QUERIES),
}


def sweep(kinds: list[str], first: int, stop: int, until: float) -> dict[str, Count]:
    """Run each seed of each kind in turn, as long as there is time; print what differs; return the counts."""
    counts = {kind: Count() for kind in kinds}
    for seed in range(first, stop):
        for kind, count in counts.items():
            if time.monotonic() >= until:
                return counts
            try:
                queries, wrong = KINDS[kind](seed)
            except Exception:
                queries, wrong = 0, [traceback.format_exc(limit=-4)]
            count.queries += queries
            count.seeds += 1
            count.wrong += bool(wrong)
            for one in wrong:
                print(f"WRONG {kind} {seed}: {one}", flush=True)
        if (seed - first) % 100 == 99:
            print(f"to seed {seed}: {sum(c.queries for c in counts.values())} queries", flush=True)
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=int)
    parser.add_argument("stop", type=int)
    parser.add_argument("kinds", nargs="*", help=f"of {', '.join(KINDS)}; all without")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    asked = parser.parse_args()
    unknown = [kind for kind in asked.kinds if kind not in KINDS]
    if unknown:
        parser.error(f"no kind {', '.join(unknown)}; there are {', '.join(KINDS)}")
    began = time.monotonic()
    counts = sweep(asked.kinds or list(KINDS), asked.first, asked.stop, began + 60 * asked.minutes)
    for kind, count in counts.items():
        print(f"{kind}: {count.queries} queries of seeds {asked.first} to {asked.first + count.seeds - 1}, {count.wrong} seeds wrong")
    queries, wrong = sum(c.queries for c in counts.values()), sum(c.wrong for c in counts.values())
    print(f"{queries} queries in {time.monotonic() - began:.0f} s, {wrong} seeds wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
