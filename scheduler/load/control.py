"""A cycle of load management for the core: let the manager see, put what it says in force (Pham 2013).

Drops become a ratio at each log that the class reads alone; shares are for a policy that has quotas. While nothing comes and nothing is
dropped, no cycle is run, so that a core that has nothing to do is not called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from millstream.engine.data.graph import ClassId, LogId
from millstream.engine.data.work import ChainRuns, Emission
from millstream.scheduler.errors import PolicyError
from millstream.scheduler.estimates import Estimates
from millstream.scheduler.instructions import Instruction, SetClassShare, SetDropRatio
from millstream.scheduler.ledger import Ledger
from millstream.scheduler.load.contract import CYCLE_NS, ClassCycle, ClassLoad, LoadManager, Said
from millstream.scheduler.load.dilos import Dilos
from millstream.scheduler.load.monitors import Came, Monitors
from millstream.scheduler.load.shedders import ClassShedders, CommonShedder, NoShedder
from millstream.scheduler.network import shares_in_use

MANAGERS: Mapping[str, Callable[[], LoadManager]] = {"none": NoShedder, "common": CommonShedder, "class": ClassShedders, "dilos": Dilos}
"""Load managers by name, as the setting `load` has them."""


def load_manager(name: str) -> LoadManager:
    """Make a load manager; raises `PolicyError` naming those there are."""
    if name not in MANAGERS:
        raise PolicyError(f"unknown load manager '{name}'", hint="known are " + ", ".join(MANAGERS))
    return MANAGERS[name]()


class LoadControl:
    """Runs the manager of that name. `next_ns` is when the next cycle ends, None while nothing happens."""

    def __init__(self, name: str, ledger: Ledger, estimates: Estimates) -> None:
        self.manager = load_manager(name)
        self.monitors = Monitors(ledger, estimates)
        self._estimates = estimates
        self.network = ledger.network
        self.next_ns: int | None = None
        self.standings: dict[ClassId, ClassLoad] = {}
        """How each class stood at the end of the last cycle."""
        self.totals: dict[ClassId, Came] = {}
        """Rows that came for each class since the start, and how many of them were shed."""
        self._shares: dict[ClassId, float] = {}
        self._version = -1
        self._ratios: dict[LogId, float] = {}
        self._told: dict[ClassId, float] = {}
        self._happened = False

    @property
    def shares(self) -> Mapping[ClassId, float]:
        """The shares in force."""
        return self._told

    @property
    def present(self) -> dict[ClassId, ClassLoad]:
        """How classes stand: as at the end of the last cycle, or without load where nothing has happened since."""
        if self.next_ns is not None:
            return dict(self.standings)
        return {one: replace(found, load=0.0, backlog_s=0.0, response_ns=None) for one, found in self.standings.items()}

    # ---- what happens

    def arrived(self, log: int | None, shed: int, now_ns: int) -> None:
        """Hear of rows, before the ledger counts them; `log` None where nobody reads them."""
        self._happened = True
        if self.next_ns is None:
            self.monitors.begin(now_ns)
            self.next_ns = now_ns + CYCLE_NS
        if shed and log is not None:
            self.monitors.shed(log, shed)

    def emitted(self, emission: Emission) -> None:
        """Hear of results."""
        self._happened = True
        self.monitors.emitted(emission)

    def passed(self, runs: ChainRuns) -> None:
        """Hear of the results of runs of chains."""
        self._happened = True
        self.monitors.passed(runs)

    # ---- a cycle

    def cycle(self, now_ns: int, *, busy: bool) -> list[Instruction] | None:
        """End the cycle if its time has come, and return what is to be changed; None when it has not."""
        if self.next_ns is None or now_ns < self.next_ns:
            return None
        self.next_ns = max(self.next_ns + CYCLE_NS, now_ns + 1)
        self._follow_network()
        seen = self.monitors.look(now_ns)
        self._estimates.hurry = True
        said = self.manager.decide(seen)
        self._note(seen, said)
        if not self._happened and not busy and not any(said.drop.values()):
            self.next_ns = None
        self._happened = False
        return [*self._set_ratios(said.drop), *self._tell_shares(said.share)]

    def _follow_network(self) -> None:
        if self._version == self.network.version:
            return
        self._version = self.network.version
        shares = shares_in_use(self.network)
        if shares != self._shares:
            self._shares = shares
            self.manager.begin(shares)

    def _note(self, seen: list[ClassCycle], said: Said) -> None:
        self.standings = {
            one.class_id: ClassLoad(
                one.class_id,
                one.load,
                said.headroom.get(one.class_id, 0.0),
                said.share.get(one.class_id, 0.0),
                said.drop.get(one.class_id, 0.0),
                one.backlog_s,
                one.response_ns,
                one.target_ns,
            )
            for one in seen
        }
        for class_id, came in self.monitors.came.items():
            total = self.totals.setdefault(class_id, Came())
            total.rows += came.rows
            total.shed += came.shed

    def _set_ratios(self, drops: Mapping[ClassId, float]) -> list[Instruction]:
        found: list[Instruction] = []
        ratios: dict[LogId, float] = {}
        for one, logs in self.monitors.shape.sheddable.items():
            for log in logs:
                identity = self.network.logs.identity(log)
                ratio = ratios[identity] = drops.get(one, 0.0)
                if ratio != self._ratios.get(identity, 0.0):
                    found.append(SetDropRatio(identity, ratio))
        self._ratios = ratios
        return found

    def _tell_shares(self, shares: Mapping[ClassId, float]) -> list[Instruction]:
        found: list[Instruction] = [SetClassShare(one, share) for one, share in shares.items() if self._told.get(one) != share]
        self._told = dict(shares)
        return found
