"""Runs for Carney 2005, chapter 2: copies whose changes follow a gamma and whose readers a Zipf distribution, polled within a budget."""

from __future__ import annotations

import time
from typing import Any, Final

import numpy as np
from millstream.scheduler.refresh.allocation import POLICIES, Column, Copies, perceived_polls
from millstream.scheduler.refresh.freshness import perceived, polls_for
from millstream.scheduler.refresh.partitions import partitioned_polls
from millstream.scheduler.refresh.polling import NS_PER_S, Poller
from millstream.scheduler.spec import PolicySpec

CHANGES: Final = 2.0
"""Mean changes of an element in a period (tables 2.2 and 2.3)."""
POLLS: Final = 0.5
"""Polls of an element in a period, on the average (tables 2.2 and 2.3)."""
PERIOD_S: Final = 100.0


def copies(objects: int, deviation: float, theta: float, alignment: str, seed: int, size_shape: float | None = None) -> Copies:
    """Return copies: the most read first, their changes `aligned`, in `reverse` or `shuffled`; sizes as the experiment has them.

    With `size_shape`, sizes follow a Pareto distribution of that shape and mean 1, and the greatest changes least (fig. 2.11), or, aligned,
    most (fig. 2.10).
    """
    chance = np.random.default_rng(seed)
    access = np.arange(1.0, objects + 1.0) ** -theta
    shape = (CHANGES / deviation) ** 2
    changes = np.sort(chance.gamma(shape, CHANGES / shape, objects))[::-1]
    changes *= CHANGES / changes.mean()
    sizes = np.ones(objects)
    if size_shape is not None:
        sizes = np.sort((1.0 - 1.0 / size_shape) * (1.0 + chance.pareto(size_shape, objects)))[::-1]
        sizes /= sizes.mean()
        if alignment != "aligned":
            sizes = sizes[::-1]
    if alignment == "reverse":
        changes = changes[::-1]
    elif alignment == "shuffled":
        order = chance.permutation(objects)
        if size_shape is None:
            changes = changes[order]
        else:
            access = access[order]
    return Copies(access, np.ascontiguousarray(changes), np.ascontiguousarray(sizes))


def _reached(found: Copies, polls: Column) -> float:
    return perceived(found.access, polls, found.changes)


def ideal(objects: int, deviation: float, theta: float, alignment: str, seed: int) -> dict[str, Any]:
    """Return the perceived freshness that each policy reaches, and the processor time that the exact solution takes."""
    found = copies(objects, deviation, theta, alignment, seed)
    reached = {name: _reached(found, policy(found, POLLS * objects)) for name, policy in POLICIES.items()}
    start = time.process_time()
    perceived_polls(found, POLLS * objects)
    return {**reached, "seconds": time.process_time() - start}


def partitions(
    objects: int,
    deviation: float,
    theta: float,
    alignment: str,
    seed: int,
    key: str,
    count: int,
    iterations: int = 0,
    size_shape: float | None = None,
    fixed_bandwidth: bool = False,
) -> dict[str, Any]:
    """Return the perceived freshness of partitions, that of the exact solution, and the processor time that the partitions take."""
    found = copies(objects, deviation, theta, alignment, seed, size_shape)
    start = time.process_time()
    polls = partitioned_polls(found, POLLS * objects, count, key, fixed_bandwidth=fixed_bandwidth, iterations=iterations)
    seconds = time.process_time() - start
    return {"reached": _reached(found, polls), "exact": _reached(found, perceived_polls(found, POLLS * objects)), "seconds": seconds}


def sizes(objects: int, deviation: float, seed: int, size_shape: float) -> dict[str, Any]:
    """Return what knowing the sizes gives (fig. 2.10): the best polls as if all sizes were 1, and the best for the sizes there are."""
    found = copies(objects, deviation, 0.0, "aligned", seed, size_shape)
    blind = perceived_polls(Copies(found.access, found.changes, np.ones(objects)), POLLS * objects)
    paid = blind * (POLLS * objects / float((blind * found.sizes).sum()))
    aware = perceived_polls(found, POLLS * objects)
    return {"as_if_equal": _reached(found, blind), "blind": _reached(found, paid), "aware": _reached(found, aware)}


