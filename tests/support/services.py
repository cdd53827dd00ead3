"""Other software that tests talk to, each instance their own, on a free port of this machine. Where it is missing, the test is skipped."""

from __future__ import annotations

import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

START_S = 60.0
PORTS = 15_000, 32_000
STEP_S = 0.02


def free_port() -> int:
    """Return a port on which nobody listens, below those that the system gives away: none of these gets it before it is used."""
    while True:
        port = random.SystemRandom().randrange(*PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def found(name: str, *places: str) -> str:
    """Return the path of a program; skips the test where there is none."""
    path = shutil.which(name) or next((p for place in places for p in sorted(map(str, Path("/").glob(f"{place}/{name}")))), None)
    if path is None:
        pytest.skip(f"{name} is not installed (make services)")
    return path


@dataclass
class Service:
    """A program that listens on `port`. `kill` ends it as a crash would, `start` starts it again with what it has on disk."""

    command: list[str]
    port: int
    user: str | None = None
    environment: dict[str, str] | None = None
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        user = {} if self.user is None else {"user": self.user, "group": pwd.getpwnam(self.user).pw_gid, "extra_groups": []}
        self.process = subprocess.Popen(
            self.command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            env=None if self.environment is None else {**os.environ, **self.environment},
            **user,
        )
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            assert self.process.poll() is None, f"{self.command[0]} has ended with {self.process.returncode}"
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                time.sleep(STEP_S)
            else:
                return
        raise AssertionError(f"{self.command[0]} does not listen after {START_S:g} s")

    def kill(self) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        # PostgreSQL's processes are of groups of their own, and it does not start again while one of them is still there.
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        children = [int(pid) for pid in listed.read_text().split()] if listed.exists() else []
        os.killpg(self.process.pid, signal.SIGKILL)
        for pid in children:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(START_S)
        deadline = time.monotonic() + START_S
        while any(map(_runs, children)):
            assert time.monotonic() < deadline, f"{self.command[0]} does not end"
            time.sleep(STEP_S)


def _runs(pid: int) -> bool:
    """Return whether a process is there and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextmanager
def running(service: Service) -> Iterator[Service]:
    service.start()
    try:
        yield service
    finally:
        service.kill()


@contextmanager
def mosquitto(folder: Path, saves: bool = True) -> Iterator[Service]:
    """An MQTT broker that keeps sessions and messages on disk, at once after each of them, or when it ends."""
    program, port = found("mosquitto", "usr/sbin"), free_port()
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    config = folder / "mosquitto.conf"
    config.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence true\npersistence_location {folder}/\n"
        f"autosave_interval {int(saves)}\nautosave_on_changes {str(saves).lower()}\nmax_queued_messages 0\nuser root\n"
    )
    with running(Service([program, "-c", str(config)], port)) as service:
        yield service


@contextmanager
def redis_server(folder: Path) -> Iterator[Service]:
    """A Redis that has each write on disk before it answers."""
    program, port = found("redis-server"), free_port()
    folder.mkdir(exist_ok=True)
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--appendonly", "yes", "--appendfsync", "always"]
    with running(Service([*command, "--save", ""], port)) as service:
        yield service


@contextmanager
def nats_server(folder: Path) -> Iterator[Service]:
    """A NATS server with JetStream on disk."""
    program, port = found("nats-server", "usr/sbin"), free_port()
    folder.mkdir(exist_ok=True)
    command = [program, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(folder)]
    with running(Service(command, port)) as service:
        yield service


@contextmanager
def rabbitmq(folder: Path) -> Iterator[Service]:
    """A RabbitMQ of its own name, with its own daemon of names beside it."""
    program = found("rabbitmq-server", "usr/lib/rabbitmq/bin")
    program = "/usr/lib/rabbitmq/bin/rabbitmq-server" if Path("/usr/lib/rabbitmq/bin/rabbitmq-server").exists() else program
    names, port, names_port = found("epmd"), free_port(), free_port()
    folder.mkdir(exist_ok=True)
    (folder / "plugins").write_text("[].\n")
    environment = {
        "ERL_EPMD_PORT": str(names_port),
        "HOME": str(folder),
        "RABBITMQ_NODENAME": f"millstream{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
    }
    with (
        running(Service([names, "-port", str(names_port)], names_port, environment=environment)),
        running(Service([program], port, environment=environment)) as service,
    ):
        yield service


def _until_it_answers(url: str) -> None:
    import psycopg

    deadline = time.monotonic() + START_S
    while True:
        try:
            psycopg.connect(url, connect_timeout=int(START_S)).close()
        except psycopg.OperationalError:  # it listens before it is up
            assert time.monotonic() < deadline, "PostgreSQL does not come up"
            time.sleep(STEP_S)
        else:
            return


@contextmanager
def postgres(folder: Path) -> Iterator[tuple[Service, str]]:
    """A PostgreSQL, and the URL of its database."""
    server, initdb = found("postgres", "usr/lib/postgresql/*/bin"), found("initdb", "usr/lib/postgresql/*/bin")
    port, user = free_port(), "postgres" if os.getuid() == 0 else None
    data = Path("/tmp") / f"millstream-postgres-{port}"  # where its own user may enter
    try:
        data.mkdir(mode=0o700)
        if user is not None:
            shutil.chown(data, user, pwd.getpwnam(user).pw_gid)
        as_user = {} if user is None else {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}
        initialise = [initdb, "-D", str(data), "-U", "tester", "--auth=trust", "--no-sync", "--no-locale", "-E", "UTF8"]
        subprocess.run(initialise, check=True, capture_output=True, timeout=START_S, cwd="/", **as_user)
        command = [server, "-D", str(data), "-p", str(port), "-h", "127.0.0.1", "-k", str(data)]
        with running(Service(command, port, user)) as service:
            url = f"postgresql://tester@127.0.0.1:{port}/postgres"
            _until_it_answers(url)
            yield service, url
    finally:
        shutil.rmtree(data, ignore_errors=True)
