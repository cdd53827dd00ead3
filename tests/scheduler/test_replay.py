"""A core is a function of events and times: what a live run was told, told again offline, gives the same decisions."""

from __future__ import annotations

import io
import json

from hypothesis import given, settings
from hypothesis import strategies as st
from millstream.engine.data.graph import QueryId
from millstream.scheduler import catalog
from millstream.scheduler.core import SchedulerCore
from millstream.scheduler.events import QueryPaused, QueryResumed
from millstream.scheduler.instructions import Dispatch
from millstream.scheduler.ledger import validate
from millstream.scheduler.spec import PolicySpec
from millstream.scheduler.story import Story, chrome_trace

from tests.scheduler.test_live import Rig

POLICIES = sorted(name for name in catalog.CATALOG if name != "user")
policies = st.sampled_from(POLICIES)
deeds = st.one_of(
    st.tuples(st.just("rows"), st.integers(0, 1), st.integers(1, 40)),
    st.tuples(st.just("policy"), policies, st.just(0)),
    st.tuples(st.just("query"), st.integers(0, 1), st.integers(1, 4)),
    st.tuples(st.just("pause"), st.integers(1, 2), st.booleans()),
)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(policies, st.integers(1, 3), st.lists(deeds, min_size=5, max_size=25))
def test_the_events_of_any_live_run_replayed_offline_give_the_same_instructions(policy: str, workers: int, done: list[tuple]) -> None:  # type: ignore[type-arg]
    rig = Rig(policy, workers=workers)
    sources = [rig.builder.source(name) for name in "st"]
    for number, source in enumerate(sources):
        rig.chain(f"first{number}", source)
    for number, (deed, what, how) in enumerate(done):
        if deed == "rows":
            rig.executor.arrive(rig.live, rig.builder.log(sources[what]), how, at_ns=number)
        elif deed == "policy":
            rig.live.set_policy(PolicySpec(what))
        elif deed == "query":
            rig.chain(f"q{number}", sources[what], how)
        else:
            rig.live.post(QueryPaused(QueryId(what)) if how else QueryResumed(QueryId(what)))
    rig.live.stop(drain=True)
    assert rig.live.story is not None
    text = io.StringIO()
    rig.live.story.save(text)
    story = Story.load(text.getvalue().splitlines())
    again = SchedulerCore(PolicySpec(policy), rig.live.settings)
    for entry in story:
        assert tuple(again.handle(entry.events, entry.now_ns)) == entry.instructions
    assert again.story is not None
    assert [entry.reasons for entry in again.story] == [entry.reasons for entry in rig.live.story]
    orders = [one.order.id for entry in story for one in entry.instructions if isinstance(one, Dispatch)]
    assert [reason.order for entry in story for reason in entry.reasons] == orders, "each order has its reason"
    validate(again.ledger)
    live, replayed = rig.live.measures(), again.measures
    assert live is not None
    assert replayed is not None
    assert live.report(10**18).output == replayed.report(10**18).output
    assert json.dumps(chrome_trace(story))
