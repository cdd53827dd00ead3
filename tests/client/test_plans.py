"""Plan objects built in Python say what their JSON form says."""

from __future__ import annotations

import json

import pytest
from millstream.client import plans as p


def test_a_plan_is_the_tree_that_was_written() -> None:
    left = p.source("a").select("v > 3", selectivity=0.5, cost_us=2)
    right = p.source("b").project({"k": "k", "w": "v * 2"})
    root = left.join(right, "a.k = b.k", within="3 SECONDS").aggregate(
        window="RANGE 10 SECONDS SLIDE 5 SECONDS", group_by=["k"], aggregates=[("n", "COUNT", "*")]
    )
    plan = p.Plan(root.top(3, "n DESC"), name="q", class_="gold", qos={"latency": [(0, 1), (0.2, 0)]}, emit="FINAL", stream="i")
    assert json.loads(plan.to_json()) == {
        "version": 1,
        "name": "q",
        "class": "gold",
        "qos": {"latency": [[0, 1], [0.2, 0]]},
        "root": {
            "op": "top",
            "emit": "FINAL",
            "stream": "i",
            "order_by": "n DESC",
            "limit": 3,
            "input": {
                "op": "aggregate",
                "window": "RANGE 10 SECONDS SLIDE 5 SECONDS",
                "group_by": ["k"],
                "aggregates": [["n", "COUNT", "*"]],
                "input": {
                    "op": "join",
                    "kind": "inner",
                    "on": "a.k = b.k",
                    "within": "3 SECONDS",
                    "inputs": [
                        {"op": "select", "condition": "v > 3", "selectivity": 0.5, "cost_us": 2, "input": {"op": "source", "stream": "a"}},
                        {"op": "project", "columns": [["k", "k"], ["w", "v * 2"]], "input": {"op": "source", "stream": "b"}},
                    ],
                },
            },
        },
    }


def test_every_operator_of_the_language_can_be_built() -> None:
    both = p.union(p.source("a").split("x"), p.source("a").split("x", keep=False)).distinct().project("*")
    text = p.Plan(both).to_json()
    for op in ("union", "split", "distinct", "project", "source"):
        assert f'"op": "{op}"' in text


@pytest.mark.parametrize(
    "build",
    [
        lambda: p.source("a").select("x", selectvity=1),
        lambda: p.source("a").select("x", selectivity=-1),
        lambda: p.source("a").top(0, "x"),
        lambda: p.source("a").join(p.source("b"), "x", kind="outer"),
        lambda: p.Plan(p.source("a"), stream="x").to_dict(),
    ],
)
def test_what_no_plan_can_say_is_refused_as_it_is_built(build: object) -> None:
    with pytest.raises(ValueError, match=r"selectvity|negative|limit|kind|stream"):
        build()  # type: ignore[operator]
