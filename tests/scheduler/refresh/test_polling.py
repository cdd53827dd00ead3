"""Who is polled when: distances and shares of the budget by hand, rates and access learnt, and what makes no sense refused."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from millstream.scheduler.errors import PolicyError
from millstream.scheduler.experiments.scenarios.fresh_runs import simulated
from millstream.scheduler.refresh.polling import NS_PER_S, ChangeRate, Poller
from millstream.scheduler.spec import PolicySpec


def poller(text: str = "perceived", budget: float = 5.0) -> Poller:
    spec = PolicySpec.parse(text)
    return Poller(spec.name, dict(spec.options), budget, seed=1)


def run(polled: Poller, seconds: float, changes: dict[str, float] | None = None) -> list[tuple[float, str]]:
    """Let the poller poll through some seconds; copies change at equal distances, so many times a second."""
    found: list[tuple[float, str]] = []
    now = 0
    last = dict.fromkeys(polled.copies, 0)
    while (wake := polled.wake_ns()) is not None and (now := max(now, wake)) <= seconds * NS_PER_S:
        name = polled.next(now)
        if name is not None:
            changed = changes is not None and int(changes[name] * now / NS_PER_S) > int(changes[name] * last[name] / NS_PER_S)
            last[name] = now
            polled.polled(name, now, changed=changed)
            found.append((now / NS_PER_S, name))
    return found


def known(polled: Poller, access: list[float]) -> Poller:
    """The thesis's five copies, which change 1 to 5 times a second."""
    for place, share in enumerate(access):
        polled.add(str(place), 1.0, 0, changes_a_second=place + 1.0)
        polled.asked(str(place), share)
    return polled


def test_copies_are_polled_as_often_as_table_2_1_says_and_at_equal_distances() -> None:
    found = run(known(poller(), [1.0] * 5), 400.0)
    counts = Counter(name for _, name in found)
    assert [round(counts[str(place)] / 400.0, 2) for place in range(5)] == pytest.approx([1.15, 1.36, 1.35, 1.14, 0.0], abs=0.02)
    gaps = np.diff([at for at, name in found if name == "0"])
    assert gaps.std() < 0.25 * gaps.mean()


def test_lots_give_as_many_polls_at_distances_of_chance() -> None:
    found = run(known(poller("perceived:schedule=lottery"), [1.0, 2.0, 3.0, 4.0, 5.0]), 400.0)
    counts = Counter(name for _, name in found)
    assert [counts[str(place)] / 400.0 for place in range(5)] == pytest.approx([0.33, 0.67, 1.0, 1.33, 1.67], abs=0.15)
    gaps = np.diff([at for at, name in found if name == "0"])
    assert gaps.std() > 0.5 * gaps.mean()


def test_a_poll_costs_the_size_of_its_copy() -> None:
    polled = poller("uniform", budget=8.0)
    polled.add("large", 7.0, 0, changes_a_second=1.0)
    polled.add("small", 1.0, 0, changes_a_second=1.0)
    found = run(polled, 100.0)
    assert Counter(name for _, name in found) == pytest.approx({"large": 100, "small": 100}, abs=3)
    # No more than the budget and one poll that was saved up for, from whichever poll to whichever.
    spent = np.cumsum([{"large": 7.0, "small": 1.0}[name] for _, name in found]) - 8.0 * np.array([at for at, _ in found])
    assert (spent - np.minimum.accumulate(spent)).max() <= 7.0 + 7.0


def test_a_share_of_the_budget_polls_what_is_asked_for() -> None:
    # The fifth changes too often to be worth a planned poll; requests for it alone get the fifth of the budget that follows demand.
    polled = known(poller("perceived:demand=0.2"), [1.0] * 5)
    count = 0
    for step in range(1, 4_001):
        now = step * NS_PER_S // 20
        polled.asked("4", 0.0)
        polled.copies["4"].asked += 1.0  # asked for now, and not remembered as what is read much
        name = polled.next(now)
        if name is not None:
            polled.polled(name, now, changed=True)
            count += name == "4"
    assert count / 200.0 == pytest.approx(1.0, abs=0.1)


def test_rates_of_change_are_learnt_and_no_copy_is_forgotten() -> None:
    polled = poller(budget=2.0)
    for name in ("still", "calm", "quick"):
        polled.add(name, 1.0, 0)
        polled.asked(name)
    counts = Counter(name for _, name in run(polled, 600.0, {"still": 0.0, "calm": 0.1, "quick": 50.0}))
    learnt = {name: copy.changes_a_second for name, copy in polled.copies.items()}
    assert learnt["still"] < 0.05 < 0.08 < learnt["calm"] < 0.3 < learnt["quick"]
    assert polled.copies["calm"].freshness > 0.85
    assert min(counts["quick"], counts["still"]) >= 15
    polled.remove("quick")
    polled.polled("quick", 601 * NS_PER_S, changed=True)  # its poll was under way
    assert set(polled.copies) == {"still", "calm"}


def test_copies_that_never_change_are_polled_on_whoever_reads_them() -> None:
    """Their learnt rate falls towards nothing; a plan had no end then."""
    polled = poller()
    for name, fresh_min in (("a", 0.9), ("b", 0.0)):
        polled.add(name, 1.0, 0, fresh_min=fresh_min)
    found = run(polled, 600.0)
    assert {name for _, name in found[-100:]} == {"a", "b"}
    assert polled.copies["a"].changes_a_second < 1e-12


def test_what_is_read_more_is_polled_more_and_that_fades() -> None:
    polled = poller(budget=1.0)
    for name in ("a", "b"):
        polled.add(name, 1.0, 0, changes_a_second=2.0)
    polled.asked("a", 9.0)
    polled.next(0)
    assert polled.copies["a"].polls_a_second > 3.0 * polled.copies["b"].polls_a_second
    polled.next(3_000 * NS_PER_S)
    polled.asked("b", 1.0)
    polled.next(3_010 * NS_PER_S)
    assert polled.copies["b"].polls_a_second > polled.copies["a"].polls_a_second


def test_a_rate_by_hand() -> None:
    rate = ChangeRate(polls=10.0, changed=4.0, seconds=20.0)
    assert rate.a_second == pytest.approx(-np.log(6.5 / 10.5) / 2.0)
    assert ChangeRate(polls=9.0, changed=0.0, seconds=1.0).a_second == 0.0


def test_the_freshness_that_requests_meet_is_that_of_the_formula() -> None:
    found = simulated(60, 1.0, 1.0, "shuffled", 1, "perceived", 40)
    assert found["reached"] == pytest.approx(found["expected"], abs=0.04)
    assert found["spent"] == pytest.approx(1.0, abs=0.03)
    assert simulated(60, 1.0, 1.0, "shuffled", 1, "uniform", 40)["reached"] < found["reached"] - 0.1


@pytest.mark.parametrize(
    ("text", "budget", "message"),
    [
        ("fresher", 1.0, "unknown refresh policy 'fresher'"),
        ("perceived:when=now", 1.0, "no option 'when'"),
        ("perceived:schedule=never", 1.0, "unknown schedule 'never'"),
        ("perceived:demand=1", 1.0, "demand=1 is not a part"),
        ("perceived:demand=some", 1.0, "demand=some is not a number"),
        ("perceived", 0.0, "refresh budget"),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, budget: float, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        poller(text, budget)


def test_nobody_is_polled_where_there_is_no_copy() -> None:
    assert poller().wake_ns() is None
    assert poller().next(0) is None
