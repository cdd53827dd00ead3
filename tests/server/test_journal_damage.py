"""No damage to a journal loses an acked row in silence: the start is refused, or what is cut off is named with file, byte and rows.

The one exception is a file that ends exactly between two records, behind all that was ever known to be on disk: it cannot be told from a
journal that never went on. `-m damage` runs ten thousand damages (`make damage`), the others a few hundred.
"""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest
from millstream.server.journal.catalogue_copy import CatalogueCopy
from millstream.server.journal.reading import files_of, missing_at_the_ends
from millstream.server.journal.records import DEFINITION, ROWS

from tests.support.journals import DAMAGES, ROOT, Damage, Start, World, make_world, start_over, written_of
from tests.support.memory_disk import MemoryDisk

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
        assert damage.kind in ("border", "cut", "removed")
        assert damage.at in [s.start for s in world.spots], "acked rows are gone in silence"
        return "cut between two records, not noticed"
    (message,) = cuts
    assert re.match(rf"{path}, byte (\d+): ", message)
    named = re.search(r"rows lost: (\d+) at most", message)
    rows = sum(s.written[3] - s.written[2] for s in lost)
    if named is None:
        assert "how many rows they had cannot be read" in message
        return "cut off and named, rows not known"
    whole = damage.kind not in ("border", "cut", "removed")  # of a shorter file only what is left of a record can be counted
    assert not whole or int(named[1]) >= rows
    return "cut off and named"


def judge_salvage(world: World, damage: Damage, disk: MemoryDisk, *, with_catalogue: bool) -> None:
    """Fail unless every record that the damage did not touch is read back, and nothing else, and what is missing is told."""
    ledger = world.ledger
    known = CatalogueCopy(identity=ledger.identity, known=ledger.noted, number_max=9) if with_catalogue else CatalogueCopy(["lost"])
    files = files_of(disk, ROOT, known)
    readings = list(files.readings())
    found = [written_of(r) for reading in readings for r in reading.records]
    touched = [s.written for s in damage.touched]
    kept = iter(found)
    assert all(any(w == f for f in kept) for w in world.acked if w not in touched), "a record that is whole was not read back"
    written = iter(world.acked)
    assert all(any(f == w for w in written) for f in found), "something was read back that nobody wrote"
    end = max((reading.end for reading in readings), default=0)
    holes = [h for r in readings for h in r.holes] + missing_at_the_ends(files, known, readings[0] if readings else None, end)
    rows = [w[3] - w[2] for w in world.acked if w[0] == ROWS]
    lost = sum(rows) - sum(f[3] - f[2] for f in found if f[0] == ROWS)
    path, durable = world.durable
    at_the_end = damage.path == path and damage.kind in ("border", "cut", "removed") and damage.at >= durable
    if lost and with_catalogue and not at_the_end:
        assert holes, "rows are missing, and nobody says so"
        assert any(h.hi is None for h in holes) or sum((h.hi or 0) - h.lo for h in holes) >= lost


def run(count: int, seed: int) -> Counter[tuple[str, str]]:
    outcomes: Counter[tuple[str, str]] = Counter()
    for number in range(count):
        if number % DAMAGES_A_WORLD == 0:
            world = make_world(seed + number)
        chance = random.Random(seed + number)
        disk = world.disk.copy()
        damage = chance.choice(DAMAGES)(chance, world, disk)
        judge_salvage(world, damage, disk, with_catalogue=number % 3 != 0)
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
    assert {kind for kind, _ in outcomes} == {"flip", "cut", "border", "removed", "deleted", "zeros"}
    assert {"refused", "cut off and named"} <= {outcome for _, outcome in outcomes}


@pytest.mark.damage
def test_of_ten_thousand_damages_none_loses_an_acked_row_in_silence() -> None:
    outcomes = run(MANY, 1_000_000)
    for (kind, outcome), count in sorted(outcomes.items()):
        print(f"{kind:10} {outcome:40} {count:6}")
    assert outcomes.total() == MANY
