"""No damage to a journal loses an acked row in silence: the start is refused, or what is cut off is named with file, byte and rows.

The one exception is a file that ends exactly between two records, behind all that was ever known to be on disk: it cannot be told from a
journal that never went on. `-m damage` runs ten thousand damages (`make damage`), the others a few hundred.
"""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest
from millstream.server.journal.records import DEFINITION

from tests.support.journals import DAMAGES, Damage, Start, World, make_world, start_over

A_FEW, MANY = 400, 10_000
DAMAGES_A_WORLD = 20


def judge(world: World, damage: Damage, start: Start) -> str:
    """Return what became of a damage; fails when acked rows are gone in silence, or rows come back that were never written."""
    if start.refused:
        assert str(damage.path.parent) in start.refused
        return "refused"
    found = [w for w in start.found if w[0] != DEFINITION]
    acked = [s for s in world.spots if s.written[0] != DEFINITION]
    assert found == [s.written for s in acked[: len(found)]], "not the rows that were written, in their order"
    lost = acked[len(found) :]
    if not lost:
        return "named, nothing lost" if start.said else "nothing lost"
    assert all(spot.path == world.paths[-1] for spot in lost)
    path, durable = world.durable
    assert all(spot.path == path and spot.start >= durable for spot in lost), "rows are gone that the disk was known to have"
    cuts = [message for kind, message in start.said if kind == "journal_cut"]
    if not cuts:
        assert damage.kind in ("border", "cut")
        assert damage.at in [s.start for s in world.spots], "acked rows are gone in silence"
        return "cut between two records, not noticed"
    (message,) = cuts
    assert re.match(rf"{path}, byte (\d+): ", message)
    named = re.search(r"rows lost: (\d+) at most", message)
    rows = sum(s.written[3] - s.written[2] for s in lost)
    if named is None:
        assert "how many rows they had cannot be read" in message
        return "cut off and named, rows not known"
    whole = damage.kind not in ("border", "cut")  # of a shorter file only what is left of a record can be counted
    assert not whole or int(named[1]) >= rows
    return "cut off and named"


def run(count: int, seed: int) -> Counter[tuple[str, str]]:
    outcomes: Counter[tuple[str, str]] = Counter()
    for number in range(count):
        if number % DAMAGES_A_WORLD == 0:
            world = make_world(seed + number)
        chance = random.Random(seed + number)
        disk = world.disk.copy()
        damage = chance.choice(DAMAGES)(chance, world, disk)
        outcomes[damage.kind, judge(world, damage, start_over(disk, world.ledger))] += 1
    return outcomes


def test_a_journal_that_nobody_damaged_starts_with_all_that_was_acked_and_says_nothing() -> None:
    for seed in range(40):
        world = make_world(seed)
        start = start_over(world.disk, world.ledger)
        assert (start.refused, start.said) == ("", [])
        assert start.found == world.acked


def test_no_damage_loses_an_acked_row_in_silence() -> None:
    outcomes = run(A_FEW, 0)
    assert {kind for kind, _ in outcomes} == {"flip", "cut", "border", "deleted", "zeros"}
    assert {"refused", "cut off and named"} <= {outcome for _, outcome in outcomes}


@pytest.mark.damage
def test_of_ten_thousand_damages_none_loses_an_acked_row_in_silence() -> None:
    outcomes = run(MANY, 1_000_000)
    for (kind, outcome), count in sorted(outcomes.items()):
        print(f"{kind:10} {outcome:40} {count:6}")
    assert outcomes.total() == MANY
