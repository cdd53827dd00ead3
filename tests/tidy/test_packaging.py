"""pyproject.toml and the pins tell the truth about the tree, and the wheel works by itself."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import click
import pytest

from tests.support.tree import PACKAGES, ROOT, files, project


def test_every_package_is_listed_and_every_listed_package_is_there() -> None:
    folders = {".".join(("millstream", *path.parent.parts)) for path in files("__init__.py") if path.parts[0] in PACKAGES}
    assert sorted(project()["tool"]["setuptools"]["packages"]) == sorted(folders)


def test_every_folder_of_code_is_a_package() -> None:
    folders = {path.parent for path in files(".py") if path.parts[0] in PACKAGES}
    assert [str(folder) for folder in sorted(folders) if not (ROOT / folder / "__init__.py").is_file()] == []


def test_every_command_named_in_pyproject_is_a_click_command() -> None:
    for name, target in project()["project"].get("entry-points", {}).get("millstream.commands", {}).items():
        module, attribute = target.split(":")
        assert isinstance(getattr(importlib.import_module(module), attribute), click.Command), name


@pytest.mark.parametrize("name", ["build", "dev", "feeder", "runtime"])
def test_pins_are_exact_hashed_and_name_no_place(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    entries = text.replace("\\\n", " ").splitlines()
    assert entries
    assert [entry for entry in entries if not re.match(r"[a-z0-9-]+==\S+ .*--hash=sha256:[0-9a-f]{64}", entry)] == []
    assert re.search(r"://|--(index|extra-index|find-links)", text) is None


def test_the_daemon_is_pinned_to_the_versions_that_are_tested() -> None:
    tested = pins("dev")
    for name in ("build", "feeder", "runtime"):
        assert set(pins(name).items()) <= set(tested.items())


def test_every_dependency_of_the_project_is_pinned() -> None:
    wanted = {re.split(r"[<>=; \[]", line)[0].replace("_", "-") for line in project()["project"]["dependencies"]}
    assert wanted <= set(pins("runtime"))


@pytest.mark.slow
@pytest.mark.process
def test_the_wheel_installed_into_a_fresh_environment_runs(tmp_path: Path) -> None:
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(tmp_path),
        str(copy_of_the_tree(tmp_path)),
    )
    (wheel,) = tmp_path.glob("millstream-*.whl")
    venv.create(tmp_path / "fresh", with_pip=False)
    python = tmp_path / "fresh" / "bin" / "python"
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(tmp_path / "fresh")}))
    run(sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel))
    # The dependencies are the ones of this environment; our own editable install does not come with them, as .pth files in
    # a folder that a .pth file names are not read.
    (packages / "dependencies.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    answer = run(str(python.with_name("millstream")), "--help", cwd=tmp_path)
    assert "Usage: millstream" in answer
    where = run(str(python), "-c", "import millstream.engine.data.graph as g; print(g.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(tmp_path / "fresh")
    listed = run(
        str(python), "-c", "from millstream.feeder.flights import FOLDER; print(*sorted(p.name for p in FOLDER.iterdir()))", cwd=tmp_path
    )
    assert "departures.parquet" in listed


def copy_of_the_tree(folder: Path) -> Path:
    """Return a copy to build from, so that the build's own folders don't land in the work tree."""
    copy = folder / "tree"
    for path in files():
        if path.parts[0] in {*PACKAGES, "pyproject.toml", "README.md", "LICENSE"}:
            (copy / path).parent.mkdir(parents=True, exist_ok=True)
            (copy / path).write_bytes((ROOT / path).read_bytes())
    return copy


def run(*command: str, cwd: Path = ROOT) -> str:
    """Run a command to its end and return what it printed; a failure shows what it said."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def pins(name: str) -> dict[str, str]:
    """Return package name to version of a requirements file."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))
