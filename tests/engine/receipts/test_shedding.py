"""What shedding does to rows: counted to the row, reproducible, never a row of a class that is not shed, least worth first, bounded."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.data import limits
from millstream.engine.data.graph import ClassId, ClassNode
from millstream.engine.data.work import Step
from millstream.engine.flow.shedding import HISTORY_ROWS_MIN, uniform_of
from millstream.engine.language.statements import ClassDefinition
from millstream.engine.plan.plan import derived_stream, plan_select
from millstream.engine.runtime.network import DEFAULT_CLASS_NODE, Network

from tests.support.engine_run import SECOND, SqlEngine

CREATE = "CREATE STREAM s (ts TIMESTAMP, k BIGINT, v BIGINT) TIMESTAMP BY ts DELAY 1 SECOND"
LOW = ClassNode(ClassId(1), "low", may_shed=True)
LOWER = ClassNode(ClassId(2), "lower", may_shed=True)
EXACT = ("SELECT v FROM s WHERE v % 3 = 0", "SELECT k, window_start, SUM(v) AS t FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k")


def engine_of(**how: Any) -> SqlEngine:
    engine = SqlEngine(CREATE, **how)
    for name in ("low", "lower"):
        engine.catalog.add(ClassDefinition(name, may_shed=True))
    return engine


def rows_for(seed: int, size: int = 220) -> list[tuple[int, int, int]]:
    dice = random.Random(seed)
    return [((i // 3 + dice.randint(-4, 0)) * SECOND // 2, dice.randint(0, 2), i) for i in range(size)]


HOW = st.fixed_dictionaries(
    {"train": st.sampled_from([None, 1, 7]), "shuffle": st.sampled_from([None, 1, 2]), "sharing": st.booleans(), "fuse": st.booleans()}
)


@settings(max_examples=5, deadline=None)
@given(HOW, st.integers(0, 1000))
def test_accounts_hold_to_the_row_and_never_shed_queries_are_exact_under_any_shedding(how: dict[str, Any], seed: int) -> None:
    rows, dice = rows_for(seed), random.Random(seed)
    engine, untouched = engine_of(seed=seed, **how), engine_of()
    for place, text in enumerate(EXACT):
        engine.select(text, f"exact{place}")
        engine.select(text, f"low{place}", class_node=LOW)
        engine.select(text, f"lower{place}", class_node=LOWER)
        untouched.select(text, f"exact{place}")
    late = None
    at = 0
    while at < len(rows):
        for node in (LOW, LOWER):
            if dice.random() < 0.4:
                engine.network.set_drop_ratio("s", node.id, dice.choice((0.0, 0.3, 0.8, 1.0)))
        size = dice.choice((1, 5, 30))
        engine.put("s", rows[at : at + size])
        at += size
        if dice.random() < 0.5:
            engine.work()
        if late is None and at > 100:
            late = at
            engine.select(EXACT[1], "late", class_node=LOW)
        if at > 200 and "low0" in engine.deltas and dice.random() < 0.2:
            engine.drop("low0")  # and begins anew
            engine.select(EXACT[0], "low0", class_node=LOW)
        assert all(a.balances for name in engine.deltas for a in engine.account(name).values())
    untouched.put("s", rows)
    for one in (engine, untouched):
        one.end()
        one.work()
    for place in range(len(EXACT)):
        assert engine.rows(f"exact{place}") == untouched.rows(f"exact{place}")
        assert engine.account(f"exact{place}")["s"].shed == 0
    for name in engine.deltas:
        account = engine.account(name)["s"]
        assert account.balances
        assert account.queued == 0
    assert engine.account("low1")["s"].accepted == len(rows)
    assert engine.account("late")["s"].accepted == len(rows) - (late or 0)
    assert engine.account("lower0")["s"].shed == engine.account("lower1")["s"].shed


def test_the_same_seed_and_ratios_shed_the_same_rows_whatever_the_chunks() -> None:
    def kept(chunk: int, seed: int) -> list[Any]:
        engine = engine_of(seed=seed)
        engine.select("SELECT v FROM s", "q", class_node=LOW)
        engine.network.set_drop_ratio("s", LOW.id, 0.5)
        engine.put("s", rows_for(1, 300), chunk=chunk)
        engine.work()
        return engine.rows("q")

    assert kept(300, 5) == kept(7, 5) == kept(1, 5)
    assert kept(300, 5) != kept(300, 6)


@pytest.mark.parametrize("chunk", [2000, 64, 17])
def test_the_rows_worth_least_fall_first_and_the_same_ones_whatever_the_chunks(chunk: int) -> None:
    engine = engine_of(seed=2)
    engine.select("SELECT v FROM s WITH (class = 'low', shed_by = 'v')", "q", class_node=LOW)
    dice = random.Random(4)
    rows = [(i * SECOND, 0, dice.randint(0, 999)) for i in range(8_000)]
    engine.put("s", rows[:4_000], chunk=chunk)
    engine.network.set_drop_ratio("s", LOW.id, 0.3)
    engine.put("s", rows[4_000:], chunk=chunk)
    engine.work()
    kept = [v for (v,) in engine.rows("q")]
    assert kept[:4_000] == [v for _, _, v in rows[:4_000]]
    lost = 4_000 - len(kept[4_000:])
    assert abs(lost / 4_000 - 0.3) < 0.03
    assert min(kept[4_000:]) > 250
    assert engine.account("q")["s"].shed == lost
    again = engine_of(seed=2)
    again.select("SELECT v FROM s WITH (class = 'low', shed_by = 'v')", "q", class_node=LOW)
    again.put("s", rows[:4_000])
    again.network.set_drop_ratio("s", LOW.id, 0.3)
    again.put("s", rows[4_000:])
    again.work()
    assert again.rows("q") == engine.rows("q")


def test_rows_of_equal_worth_and_without_one_fall_by_chance_in_the_share_asked_for() -> None:
    engine = engine_of()
    engine.select("SELECT k FROM s WITH (class = 'low', shed_by = 'CASE WHEN k = 1 THEN 5 END')", "q", class_node=LOW)
    rows = [(i * SECOND, i % 2, i) for i in range(6_000)]
    engine.put("s", rows[:3_000], chunk=100)
    engine.network.set_drop_ratio("s", LOW.id, 0.25)
    engine.put("s", rows[3_000:], chunk=100)
    engine.work()
    kept = [k for (k,) in engine.rows("q")][3_000:]
    assert kept.count(1) == 1_500  # a quarter falls, and half are worth nothing
    assert abs(kept.count(0) / 1_500 - 0.5) < 0.06
    assert HISTORY_ROWS_MIN <= 1_024


def test_queries_that_rank_rows_otherwise_have_a_log_each_and_the_class_one_ratio() -> None:
    engine = engine_of()
    engine.select("SELECT v FROM s WITH (class = 'low', shed_by = 'v')", "high", class_node=LOW)
    engine.select("SELECT v FROM s WITH (class = 'low', shed_by = '-v')", "low", class_node=LOW)
    rows = [(i * SECOND, 0, i % 100) for i in range(6_000)]
    engine.put("s", rows[:3_000], chunk=100)
    engine.network.set_drop_ratio("s", LOW.id, 0.5)
    engine.put("s", rows[3_000:], chunk=100)
    engine.work()
    high, low = ({v for (v,) in engine.rows(name)[3_000:]} for name in ("high", "low"))
    assert min(high) > 45
    assert max(low) < 55


class TestFullLog:
    """A log of a class that may be shed that fills up sheds; the publisher's own log knows nothing of it."""

    @pytest.fixture(autouse=True)
    def small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "LOG_ROWS_MAX", 2_000)

    def engine(self) -> SqlEngine:
        engine = engine_of()
        engine.network.shed_logs._when_full = True
        return engine

    def test_it_sheds_more_and_more_from_half_full_on_and_never_overflows(self) -> None:
        engine = self.engine()
        engine.select("SELECT v FROM s", "low", class_node=LOW)
        engine.select("SELECT v FROM s", "exact")
        log = engine.network.sources["s"].shed_logs[LOW.id, ""]
        rows = [(i * SECOND, 0, i) for i in range(10_000)]
        held = []
        for at in range(0, 10_000, 50):
            engine.put("s", rows[at : at + 50])
            engine.run_order(*self._steps(engine, "exact"))
            held.append(log.log.rows_held)
        assert max(held) <= 2_000
        assert held[19] == 1_000  # up to half nothing falls
        assert held[30] < 1_550
        assert not engine.network.sources["s"].log.is_full
        assert log.shed == log.shed_full == 10_000 - held[-1]
        engine.work()
        assert len(engine.rows("exact")) == 10_000
        account = engine.account("low")["s"]
        assert (account.balances, account.shed, account.accepted) == (True, log.shed, 10_000)

    def test_it_settles_where_it_keeps_what_its_query_can_take(self) -> None:
        engine = self.engine()
        engine.select("SELECT v FROM s", "low", class_node=LOW)
        log = engine.network.sources["s"].shed_logs[LOW.id, ""]
        rows = [(i * SECOND, 0, i) for i in range(40_000)]
        for at in range(0, 40_000, 100):
            engine.put("s", rows[at : at + 100])
            engine.run_order(*self._steps(engine, "low", 50))
        assert log.fullness() == pytest.approx(0.5, abs=0.05)
        before = log.shed
        for at in range(0, 20_000, 100):
            engine.put("s", [(row[0] + 40_000 * SECOND, 0, 0) for row in rows[at : at + 100]])
            engine.run_order(*self._steps(engine, "low"))
        assert log.shed - before < 100  # the load has fallen: everything is served again
        assert log.fullness() == 0.0

    def test_one_that_fills_by_itself_sheds_nothing_in_a_network_that_says_so(self) -> None:
        engine = engine_of()
        engine.select("SELECT v FROM s", "low", class_node=LOW)
        engine.put("s", [(i * SECOND, 0, i) for i in range(5_000)], chunk=100)
        assert engine.account("low")["s"].shed == 0
        assert Network().shed_logs._when_full is False

    def _steps(self, engine: SqlEngine, name: str, rows: int | None = None) -> list[Any]:
        return [Step(o, rows) for o in engine.deltas[name].query.operators if o in engine.network.operators]


