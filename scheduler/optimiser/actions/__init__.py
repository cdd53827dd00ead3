"""What the optimiser can do, one action a file: each proposes itself where it may help, with the reason, and knows nothing of the others.

`ACTIONS` is the order in which they are asked: first what harms nobody, then what shifts time between queries, shedding last.
"""

from __future__ import annotations

from collections.abc import Callable

from millstream.scheduler.optimiser.actions.alternative_plan import alternative_plan
from millstream.scheduler.optimiser.actions.change_policy import change_policy
from millstream.scheduler.optimiser.actions.change_weights import change_weights
from millstream.scheduler.optimiser.actions.quantum import change_quantum
from millstream.scheduler.optimiser.actions.reorder_selections import reorder_selections
from millstream.scheduler.optimiser.actions.shed import shed
from millstream.scheduler.optimiser.actions.train_size import change_train_size
from millstream.scheduler.optimiser.contract import Facts, Proposal, Subject

Propose = Callable[[Facts, Subject], list[Proposal]]

ACTIONS: tuple[Propose, ...] = (
    reorder_selections,
    alternative_plan,
    change_policy,
    change_weights,
    change_quantum,
    change_train_size,
    shed,
)
