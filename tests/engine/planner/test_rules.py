"""Each golden file under rules/ shows one rewrite: the plan before and after it alone, and what it is called."""

from __future__ import annotations

from pathlib import Path

import pytest
from millstream.engine.data.errors import UnknownName
from millstream.engine.plan.explain import plan_text
from millstream.engine.plan.logical import walk_plan
from millstream.engine.plan.plan import RULES, optimise

from tests.support import golden
from tests.support.plans import plan

FILES = sorted((Path(__file__).parent / "rules").glob("*.txt"))
PLANS = sorted((Path(__file__).parent / "golden").glob("*.txt"))


def rule_of(path: Path) -> str:
    return path.stem.rstrip("0123456789").rstrip("_")


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_a_rewrite_does_what_its_file_says(path: Path) -> None:
    bound = plan(golden.sections(path)["query"], off="all").bound.root
    others = frozenset(RULES) - {rule_of(path)}
    after, _ = optimise(bound, off=others)
    golden.check(path, {"before": plan_text(bound), "after": plan_text(after)})


@pytest.mark.parametrize("name", sorted(RULES))
def test_every_rewrite_has_a_file_in_which_it_changes_something(name: str) -> None:
    changed = [p for p in FILES if rule_of(p) == name and golden.sections(p)["before"] != golden.sections(p)["after"]]
    assert changed


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_a_rewrite_that_is_switched_off_is_not_applied(path: Path) -> None:
    query = golden.sections(path)["query"]
    assert rule_of(path) not in plan(query, off=rule_of(path)).applied
    assert plan(query, off="all").applied == ()


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_rewrites_keep_the_answers_columns(path: Path) -> None:
    query = golden.sections(path)["query"]
    assert plan(query).physical.schema == plan(query, off="all").physical.schema


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_rewriting_twice_changes_nothing_more(path: Path) -> None:
    once = plan(golden.sections(path)["query"]).logical.root
    assert optimise(once) == (once, ())


@pytest.mark.parametrize("path", [*FILES, *PLANS], ids=lambda p: p.stem)
def test_where_a_rewrite_says_that_it_has_nothing_to_do_it_changes_nothing(path: Path) -> None:
    bound = plan(golden.sections(path)["query"], off="all").bound.root
    for name, rule in RULES.items():
        for start in (bound, optimise(bound, off=frozenset(RULES) - {name})[0], optimise(bound)[0]):
            if not any(map(rule.concerns, walk_plan(start))):
                assert rule.apply(start) == start


def test_some_rewrites_have_nothing_to_do_in_a_plain_query() -> None:
    nodes = walk_plan(plan("SELECT k, v FROM s WHERE v > 1", off="all").bound.root)
    assert [name for name, rule in RULES.items() if any(map(rule.concerns, nodes))] == ["constant_folding"]


def test_an_unknown_rewrite_is_refused_by_name() -> None:
    with pytest.raises(UnknownName, match=r"there is no rewrite constant_foldin.*did you mean constant_folding"):
        plan("SELECT k FROM s", off="constant_foldin")


def test_declared_selectivity_and_cost_order_the_filters() -> None:
    source = {"op": "source", "stream": "s"}
    cheap = {"op": "select", "condition": "k = 1", "selectivity": 0.9, "cost_us": 1, "input": source}
    strict = {"op": "select", "condition": "v > 2", "selectivity": 0.1, "cost_us": 2, "input": cheap}
    lines = plan_text(plan({"version": 1, "root": strict}).logical.root).splitlines()
    assert [line.split()[1] for line in lines] == ["k", "v", "s"]  # v > 2 has rank -0.45 and runs first, k = 1 has -0.1