class TestAChainOfDerivedStreams:
    """Rows are shed where a class reads a stream that rows enter, and what waits before readers of a derived stream counts there."""

    @pytest.fixture(autouse=True)
    def small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "LOG_ROWS_MAX", 2_000)

    def derive(self, engine: SqlEngine, name: str, text: str, class_node: ClassNode = DEFAULT_CLASS_NODE) -> None:
        planned = plan_select(text, engine.catalog)
        engine.catalog.add(derived_stream(name, planned))
        engine.deltas[name] = engine.network.create_derived(name, planned.physical, class_node=class_node)
        engine.network.attach(engine.deltas[name].query.id)

    def engine(self) -> SqlEngine:
        """`far` reads two derived streams of the class, one behind the other, and none of it is run by `some`."""
        engine = engine_of()
        engine.network.shed_logs._when_full = True
        self.derive(engine, "odd", "SELECT ts, k, v FROM s WHERE v % 2 = 1", LOW)
        self.derive(engine, "odder", "SELECT ts, k, v FROM odd WHERE v % 4 = 1", LOW)
        engine.select("SELECT v FROM odder", "far")
        engine.select("SELECT v FROM s", "exact")
        return engine

    def some(self, engine: SqlEngine, *names: str) -> None:
        for name in names:
            engine.run_order(*(Step(o, None) for o in engine.deltas[name].query.operators if o in engine.network.operators))

    def test_rows_are_shed_where_the_chain_begins_and_every_account_balances(self) -> None:
        engine = self.engine()
        engine.network.set_drop_ratio("s", LOW.id, 0.5)
        engine.put("s", [(i * SECOND, 0, i) for i in range(1_000)], chunk=100)
        engine.end()
        engine.work()
        shed = engine.network.sources["s"].shed_logs[LOW.id, ""].shed
        first, second, last, exact = (engine.account(name) for name in ("odd", "odder", "far", "exact"))
        assert (first["s"].accepted, first["s"].shed, first["s"].processed) == (1_000, shed, 1_000 - shed)
        assert (second["odd"].shed, last["odder"].shed, exact["s"].shed) == (0, 0, 0)
        assert all(one.balances for account in (first, second, last, exact) for one in account.values())
        assert 0 < len(engine.rows("far")) < 250
        assert engine.rows("far") == [(v,) for v, seen in self.kept(engine, shed) if v % 4 == 1 and seen]
        assert len(engine.rows("exact")) == 1_000

    def kept(self, engine: SqlEngine, shed: int) -> list[tuple[int, bool]]:
        """Return the rows, and whether each was kept: the same hash of arrival numbers decides again."""
        seen = uniform_of(np.arange(1_000, dtype=np.int64), engine.network.ingress.seed) >= 0.5
        assert int((~seen).sum()) == shed
        return list(enumerate(seen.tolist()))

    @pytest.mark.parametrize("lags", ["odder", "far"])
    def test_what_waits_further_down_sheds_where_the_chain_begins_and_stays_bounded(self, lags: str) -> None:
        engine = self.engine()
        log = engine.network.sources["s"].shed_logs[LOW.id, ""]
        runs = ["exact", "odd"] if lags == "odder" else ["exact", "odd", "odder"]
        held = []
        for at in range(0, 20_000, 50):
            engine.put("s", [(i * SECOND, 0, i) for i in range(at, at + 50)])
            self.some(engine, *runs)
            held.append(max(one.rows_held for one in (log.log, *log.behind)))
        assert 1_000 < max(held) <= 2_000
        assert log.shed == log.shed_full > 10_000
        engine.end()
        engine.work()
        assert log.fullness() == 0.0
        assert len(engine.rows("exact")) == 20_000

    def test_who_lags_behind_it_holds_up_no_publisher_and_who_reads_whole_rows_does_in_whatever_class(self) -> None:
        engine = self.engine()
        self.derive(engine, "whole", "SELECT ts, k, v FROM s WHERE v >= 0")
        engine.select("SELECT v FROM whole", "low", class_node=LOW)  # nothing can be shed between the two
        engine.select("SELECT a.v FROM odd a JOIN whole b ON a.v = b.v WITHIN 1 SECOND", "both", class_node=LOW)
        queries = {q.node.name: q for q in engine.network.queries.values()}
        assert {name: q.holds_up for name, q in queries.items()} == {
            **dict.fromkeys(("odd", "odder", "far"), False),
            **dict.fromkeys(("exact", "whole", "low", "both"), True),
        }
        assert {name for name, q in queries.items() if q.sheds} == {"odd", "odder", "far", "both"}

    def test_a_chain_that_is_gone_counts_no_longer(self) -> None:
        engine = self.engine()
        log = engine.network.sources["s"].shed_logs[LOW.id, ""]
        assert len(log.behind) == 2
        for name in ("far", "odder"):
            engine.drop(name)
        assert len(log.behind) == 1
        engine.drop("odd")
        assert log.behind == ()


def test_scaled_counts_make_up_for_a_log_that_fills_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOG_ROWS_MAX", 2_000)
    engine = engine_of(seed=9)
    engine.network.shed_logs._when_full = True
    text = "SELECT COUNT(*) AS n FROM s [RANGE 1000 SECONDS SLIDE 1000 SECONDS] WITH (class = 'low', scale_up = true)"
    delta = engine.select(text, "q", class_node=LOW)
    for at in range(0, 40_000, 100):
        engine.put("s", [(i * SECOND, 0, i) for i in range(at, at + 100)])
        engine.run_order(*(Step(o, 50) for o in delta.query.operators if o in engine.network.operators))
    engine.end()
    engine.work()
    estimates = np.array([row[1] for row in engine.rows("q")])
    errors = np.array([row[2] for row in engine.rows("q")])
    assert len(estimates) == 40
    assert np.mean(np.abs(estimates - 1_000) <= errors) > 0.85
    assert abs(estimates.mean() - 1_000) < 20
