"""The catalogue on a disk that failed a sync and then loses its power, at each of the operations of the next start."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from millstream.server.errors import StorageError, StoreError
from millstream.server.journal.store import Store, StoredQuery

from tests.world.disk import Mood, Platter, SimDisk
from tests.world.hub import Hub, Killed, Process
from tests.world.machines import DIRECTORY

OPERATIONS_MAX = 200


class FailingCatalogue:
    """A catalogue, its disk, and what was acked."""

    def __init__(self, seed: int) -> None:
        self.hub = Hub(seed)
        self.platter = Platter(self.hub)
        self.draw = random.Random(seed)
        self.acked: list[str] = []
        self.made = 0

    def begin(self) -> Store:
        self.process = Process(self.hub, "server")
        self.store = Store(Path(DIRECTORY), SimDisk(self.platter, self.process))
        return self.store

    def create(self, *, fails_at: str = "") -> None:
        """Keep a definition and a query, as a statement does; a sync of the number or of the rest may fail."""
        self.made += 1
        name = f"q{self.made}"
        self.platter.mood = Mood(sync="fails" if fails_at == "number" else "ok")
        number = self.store.reserve_number()
        self.platter.mood = Mood(sync="fails" if fails_at == "rest" else "ok")
        with self.store.change():
            self.store.add_definition("stream", name, "CREATE STREAM " + "x" * self.draw.choice((10, 3000)), number)
            self.store.add_query(StoredQuery(name, text="SELECT 1"))
        self.acked.append(name)

    def kill(self) -> None:
        self.process.end()
        self.hub.step()

    def lose_power(self) -> None:
        self.kill()
        self.platter.lose_power()


def lived(seed: int, operations: int) -> tuple[list[str], list[str], bool]:
    """Return what was acked, what is there after the power failed at that operation of the second life, and whether it did."""
    world = FailingCatalogue(seed)
    for _ in range(2):  # the second begins with an empty log
        world.begin()
        for _ in range(world.draw.randint(0, 3)):
            world.create()
        world.store.close()
    world.begin()
    for _ in range(world.draw.randint(0, 2)):
        world.create()
    for _ in range(world.draw.randint(1, 2)):
        with pytest.raises(StorageError):
            world.create(fails_at=world.draw.choice(("number", "rest", "rest")))
    world.platter.mood = Mood()
    for _ in range(world.draw.choice((0, 0, 1))):
        world.create()
    world.kill()
    world.platter.crash_at = world.platter.operations + operations
    has_died = False
    try:
        world.begin()
        for _ in range(3):
            world.create()
    except (Killed, StoreError):
        has_died = not world.process.alive
        assert has_died
    world.platter.crash_at = None
    world.lose_power()
    store = world.begin()
    held = [query.name for query in store.queries()]
    assert held == [one.name for one in store.definitions()]
    return world.acked, held, has_died


@pytest.mark.parametrize("seed", [2, 6, 15])
def test_what_was_acked_survives_a_failure_of_the_machine_after_a_failed_sync(seed: int) -> None:
    for operations in range(1, OPERATIONS_MAX):
        acked, held, has_died = lived(seed, operations)
        assert set(acked) <= set(held), operations
        if not has_died:
            return
    raise AssertionError("the second life has no end")
