"""pyproject.toml and the pins tell the truth about the tree, and the wheel works by itself."""

from __future__ import annotations

import configparser
import importlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import urllib.error
import urllib.request
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
from millstream.server.config import Config

from tests.support import user_types
from tests.support.services import free_port
from tests.support.tree import PACKAGES, ROOT, files, project


def test_every_package_is_listed_and_every_listed_package_is_there() -> None:
    folders = {".".join(("millstream", *path.parent.parts)) for path in files("__init__.py") if path.parts[0] in PACKAGES}
    assert sorted(project()["tool"]["setuptools"]["packages"]) == sorted({"millstream", *folders})


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


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel as the image does, from what goes into the image, and install it into a fresh environment; return that."""
    folder = tmp_path_factory.mktemp("installed")
    (step,) = [step for step in steps("RUN") if step.startswith("pip wheel")]
    command = shlex.split(step.replace("/wheels", str(folder)))
    run(sys.executable, "-m", *command, cwd=build_context(folder / "context"))
    (wheel,) = folder.glob("millstream-*.whl")
    venv.create(folder / "fresh", with_pip=False)
    python = folder / "fresh" / "bin" / "python"
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder / "fresh")}))
    run(sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel))
    # The dependencies are the ones of this environment; our own editable install does not come with them, as .pth files in
    # a folder that a .pth file names are not read.
    (packages / "dependencies.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    return folder / "fresh"


@pytest.mark.slow
@pytest.mark.process
def test_the_wheel_installed_into_a_fresh_environment_runs(installed: Path, tmp_path: Path) -> None:
    python = installed / "bin" / "python"
    answer = run(str(python.with_name("millstream")), "--help", cwd=tmp_path)
    assert "Usage: millstream" in answer
    where = run(str(python), "-c", "import millstream.engine.data.graph as g; print(g.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(installed)
    listed = run(
        str(python), "-c", "from millstream.feeder.flights import FOLDER; print(*sorted(p.name for p in FOLDER.iterdir()))", cwd=tmp_path
    )
    assert "departures.parquet" in listed


@pytest.mark.slow
@pytest.mark.process
def test_a_users_file_is_checked_by_mypy_strict(installed: Path, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text(user_types.GOOD)
    bad.write_text(user_types.BAD)
    mypy = (
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--python-executable",
        str(installed / "bin" / "python"),
        "--cache-dir",
        str(tmp_path),
    )
    run(*mypy, str(good), cwd=tmp_path)
    done = subprocess.run((*mypy, str(bad)), cwd=tmp_path, capture_output=True, text=True, check=False)
    faults = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [line.partition(": error: ")[0] for line in faults] == ["bad.py:5", "bad.py:6"], done.stdout


# --- what `deploy/` says, done step by step ---


@pytest.mark.slow
@pytest.mark.process
def test_the_image_starts_as_its_file_says(installed: Path, tmp_path: Path) -> None:
    """What the container runs, with its files, variables and health check, at other ports and in other folders."""
    (entry,) = steps("ENTRYPOINT")
    (copied,) = [step.split() for step in steps("COPY") if step.endswith(".toml")]
    command = [str(installed / "bin" / word) if word == "millstream" else word for word in json.loads(entry)]
    command = [str(ROOT / copied[0]) if word == copied[1] else word for word in command]
    variables = dict(word.split("=", 1) for step in steps("ENV") for word in step.split())
    assert variables["MILLSTREAM_HOST"] == variables["MILLSTREAM_METRICS_HOST"] == "0.0.0.0"
    port, metrics_port = free_port(), free_port()
    here = {"MILLSTREAM_PORT": str(port), "MILLSTREAM_METRICS_PORT": str(metrics_port), "MILLSTREAM_DATA_DIR": str(tmp_path)}
    environment = {**os.environ, **variables, **here, "MILLSTREAM_LOG_LEVEL": "info"}
    refused = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (refused.returncode, "MILLSTREAM_ADMIN_TOKEN" in refused.stderr) == (1, True), "no token, no server"
    environment |= {"MILLSTREAM_ADMIN_TOKEN": "a", "MILLSTREAM_READER_TOKEN": "r", "MILLSTREAM_HOST": "127.0.0.1"}
    with listening(command, environment) as server:
        (check,) = [step[step.index("CMD") + 3 :] for step in steps("HEALTHCHECK")]
        words = [sys.executable if word == "python" else word.replace("7416", str(metrics_port)) for word in json.loads(check)]
        run(*words)
        page = f"http://127.0.0.1:{metrics_port}/metrics"
        for token in (None, "x"):
            with pytest.raises(urllib.error.HTTPError, match="401"):
                fetched(page, token)
        assert b"millstream_connections" in fetched(page, "r")
        (stop,) = steps("STOPSIGNAL")
        server.send_signal(getattr(signal, stop))
        assert server.wait(60) == 0


def test_the_images_files_are_there_and_nothing_else_is(tmp_path: Path) -> None:
    context = build_context(tmp_path / "context")
    sources = [step.split()[0] for step in steps("COPY") if not step.startswith("--from")]
    assert [source for source in sources if not (context / source).exists()] == []
    top = {path.name for path in context.iterdir()}
    assert top == {*PACKAGES, "millstream", "deploy", "requirements", "pyproject.toml", "README.md", "LICENSE"}
    assert sorted(path.name for path in (context / "requirements").iterdir()) == ["build.txt", "runtime.txt"]
    assert not list(context.rglob("__pycache__"))
    for name in re.findall(r"-r \S*requirements/(\S+)", " ".join(steps("RUN"))):
        assert (context / "requirements" / name).is_file(), name


@pytest.mark.slow
@pytest.mark.process
def test_the_unit_starts_the_server_that_its_head_installs(installed: Path, tmp_path: Path) -> None:
    text = (ROOT / "deploy" / "millstream.service").read_text()
    for line in re.findall(r"^#   (install .*)$", text, re.MULTILINE):
        *words, target = shlex.split(line)
        run(*words, f"{tmp_path}{target}")
    assert "python3 -m venv /opt/millstream\n" in text
    unit = configparser.ConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(tmp_path / "etc" / "systemd" / "system" / "millstream.service")
    service = unit["Service"]
    assert service.getboolean("DynamicUser")
    command = shlex.split(service["ExecStart"])
    command = [word.replace("/opt/millstream", str(installed)).replace("/etc/", f"{tmp_path}/etc/") for word in command]
    command = [str(tmp_path / "data") if word == f"/var/lib/{service['StateDirectory']}" else word for word in command]
    environment = {**os.environ, "MILLSTREAM_PORT": str(free_port()), "MILLSTREAM_LOG_FORMAT": "json"}
    with listening(command, environment) as server:
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
    assert (tmp_path / "data" / "catalogue.sqlite").is_file()
    assert service.getint("TimeoutStopSec") > Config().drain_s
    if shutil.which("systemd-analyze"):
        own = tmp_path / "millstream.service"
        own.write_text(text.replace("/opt/millstream/bin/millstream", str(installed / "bin" / "millstream")))
        assert run("systemd-analyze", "verify", "--man=no", str(own)) == ""


def test_compose_builds_that_image_and_needs_a_token() -> None:
    text = (ROOT / "deploy" / "compose.yaml").read_text()
    assert "dockerfile: deploy/Dockerfile" in text
    assert "context: .." in text
    assert "${MILLSTREAM_ADMIN_TOKEN:?" in text
    ports = re.findall(r'- "127\.0\.0\.1:(\d+):(\d+)"', text)
    (exposed,) = steps("EXPOSE")
    assert [inside for _, inside in ports] == exposed.split()
    assert float(re.findall(r"stop_grace_period: (\d+)s", text)[0]) > Config().drain_s


def steps(word: str) -> list[str]:
    """Return what follows `word` in the Dockerfile, of each step."""
    text = (ROOT / "deploy" / "Dockerfile").read_text().replace("\\\n", " ")
    return [line.partition(" ")[2].strip() for line in text.splitlines() if line.partition(" ")[0] == word]


def build_context(folder: Path) -> Path:
    """Copy what `COPY . .` would find: everything that Dockerfile.dockerignore lets through; return the folder."""
    lines = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*", "everything stays out unless it is let in"
    let_in = [rule[1:] for rule in rules if rule.startswith("!")]
    kept_out = [rule.removeprefix("**/") for rule in rules[1:] if not rule.startswith("!")]
    for name in let_in:
        source, target = ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns(*kept_out))
        else:
            shutil.copy(source, target)
    return folder


def fetched(page: str, token: str | None) -> bytes:
    request = urllib.request.Request(page, headers={} if token is None else {"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        body: bytes = answer.read()
        return body


@contextmanager
def listening(command: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Start a server and wait until it listens; it is killed at the end if it still runs."""
    server = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        assert any('"listening"' in line for line in server.stderr), f"the server ended before it listened: {command}"
        yield server
    finally:
        server.kill()
        server.communicate(timeout=60)


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