def bandwidth(objects: int, deviation: float, theta: float, alignment: str, seed: int, factor: float) -> dict[str, Any]:
    """Return the perceived freshness at a multiple of the budget (6.2.2)."""
    found = copies(objects, deviation, theta, alignment, seed)
    return {"reached": _reached(found, perceived_polls(found, factor * POLLS * objects))}


def least(objects: int, deviation: float, theta: float, alignment: str, seed: int, fresh_min: float) -> dict[str, Any]:
    """Return what it costs that every element is fresh for a share of the time at least (6.2.1)."""
    found = copies(objects, deviation, theta, alignment, seed)
    floors = polls_for(np.full(objects, fresh_min), found.changes)
    polls = perceived_polls(Copies(found.access, found.changes, found.sizes, floors), POLLS * objects)
    return {"reached": _reached(found, polls), "floors": float(floors.sum()) / (POLLS * objects)}


def simulated(
    objects: int, deviation: float, theta: float, alignment: str, seed: int, policy: str, periods: int, learnt: bool = False
) -> dict[str, Any]:
    """Poll copies in virtual time with the server's own poller, and count how often a request meets a fresh copy.

    Elements change and are asked for at random (Poisson), with two requests for each element in a period on the average. The first third
    of the time is not counted.
    """
    found = copies(objects, deviation, theta, alignment, seed)
    chance = np.random.default_rng(seed + 1)
    spec = PolicySpec.parse(policy)
    poller = Poller(spec.name, dict(spec.options), POLLS * objects / PERIOD_S, seed=seed)
    share = found.access / found.access.sum()
    rates = found.changes / PERIOD_S
    for place in range(objects):
        poller.add(str(place), 1.0, 0, changes_a_second=None if learnt else float(rates[place]))
        if not learnt:
            poller.asked(str(place), float(share[place]) * 1e6)  # what is known of access outweighs the requests that come
    events = _events(chance, rates, share, periods * PERIOD_S)
    counted_from = round(periods / 3 * PERIOD_S * NS_PER_S)
    changed = np.zeros(objects, dtype=bool)
    fresh = requests = polls = 0

    def poll(now_ns: int) -> int:
        name = poller.next(now_ns)
        if name is None:
            return 0
        poller.polled(name, now_ns, changed=bool(changed[int(name)]))
        changed[int(name)] = False
        return 1

    for at_ns, place, is_request in events:
        while (wake := poller.wake_ns()) is not None and wake <= at_ns:
            polls += poll(wake)
        if not is_request:
            changed[place] = True
            continue
        poller.asked(str(place))
        if at_ns >= counted_from:
            requests += 1
            fresh += not changed[place]
        polls += poll(at_ns)
    best = _reached(found, perceived_polls(found, POLLS * objects))
    return {"reached": fresh / requests, "expected": best, "spent": polls / (POLLS * objects * periods), "requests": requests}


def _events(chance: np.random.Generator, rates: Column, share: Column, seconds: float) -> list[tuple[int, int, bool]]:
    """Return (time, element, whether it is a request) of all changes and requests, in order."""
    changes, requests = chance.poisson(rates.sum() * seconds), chance.poisson(CHANGES * len(rates) * seconds / PERIOD_S)
    at = chance.random(changes + requests) * seconds
    place = np.concatenate((chance.choice(len(rates), changes, p=rates / rates.sum()), chance.choice(len(rates), requests, p=share)))
    order = np.argsort(at, kind="stable")
    times = (at[order] * NS_PER_S).astype(np.int64).tolist()
    return list(zip(times, place[order].tolist(), (order >= changes).tolist(), strict=True))
