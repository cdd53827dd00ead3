"""WITH (scale_up = true): Horvitz and Thompson by hand, exact where nothing was shed, and within the bounds 19 times in 20."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from millstream.engine.data.errors import InvalidDefinition, UnknownName, Unsupported
from millstream.engine.data.graph import ClassId, ClassNode
from millstream.engine.flow.shedding import uniform_of
from millstream.engine.language.statements import ClassDefinition
from millstream.engine.plan.plan import plan_select

from tests.support.engine_run import SECOND, SqlEngine

CREATE = "CREATE STREAM s (ts TIMESTAMP, k BIGINT, v BIGINT) TIMESTAMP BY ts"
LOW = ClassNode(ClassId(1), "low", may_shed=True)
GROUPED = """SELECT k, COUNT(*) AS n, SUM(v) AS total, COUNT(v) FILTER (WHERE v < 50) AS few
    FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k WITH (class = 'low', scale_up = true)"""


def engine_of(**how: Any) -> SqlEngine:
    engine = SqlEngine(CREATE, **how)
    engine.catalog.add(ClassDefinition("low", may_shed=True))
    return engine


def test_the_estimate_is_that_of_horvitz_and_thompson_by_hand() -> None:
    """Twelve rows at ratio 0, 0.5, 0.75: each kept one weighs 1, 2, 4; error² = 1.96² Σ w(w−1)y²."""
    engine = engine_of(seed=11)
    engine.select(
        "SELECT COUNT(*) AS n, SUM(v) AS total FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] WITH (class = 'low', scale_up = true)",
        class_node=LOW,
    )
    expected = [0.0, 0.0, 0.0, 0.0]
    chances = uniform_of(np.arange(12, dtype=np.int64), 11)
    for block, ratio in enumerate((0.0, 0.5, 0.75)):
        engine.network.set_drop_ratio("s", LOW.id, ratio)
        engine.put("s", [(SECOND * block, 0, 10 + i) for i in range(4 * block, 4 * block + 4)])
        for i in range(4 * block, 4 * block + 4):
            if chances[i] >= ratio:
                weight, y = 1 / (1 - ratio), 10 + i
                expected = [
                    a + b for a, b in zip(expected, (weight, weight * (weight - 1), weight * y, weight * (weight - 1) * y * y), strict=True)
                ]
    engine.end()
    engine.work()
    ((_, scaled, error, _, total, total_error),) = engine.rows("q")
    assert expected[1] > 0
    assert (scaled, total) == pytest.approx((expected[0], expected[2]))
    assert (error, total_error) == pytest.approx((1.96 * expected[1] ** 0.5, 1.96 * expected[3] ** 0.5))


@pytest.mark.parametrize("sharing", [False, True])
def test_where_nothing_was_shed_the_estimate_is_the_answer_and_the_error_0(sharing: bool) -> None:
    engine = engine_of(sharing=sharing)
    delta = engine.select(GROUPED, class_node=LOW)
    assert engine.results["q"] == []
    engine.put("s", [(i * SECOND // 10, i % 3, i % 70) for i in range(500)], chunk=33)
    engine.end()
    engine.work()
    assert engine.results["q"][0].schema.names == (
        "k", "n", "n_scaled", "n_error", "total", "total_scaled", "total_error", "few", "few_scaled", "few_error",
    )  # fmt: skip
    assert delta.query.name == "q"
    for _, n, n_scaled, n_error, total, t_scaled, t_error, few, few_scaled, few_error in engine.rows("q"):
        assert (n_scaled, t_scaled, few_scaled) == (n, float(total), few)
        assert (n_error, t_error, few_error) == (0.0, 0.0, 0.0)


def test_the_truth_lies_within_the_bound_19_times_in_20() -> None:
    """1,200 groups of about 250 rows, the ratio changing within windows: the share that is covered is 0.95 but for chance (± 0.02)."""
    dice = random.Random(7)
    rows = [(i * SECOND // 100, dice.randint(0, 3), dice.randint(0, 99)) for i in range(300_000)]
    truth: dict[tuple[int, int], list[int]] = {}
    engine = engine_of(seed=3)
    engine.select(GROUPED.replace("SELECT k", "SELECT window_start, k"), class_node=LOW)
    for at in range(0, len(rows), 250):
        engine.network.set_drop_ratio("s", LOW.id, dice.choice((0.2, 0.5, 0.8)))
        engine.put("s", rows[at : at + 250])
        if at % 20_000 == 0:
            engine.work()
    engine.end()
    engine.work()
    for ts, k, v in rows:
        sums = truth.setdefault((ts // (10 * SECOND) * 10 * SECOND, k), [0, 0, 0])
        sums[0] += 1
        sums[1] += v
        sums[2] += v < 50
    inside = np.zeros(3)
    answers = engine.rows("q")
    for start, k, *told in answers:
        for place, real in enumerate(truth[start, k]):
            estimate, error = told[3 * place + 1], told[3 * place + 2]
            inside[place] += abs(estimate - real) <= error
    assert len(answers) == len(truth) == 1200
    assert np.all(np.abs(inside / len(answers) - 0.95) < 0.02), inside / len(answers)


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("SELECT AVG(v) FROM s [RANGE 1 SECOND SLIDE 1 SECOND] WITH (scale_up = true)", Unsupported, "needs a COUNT or SUM"),
        ("SELECT COUNT(*) FROM s a JOIN s b ON a.k = b.k WITHIN 1 SECOND WITH (scale_up = true)", Unsupported, "one stream"),
        (
            "SELECT COUNT(*) AS n, SUM(v) AS N_scaled FROM s [RANGE 1 SECOND SLIDE 1 SECOND] WITH (scale_up = true)",
            Unsupported,
            "adds a column n_scaled",
        ),
        ("SELECT COUNT(*) FROM s [RANGE 1 SECOND SLIDE 1 SECOND] WITH (scale_up = 3)", InvalidDefinition, "true or false"),
        (
            "SELECT COUNT(*) FROM s [RANGE 1 SECOND SLIDE 1 SECOND] WITH (class = 'low', scale_up = true, shed_by = 'v')",
            InvalidDefinition,
            "by chance",
        ),
        ("SELECT * FROM s WITH (shed_by = 'v')", InvalidDefinition, "never shed"),
        ("SELECT * FROM s WITH (class = 'low', shed_by = 'w')", Exception, "shed_by"),
        ("SELECT * FROM s WITH (class = 'low', shed_by = 'ts')", Exception, "must give a number"),
        ("SELECT * FROM s WITH (class = 'low', shed_by = '1 / 0')", InvalidDefinition, "shed_by fails at every row"),
        ("SELECT * FROM s WITH (class = 'low', shed_by = 'v + 1 / 0')", InvalidDefinition, "shed_by fails at every row"),
        ("SELECT * FROM s WITH (class = '')", UnknownName, "there is no class ''"),
    ],
)
def test_what_cannot_be_scaled_or_ranked_is_refused_by_name(text: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        plan_select(text, engine_of().catalog)
