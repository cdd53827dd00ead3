"""Every path from a leaf to a root is a unit (Pajjuri 2004, 4.1): the operators a tuple passes on its way to an output."""

from __future__ import annotations

from millstream.scheduler.estimates import Estimates
from millstream.scheduler.ledger import Ledger
from millstream.scheduler.paths import leaf_to_root_paths
from millstream.scheduler.unit_set import UnitSet


class PathUnits(UnitSet):
    """One unit a path; the entry is its leaf."""

    name = "paths"

    def __init__(self, ledger: Ledger, estimates: Estimates) -> None:
        super().__init__(ledger, leaf_to_root_paths(ledger.network.topology))
