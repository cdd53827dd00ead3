"""Which copy is polled next, and when: the same object for the server's tables and for virtual time (Carney 2005, chapter 2 and 6.2).

It is told what is asked for (`asked`) and what each poll found (`polled`), and learns how often a copy is read and how often it changes
(6.2.3). From that a policy of `allocation.py` gives each copy its polls a second, anew now and then. Who polls when is a question of the
schedule (6.3.4; Waldspurger and Weihl 1995):

    stride    the copy that is due first; a copy is due at equal distances, as the formula of freshness assumes
    lottery   one drawn by lot, with as many tickets as it gets polls

A share of the budget may follow demand instead (`demand`, 6.2.4): it polls the copy for which most requests may have met an old answer
since its last poll. While rates of change are learnt, a small part of the budget looks at every copy, so that none is forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field

import numpy as np
from millstream.engine.data.records import dataclass
from millstream.scheduler.errors import PolicyError
from millstream.scheduler.refresh.allocation import POLICIES, Copies
from millstream.scheduler.refresh.freshness import freshness, polls_for

NS_PER_S = 1_000_000_000
SCHEDULES = ("stride", "lottery")
EXPLORED = 0.05
"""The part of the budget that is spent evenly while rates are learnt."""
_POLLS_REMEMBERED = 50.0
"""How many polls the estimate of a rate of change reaches back."""
_REMEMBERED_S = 600.0
"""How long ago a request counts a third of what it counts now."""
_REPLAN_NS = NS_PER_S
_OPTIONS: Mapping[str, str | float] = {"schedule": "stride", "demand": 0.0}


@dataclass(slots=True)
class ChangeRate:
    """How often an element changes, learnt from polls that tell only whether it did (Cho and Garcia-Molina 2003, eq. 12).

    With n polls at a mean distance t, x of which found a change, λ = -ln((n - x + 1/2) / (n + 1/2)) / t; older polls count less.
    """

    polls: float = 1.0
    changed: float = 0.5
    seconds: float = 1.0

    def polled(self, after_s: float, *, changed: bool) -> None:
        """Note a poll so long after the last one."""
        kept = 1.0 - 1.0 / _POLLS_REMEMBERED
        self.polls = self.polls * kept + 1.0
        self.changed = self.changed * kept + changed
        self.seconds = self.seconds * kept + after_s

    @property
    def a_second(self) -> float:
        """The estimate; 0 while no poll found a change."""
        still = (self.polls - self.changed + 0.5) / (self.polls + 0.5)
        return max(0.0, -math.log(min(1.0, still)) * self.polls / max(self.seconds, 1e-9))


@dataclass(slots=True)
class Copy:
    """One polled copy: its size in units of the budget, and what was seen of it. `polled_ns` is its last poll."""

    name: str
    size: float
    polled_ns: int
    fresh_min: float = 0.0
    known_rate: float | None = None
    learnt: ChangeRate = field(default_factory=ChangeRate)
    access: float = 0.0
    asked: float = 0.0
    """Requests since the last poll."""
    polls: int = 0
    changes: int = 0
    polls_a_second: float = 0.0
    due_ns: float = 0.0

    @property
    def changes_a_second(self) -> float:
        """The rate of change λ, known or learnt."""
        return self.learnt.a_second if self.known_rate is None else self.known_rate

    @property
    def freshness(self) -> float:
        """The share of the time for which it is expected to be fresh."""
        return float(freshness(np.array([self.polls_a_second]), np.array([self.changes_a_second]))[0])

    def may_be_old(self, now_ns: int) -> float:
        """Return the probability that it has changed since its last poll."""
        return -math.expm1(-self.changes_a_second * (now_ns - self.polled_ns) / NS_PER_S)


class Poller:
    """Says which copy to poll. `budget` is in units of size a second. Raises `PolicyError` for a policy or option that is not there."""

    def __init__(self, name: str, options: Mapping[str, str | float], budget: float, *, seed: int = 0) -> None:
        policy = POLICIES.get(name)
        if policy is None:
            raise PolicyError(f"unknown refresh policy '{name}'", hint="known are " + ", ".join(POLICIES))
        unknown = [option for option in options if option not in _OPTIONS]
        if unknown:
            raise PolicyError(f"refresh policies have no option '{unknown[0]}'", hint="known are " + ", ".join(_OPTIONS))
        given = {**_OPTIONS, **options}
        self.schedule = str(given["schedule"])
        try:
            self.demand = float(given["demand"])
        except ValueError:
            raise PolicyError(f"demand={given['demand']} is not a number") from None
        if self.schedule not in SCHEDULES:
            raise PolicyError(f"unknown schedule '{self.schedule}' of polls", hint="known are " + ", ".join(SCHEDULES))
        if not 0.0 <= self.demand < 1.0:
            raise PolicyError(f"demand={self.demand:g} is not a part of the budget, from 0 to less than 1")
        if not 0.0 < budget < math.inf:
            raise PolicyError(f"a refresh budget of {budget:g} is not a positive number")
        self.budget = budget
        self.copies: dict[str, Copy] = {}
        self._policy = policy
        self._chance = np.random.default_rng(seed)
        self._planned_ns: int | None = None  # None: what was planned does not fit the copies any more
        self._aged_ns: int | None = None
        self._free_ns = 0.0
        self._spent = {True: 0.0, False: 0.0}  # by whether demand chose

    def add(self, name: str, size: float, now_ns: int, *, fresh_min: float = 0.0, changes_a_second: float | None = None) -> None:
        """Take up a copy that is fresh now. Without a known rate of change it is learnt."""
        learnt = ChangeRate(seconds=size * (len(self.copies) + 1) / self.budget)  # as if polled once, evenly, by half a change
        self.copies[name] = Copy(name, size, now_ns, fresh_min, changes_a_second, learnt, due_ns=now_ns)
        self._planned_ns = None

    def remove(self, name: str) -> None:
        """Forget a copy, if it is there."""
        if self.copies.pop(name, None) is not None:
            self._planned_ns = None

    def asked(self, name: str, requests: float = 1.0) -> None:
        """Note that a copy was read so often."""
        copy = self.copies[name]
        copy.access += requests
        copy.asked += requests

    def polled(self, name: str, now_ns: int, *, changed: bool, size: float | None = None) -> None:
        """Note what a poll found; `size` where that is new. Nothing for a copy that was forgotten meanwhile."""
        copy = self.copies.get(name)
        if copy is None:
            return
        copy.learnt.polled((now_ns - copy.polled_ns) / NS_PER_S, changed=changed)
        copy.polls += 1
        copy.changes += changed
        copy.polled_ns, copy.asked = now_ns, 0.0
        if size is not None:
            copy.size = size

    def next(self, now_ns: int) -> str | None:
        """Return the copy to be polled now, and count it as polled against the budget; None when it is not time yet."""
        if not self.copies or now_ns < self._free_ns:
            return None
        if self._planned_ns is None or now_ns - self._planned_ns >= _REPLAN_NS:
            self._plan(now_ns)
        wanted = self._in_demand(now_ns)
        copy = wanted or (self._due(now_ns) if self.schedule == "stride" else self._drawn())
        if copy is None:
            return None
        if copy.polls_a_second > 0.0:
            apart_ns = NS_PER_S / copy.polls_a_second
            # From when it was due, so that a poll that comes late does not put off all later ones; but none is made up for.
            copy.due_ns = (now_ns if wanted else max(copy.due_ns, now_ns - apart_ns)) + apart_ns
        self._spent[wanted is not None] += copy.size
        self._free_ns = max(self._free_ns, now_ns - NS_PER_S * copy.size / self.budget) + NS_PER_S * copy.size / self.budget
        return copy.name

    def wake_ns(self) -> int | None:
        """Return when `next` is worth asking again, or earlier after a request where demand has a share; None while there is no copy."""
        if not self.copies:
            return None
        due = self._free_ns
        if self._planned_ns is not None and (self.schedule == "stride" or self._unplanned()):
            due = min(
                self._planned_ns + _REPLAN_NS,
                min((copy.due_ns for copy in self.copies.values() if copy.polls_a_second > 0.0), default=math.inf),
            )
        return math.ceil(max(due, self._free_ns))

    def _unplanned(self) -> bool:
        return not any(copy.polls_a_second for copy in self.copies.values())

    def _plan(self, now_ns: int) -> None:
        every = list(self.copies.values())
        faded = 1.0 if self._aged_ns is None else math.exp(-(now_ns - self._aged_ns) / NS_PER_S / _REMEMBERED_S)
        for one in every:
            one.access *= faded
        sizes = np.array([one.size for one in every])
        changes = np.array([one.changes_a_second for one in every])
        least = polls_for(np.array([one.fresh_min for one in every]), changes)
        static = self.budget * (1.0 - self.demand)
        learning = np.array([one.known_rate is None for one in every])
        least = np.maximum(least, np.where(learning, EXPLORED * static / sizes.sum(), 0.0))
        access = np.array([one.access for one in every])
        polls = self._policy(Copies(access if access.any() else np.ones(len(every)), changes, sizes, least), static)
        for one, a_second in zip(every, polls.tolist(), strict=True):
            if a_second > 0.0 and a_second != one.polls_a_second:
                # Due as far on its way as it was: 0.7 of the old distance waited for is 0.7 of the new one.
                left = (one.due_ns - now_ns) * one.polls_a_second if one.polls_a_second else self._chance.random() * NS_PER_S
                one.due_ns = now_ns + left / a_second
            one.polls_a_second = a_second
        self._planned_ns = self._aged_ns = now_ns

    def _due(self, now_ns: int) -> Copy | None:
        polled = [copy for copy in self.copies.values() if copy.polls_a_second > 0.0]
        first = min(polled, key=lambda copy: copy.due_ns, default=None)
        return first if first is not None and first.due_ns <= now_ns else None

    def _drawn(self) -> Copy | None:
        every = list(self.copies.values())
        tickets = np.array([copy.polls_a_second for copy in every])
        return every[int(self._chance.choice(len(every), p=tickets / tickets.sum()))] if tickets.any() else None

    def _in_demand(self, now_ns: int) -> Copy | None:
        """Return the copy that demand polls now, if it is the turn of demand's share and a request may have met an old answer."""
        if not self.demand or self._spent[True] * (1.0 - self.demand) > self._spent[False] * self.demand:
            return None
        found = max(self.copies.values(), key=lambda copy: copy.asked * copy.may_be_old(now_ns))
        return found if found.asked * found.may_be_old(now_ns) > 0.0 else None
