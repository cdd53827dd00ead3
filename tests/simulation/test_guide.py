"""The guide to policies: every policy has its picture, its words and its measure."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from millstream.scheduler.experiments import guide
from millstream.scheduler.experiments.experiment_command import experiment
from millstream.scheduler.names import LOADS
from millstream.scheduler.simulation.workloads import utilisation

DOCS = Path(__file__).parents[2] / "docs"


def test_every_policy_is_in_the_guide_with_its_picture() -> None:
    page = (DOCS / "scheduling.md").read_text("utf-8")
    names = re.findall(r"^\| `([a-z-]+)` \| .*!\[\1\]\(policies/\1\.png\) \|$", page, re.MULTILINE)
    assert sorted(names) == sorted(guide.known_policies()) == sorted(guide.MEASURES)
    pictures = {path.stem: path for path in (DOCS / "policies").glob("*")}
    assert sorted(pictures) == sorted(names)
    assert all(path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size < 20_000 for path in pictures.values())


def test_the_workload_has_the_load_it_says() -> None:
    assert utilisation(guide.guide_workload(0.9)) == pytest.approx(0.9)


def test_the_command_draws_the_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guide, "_TUPLES", 40)
    ran = CliRunner().invoke(experiment, ["guide", str(tmp_path), "--policy", "fcfs,hnr"])
    assert ran.exit_code == 0, ran.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fcfs.png", "hnr.png"]
    assert "no picture of best" in CliRunner().invoke(experiment, ["guide", str(tmp_path), "--policy", "best"]).output


def test_every_load_manager_has_its_picture_and_words() -> None:
    page = (DOCS / "overload.md").read_text("utf-8")
    names = re.findall(r"^\| `([a-z]+)` \| .*!\[\1\]\(overload/\1\.png\) \|$", page, re.MULTILINE)
    assert names == list(LOADS)
    pictures = {path.stem: path for path in (DOCS / "overload").glob("*")}
    assert sorted(pictures) == sorted(names)
    assert all(path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size < 40_000 for path in pictures.values())


def test_the_command_draws_the_pictures_of_load_managers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guide.run_modes, "__defaults__", (3.0, 60.0))
    ran = CliRunner().invoke(experiment, ["overload-guide", str(tmp_path)])
    assert ran.exit_code == 0, ran.output
    assert sorted(path.stem for path in tmp_path.iterdir()) == sorted(LOADS)
