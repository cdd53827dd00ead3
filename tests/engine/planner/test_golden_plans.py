"""Each golden file holds a query, its plan before and after the rewrites, its operators, and the plan object it is written as."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from millstream.engine.plan.explain import explain, explain_json, plan_text

from tests.support import golden
from tests.support.plans import plan

FILES = sorted((Path(__file__).parent / "golden").glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_a_query_is_planned_as_its_file_says(path: Path) -> None:
    planned = plan(golden.sections(path)["query"])
    golden.check(path, {"bound": plan_text(planned.bound.root), "explain": explain(planned)})


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
@pytest.mark.parametrize("off", ["", "all"])
def test_a_query_and_the_plan_object_it_is_written_as_run_alike(path: Path, off: str) -> None:
    planned = plan(golden.sections(path)["query"], off=off)
    written = json.loads(explain_json(planned))
    assert plan(written, off=off).physical == planned.physical


def test_the_golden_files_are_there() -> None:
    assert len(FILES) > 30
