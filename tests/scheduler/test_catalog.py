"""The catalogue: every policy of the papers is there, builds, and has a worked example; what does not fit together is refused at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from millstream.scheduler.catalog import CATALOG, build
from millstream.scheduler.errors import PolicyError
from millstream.scheduler.simulation.networks import Box, NetworkBuilder
from millstream.scheduler.simulation.world import World
from millstream.scheduler.spec import PolicySpec
from millstream.scheduler.trains import TrainShape

TRAIN = TrainShape(count=1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("best", "unknown policy 'best'"),
        ("hnrr", "unknown policy 'hnrr'; did you mean hnr?"),
        ("auto", "policy 'auto' is for the start of a server: fcfs, and cqc with a load manager"),
        ("lsf:selector=heap", "policy 'lsf' does not go with selector 'heap'"),
        ("hr:selector=calendar", "policy 'hr' does not go with selector 'calendar'"),
        ("hr:level=tuple", "level=tuple is neither 'query' nor 'operator'"),
        ("hr:beta=1", "policy 'hr' has no option 'beta'"),
        ("fas:beta=2", "beta=2.0 is not between 0 and 1"),
        ("simplified-segment:gamma=1", "gamma=1.0 is not between 0 and 1"),
        ("hr:sharing=all", "sharing=all is none of sum, max, pdt"),
        ("hr:sharing=pdt,level=operator", "sharing=pdt holds at query level only"),
        ("hr:units=paths,level=operator", "units and level both say how the network is cut"),
        ("bsd-naive:units=paths,sharing=max", "units and sharing both say how the network is cut"),
        ("hr:train=0", "train '0' is neither a count"),
        ("hr:quantum=0", "quantum=0 is not a positive number of ms"),
        ("hr:quantum=all", "quantum=all is not a positive number of ms"),
        ("hr:quantum=5,train=10", "train and quantum both say how much is run at a time"),
        ("hr:schedule=0", "schedule=0 is not a whole number of at least 1"),
        ("superbox:traversal=random", "unknown traversal 'random'"),
        ("round-robin:traversal=min-latency", "policy 'round-robin' runs single operators, so a traversal changes nothing"),
        ("hr:level=operator,traversal=min-latency", "policy 'hr' runs single operators"),
        ("hr:units=boxes", "unknown units 'boxes'"),
        ("rr:inner=hnr", "inner=hnr is neither 'rb' nor 'ml'"),
        ("user", "policy 'user' needs a file"),
        ("bsd-log:clusters=0", "clusters=0 is not a whole number"),
        ("bucketing:gradients=0", "gradients=0 is not a whole number"),
        ("hr:adapt=sometimes", "adapt=sometimes is neither true nor false"),
        ("hr:adapt=2", "adapt=2 is neither true nor false"),
        ("hr:level=query,level=operator", "policy option level is given twice"),
        ("round-robin:order=backwards", "order=backwards is neither 'bottom-up' nor 'random'"),
        ("round-robin:seed=3", "seed draws a random order, and the order is bottom-up"),
        ("weighted-round-robin:leaf=0", "leaf=0.0 is not a positive number"),
        ("weighted-round-robin:join=nan", "join=nan is not a positive number"),
        ("hr:level", "policy option 'level' is not of the form key=value"),
        ("user:mine.py", "policy option 'mine.py' is not of the form key=value; a file of your own is user:file=mine.py"),
    ],
)
def test_what_does_not_fit_is_refused(text: str, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        build(PolicySpec.parse(text), default_train=TRAIN)


PAPERS = (
    "round-robin", "weighted-round-robin", "path-capacity", "segment", "simplified-segment", "fcfs", "srpt", "rr", "rb", "ml",
    "hr", "hnr", "lsf", "brt", "bsd-naive", "bsd-uniform", "bsd-log", "chain", "fas", "edf", "edf-hr", "fixed-priority",
    "fixed-priority-push-through", "slope-slack", "slope-slack-push-through", "bucketing", "bucketing-push-through", "superbox", "cqc",
)  # fmt: skip


def test_every_policy_of_the_papers_is_there() -> None:
    assert set(CATALOG) == {*PAPERS, "user"}


@pytest.mark.parametrize("name", PAPERS)
def test_every_row_says_what_it_is_and_builds(name: str) -> None:
    row = CATALOG[name]
    assert row.summary
    assert row.source
    assert build(PolicySpec(name), default_train=TRAIN).spec.name == name


@pytest.mark.parametrize(
    "policy", ["fcfs", "srpt", "rr", "hr", "hnr", "lsf", "brt", "bsd-naive", "bsd-uniform", "bsd-log", "fas", "edf", "edf-hr"]
)
def test_a_policy_has_query_and_operator_level(policy: str) -> None:
    for level, cut in (("query", "operators-to-end"), ("operator", "operators")):
        assert build(PolicySpec.parse(f"{policy}:level={level}"), default_train=TRAIN).cutter.name == cut  # type: ignore[attr-defined]


@pytest.mark.parametrize("sharing", ["max", "sum", "pdt"])
@pytest.mark.parametrize("policy", ["hr", "hnr", "bsd-naive", "bsd-uniform", "bsd-log"])
def test_shared_operators_have_three_strategies(policy: str, sharing: str) -> None:
    assert build(PolicySpec.parse(f"{policy}:sharing={sharing}"), default_train=TRAIN).selector is not None


def calls(policy: str) -> list[int]:
    builder = NetworkBuilder()
    source = builder.source("s")
    world = World(policy, [builder.query("q", Box(1, 1.0, Box(1, 1.0, source)))], builder=builder)
    world.arrive(source, 0, rows=8)
    world.run()
    return [rows for _, rows in world.order if rows]


def test_tuple_box_and_application_at_a_time() -> None:
    assert calls("round-robin:train=1") == [1] * 16
    assert calls("round-robin:train=all") == [8, 8]
    assert calls("superbox:train=all") == [8, 8]
    assert calls("round-robin:train=0.5") == [4, 2, 2, 2, 1, 2, 1, 1, 1]
    assert calls("superbox:train=3") == [3, 3, 3, 3, 2, 2]


@pytest.mark.parametrize("text", ["hnr", "hnr:level=operator,train=100", "bsd-log:clusters=12,adapt=False", "round-robin:quantum=2.5"])
def test_a_policy_reads_back_what_it_prints(text: str) -> None:
    assert PolicySpec.parse(str(PolicySpec.parse(text))) == PolicySpec.parse(text)


def test_the_plain_name_of_bsd_is_its_exact_rank() -> None:
    assert build(PolicySpec.parse("bsd:level=operator"), default_train=TRAIN).spec == PolicySpec.parse("bsd-naive:level=operator")


def test_every_ranking_cut_selector_and_walk_has_a_file_of_tests() -> None:
    """One file may hold what is told apart only together (the plain cuts, the two kinds of turns)."""
    together = {"operators": "cuts", "operators_to_end": "cuts", "paths": "cuts", "queries": "cuts", "marked_turns": "turns",
                "order": "quick", "factored": "quick"}  # fmt: skip
    root = Path(__file__).parent
    code = Path(__import__("millstream.scheduler", fromlist=["x"]).__file__).parent
    for folder in ("policies", "units", "selectors", "traversals"):
        names = [path.stem for path in (code / folder).glob("*.py") if path.stem not in ("__init__", "base")]
        missing = [name for name in names if not (root / folder / f"test_{together.get(name, name)}.py").is_file()]
        assert missing == [], folder
