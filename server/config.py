"""The server's settings: one definition each, read once at start.

A value comes from the command line's flag, else the environment (`MILLSTREAM_…`), else `millstream.toml`, else the default given
here. Names of flags, variables and keys all follow from the field's name, so that there is nothing to keep in step. Units stand
last in the names. docs/configuration.md and deploy/millstream.toml list every setting; tests compare them with this file.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import os
import tomllib
from collections.abc import Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import Any, get_type_hints

from millstream.engine.data.records import dataclass
from millstream.scheduler.names import LOADS, LOADS_DEFAULT, REFRESH_DEFAULT, SHARING_DEFAULT, SHARINGS
from millstream.server.errors import ConfigError

ENVIRONMENT_PREFIX = "MILLSTREAM_"
NUMBER_MAX = 2.0**53  # of any setting; of times in s less, as they are told in ns
SECONDS_MAX = 1e9
PORT_MAX = 65_535
_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"0", "false", "no", "off"}


def setting(
    default: Any,
    section: str,
    explanation: str,
    *,
    least: float | None = None,
    most: float = NUMBER_MAX,
    choices: tuple[str, ...] = (),
    words: Mapping[str, Any] | None = None,
) -> Any:
    """Define a setting: its default, its section of millstream.toml, what it does and why the default is what it is.

    `words` may be written for the values that they stand for.
    """
    metadata = {"section": section, "explanation": explanation, "least": least, "most": most, "choices": choices, "words": words or {}}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All settings of `millstream serve`."""

    host: str = setting("127.0.0.1", "server", "Address to listen on. Any address beyond loopback requires a token.")
    port: int = setting(
        7415, "server", "TCP port to listen on. With 0 the system chooses a port, and the server logs it.", least=0, most=PORT_MAX
    )
    data_dir: str = setting("", "server", "Directory of the catalogue and the journal. If empty, nothing survives a restart.")
    workers: int = setting(
        1,
        "server",
        "Processes that run operators. With 1, the server runs them itself. With `auto` (or 0), there is one for each core "
        "(docs/workers.md).",
        least=0,
        words={"auto": 0},
    )
    policy: str = setting(
        "auto",
        "server",
        "Scheduling policy at start. `auto` means fcfs, or cqc with a load manager. SHOW POLICIES lists the names; SET POLICY "
        "changes the policy.",
    )
    load: str = setting(
        LOADS_DEFAULT,
        "server",
        "Load manager, which sheds rows under overload: `none`, `common` (one for all classes), `class` (one per class) or "
        "`dilos` (docs/overload.md).",
        choices=LOADS,
    )
    policy_dir: str = setting("", "server", "Directory of your own policy files. SET POLICY loads policy files only from this directory.")
    estimate_rows: int = setting(
        100, "server", "Number of rows after which an operator's estimated cost and selectivity are updated.", least=1
    )
    estimate_aging: float = setting(0.175, "server", "Weight of a new measurement in an estimate: above 0, below 1.", least=0.001)
    rewrite: bool = setting(True, "server", "Rewrite query plans (push conditions down, share equal parts) before they run.")
    optimise: bool = setting(False, "server", "Correct queries that miss their QoS targets while they run (docs/optimiser.md).")
    optimise_settle_s: float = setting(
        5.0, "server", "How long the optimiser waits after a change before it measures the effect and may make another change.", least=0.1
    )
    admission: str = setting(
        "warn",
        "server",
        "What happens to a query that would push a class below its target: accept it (`off`), accept it with a warning (`warn`), "
        "or refuse it (`refuse`).",
        choices=("off", "warn", "refuse"),
    )
    sharing: str = setting(
        SHARING_DEFAULT,
        "server",
        "How queries share work: `off`, or the method that chooses the periods under SLIDE WITHIN (docs/sharing.md).",
        choices=SHARINGS,
    )
    refresh: str = setting(
        REFRESH_DEFAULT,
        "server",
        "How polls are given to tables that say REFRESH: `perceived` (what is read most stays freshest), `general` or `uniform`, with "
        "options as `perceived:demand=0.2` (docs/refresh.md).",
    )
    refresh_budget: int = setting(2**20, "server", "Bytes a second of all files that are polled for tables that say REFRESH.", least=1)
    shed_seed: int = setting(
        0, "server", "Seed that, with a row's arrival number, decides whether the row is shed. It is the same at every start.", least=0
    )
    metrics_port: int = setting(0, "server", "HTTP port for /metrics, /healthz and /readyz. 0 turns it off.", least=0, most=PORT_MAX)
    metrics_host: str = setting(
        "127.0.0.1",
        "server",
        "Address of the metrics port. Beyond loopback, /metrics asks for a token of any role (`Authorization: Bearer TOKEN`).",
    )
    connectors: bool = setting(
        True,
        "server",
        "Run the sources and sinks of CREATE SOURCE and CREATE SINK in a process of the server's own. If false, run `millstream connect "
        "--server` elsewhere (docs/connect.md).",
    )
    console_port: int = setting(
        0,
        "server",
        "Port of the console, a page that shows the server in a browser; a process of its own runs it. 0 turns it off (docs/console.md).",
        least=0,
        most=PORT_MAX,
    )
    console_host: str = setting(
        "127.0.0.1", "server", "Address of the console. Beyond loopback, the server must ask for tokens, and the page comes over its TLS."
    )
    drain_s: float = setting(10.0, "server", "How long the server may take after SIGTERM to answer queued rows before it exits.", least=0)

    admin_token: str = setting("", "security", "Token of the role that may do everything.")
    writer_token: str = setting("", "security", "Token of the role that may publish, and do everything that a reader may do.")
    reader_token: str = setting("", "security", "Token of the role that may list, explain, start temporary queries and subscribe.")
    files_dir: str = setting(
        "",
        "security",
        "Directory from which CREATE TABLE … FROM and CREATE FUNCTION … FROM read files. If empty, they read any file that the "
        "server may read.",
    )
    functions_confined: bool = setting(
        True,
        "security",
        "Confine users' functions: no network, no other processes, no files except Python's and those beside their own. If false,"
        " only their memory and time are bounded (docs/operations.md).",
    )
    tls_cert: str = setting("", "security", "File of the server's certificate chain (PEM). If set, the server accepts only TLS.")
    tls_key: str = setting("", "security", "File of the certificate's private key (PEM).")

    worker_bytes_max: int = setting(
        4 * 2**30,
        "limits",
        "Memory of a worker process, beyond what it starts with. A query whose step needs more ends; the others of its worker go on.",
        least=2**24,
    )
    connect_bytes_max: int = setting(
        2**30, "limits", "Memory of the process that runs sources and sinks. It ends if it needs more, and is started again.", least=2**27
    )
    fetch_workers: int = setting(2, "limits", "Number of FETCHes that run at once, each in its own process. Further ones wait.", least=1)
    fetch_waiting_max: int = setting(64, "limits", "Number of FETCHes that may wait for a process. Peers take turns.", least=0)
    fetch_memory_bytes_max: int = setting(2**30, "limits", "Memory of one FETCH, including its rows and its answer.", least=64 * 2**20)
    fetch_cpu_s_max: float = setting(60.0, "limits", "Processor time of one FETCH.", least=1)
    fetch_idle_s: float = setting(60.0, "limits", "How long a FETCH process waits for the next FETCH before it ends.", least=0)
    file_bytes_max: int = setting(2**30, "limits", "Largest file, when unpacked, that CREATE TABLE … FROM reads.", least=65_536)
    function_memory_bytes_max: int = setting(
        2**30, "limits", "Memory of one user's function. Python and Arrow take 150 MB of it.", least=256 * 2**20
    )
    connections_max: int = setting(
        1024, "limits", "Number of open connections. One more is told so and closed. Readers may have fifteen sixteenths of them.", least=1
    )
    connection_queries_max: int = setting(256, "limits", "Number of unnamed queries that one connection may run at once.", least=1)
    frame_bytes_max: int = setting(
        64 * 2**20, "limits", "Largest frame after hello. The server refuses a larger one unread.", least=65_536, most=2**32 - 1
    )
    reader_frame_bytes_max: int = setting(2**20, "limits", "Largest frame of a reader. Readers send no rows.", least=65_536, most=2**32 - 1)
    connections_bytes_max: int = setting(
        256 * 2**20,
        "limits",
        "Memory for half frames, waiting requests and unread answers of all peers. Beyond it, the server closes the peer that has"
        " held more than an even share for the longest time.",
        least=65_536,
    )
    messages_per_s_max: int = setting(
        20_000,
        "limits",
        "Messages without rows (pings, statements, credits) that the server handles each second, in addition to the small "
        "allowance of each peer. Four rows that are refused count as one. Peers that send more wait.",
        least=100,
    )
    frame_s: float = setting(
        10.0, "limits", "How long hello, or the rest of a frame that has begun, may take. Then the connection is closed.", least=0.1
    )
    ping_s: float = setting(
        30.0,
        "limits",
        "Silence after which the server pings a peer. If the peer stays silent for as long again, its connection is closed.",
        least=0.1,
    )
    publish_rows_max: int = setting(262_144, "limits", "Credit of a publisher in rows: how many rows it may have under way.", least=1)
    publish_bytes_max: int = setting(
        64 * 2**20, "limits", "Credit of a publisher in bytes: how many bytes it may have under way.", least=65_536
    )
    producer_kept_s: float = setting(
        7 * 86_400.0,
        "limits",
        "How long a stream remembers a named publisher that is not connected: its last sequence number and position.",
        least=1,
    )
    subscriber_bytes_max: int = setting(16 * 2**20, "limits", "Results held for one subscriber that reads too slowly.", least=65_536)
    slow_subscriber: str = setting(
        "disconnect",
        "limits",
        "What happens to a subscriber beyond subscriber_bytes_max: `disconnect` (it may resume with its token) or `gap` (it loses the "
        "oldest results and is told how many).",
        choices=("disconnect", "gap"),
    )
    results_kept_bytes_max: int = setting(64 * 2**20, "limits", "Results kept for each query so that a subscriber can resume.", least=0)
    results_kept_total_bytes_max: int = setting(
        512 * 2**20, "limits", "Results kept for all queries together. With many queries, each one keeps less.", least=0
    )
    results_kept_s: float = setting(3600.0, "limits", "How long results are kept at most.", least=0)
    recording_kept_s: float = setting(
        3600.0,
        "limits",
        "How long the server keeps counts of what arrives, for `millstream record --last` and `millstream advise`. "
        "0 means that it keeps none.",
        least=0,
    )
    recording_bytes_max: int = setting(
        64 * 2**20, "limits", "Memory of these counts. The oldest go first; a busy source fills 7 MB an hour.", least=2**20
    )

    server_memory_bytes_max: int = setting(
        0,
        "limits",
        "Bytes that queues, states, results and steps of all queries may hold together. 0 means half of the memory of the machine"
        " or of the server's control group.",
        least=0,
    )
    query_memory_bytes_max: int = setting(
        0,
        "limits",
        "Bytes that one query may hold if its WITH gives no memory_bytes_max. 0 means half of server_memory_bytes_max.",
        least=0,
    )
    spill_bytes_max: int = setting(
        4 * 2**30,
        "limits",
        "Bytes of files to which rows that wait for slow or paused queries may go when memory gets short. They lie in the data directory. "
        "0 means that they stay in memory.",
        least=0,
    )
    step_s_max: float = setting(
        2.0, "limits", "Processor time of one step of a query that cannot be cut. A query that exceeds it ends.", least=0.01
    )

    journal_bytes_max: int = setting(
        2**30, "journal", "Bytes that the journal keeps for all durable streams together. It drops the oldest rows first.", least=2**20
    )
    journal_kept_s: float = setting(86_400.0, "journal", "How long the journal keeps rows at most.", least=1)
    journal_fsync_s: float = setting(
        0.1, "journal", "With DURABILITY journal, how soon a written row is forced to disk. With sync, this happens at once.", least=0.001
    )

    archive_wait_s: float = setting(
        60.0, "archive", "How long a row of a stream with ARCHIVE waits in the journal before it is written to a file.", least=0
    )
    archive_file_bytes: int = setting(
        32 * 2**20,
        "archive",
        "Rows of so many bytes in the journal become one file at once. Small files are merged up to this size. Archiving takes about "
        "three times this memory.",
        least=65_536,
        most=2**30,
    )

    log_level: str = setting("info", "logging", "Lowest level that is logged.", choices=("debug", "info", "warning", "error"))
    log_format: str = setting(
        "auto",
        "logging",
        "`human`, `json` or `auto`. With auto, the log is for people on a terminal and JSON elsewhere.",
        choices=("auto", "human", "json"),
    )


def policy_at_start(config: Config) -> str:
    """Return the policy that the settings mean."""
    if config.policy != "auto":
        return config.policy
    return "fcfs" if config.load == "none" else "cqc"


def workers_of(config: Config) -> int:
    """Return how many workers the settings mean."""
    if config.workers:
        return config.workers
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def setting_fields() -> tuple[dataclasses.Field[Any], ...]:
    """Return the definitions in order."""
    return fields(Config)


def flag_of(name: str) -> str:
    """Return the command line flag of a setting."""
    return "--" + name.replace("_", "-")


def variable_of(name: str) -> str:
    """Return the environment variable of a setting."""
    return ENVIRONMENT_PREFIX + name.upper()


def load_config(flags: Mapping[str, Any], environment: Mapping[str, str], file: Path | None) -> Config:
    """Return the settings put together; `flags` holds only those that were given. Raises ConfigError naming the place."""
    kinds = get_type_hints(Config)
    from_file = _read_file(file) if file is not None else {}
    values: dict[str, Any] = {}
    for definition in setting_fields():
        name = definition.name
        variable = variable_of(name)
        if flags.get(name) is not None:
            values[name] = _checked(definition, kinds[name], flags[name], flag_of(name))
        elif variable in environment:
            values[name] = _checked(definition, kinds[name], environment[variable], f"environment variable {variable}")
        elif name in from_file:
            values[name] = _checked(definition, kinds[name], from_file[name], f"{name} in {file}")
    config = Config(**values)
    _check_together(config)
    return config


def _read_file(path: Path) -> dict[str, Any]:
    """Read millstream.toml into a flat map; an unknown section or key is refused by name."""
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the settings file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not a TOML file: {error}") from error
    homes = {d.name: d.metadata["section"] for d in setting_fields()}
    flat: dict[str, Any] = {}
    for section, keys in content.items():
        if not isinstance(keys, dict) or section not in homes.values():
            raise ConfigError(f"{path} has an unknown section [{section}]", hint=f"sections are {', '.join(sorted(set(homes.values())))}")
        for key, value in keys.items():
            if homes.get(key) != section:
                raise ConfigError(f"{path} has an unknown setting {key} in [{section}]", hint="docs/configuration.md lists the settings")
            flat[key] = value
    return flat


def _checked(definition: dataclasses.Field[Any], kind: type, raw: Any, place: str) -> Any:
    value = _converted(kind, definition.metadata["words"].get(raw, raw), place)
    choices, least = definition.metadata["choices"], definition.metadata["least"]
    if choices and value not in choices:
        raise ConfigError(f"{place} is {value!r}", hint=f"it must be one of {', '.join(choices)}")
    if least is not None and not value >= least:  # NaN is not
        raise ConfigError(f"{place} is {value}", hint=f"it must be at least {least:g}")
    most = SECONDS_MAX if definition.name.endswith("_s") else definition.metadata["most"]
    if kind is not str and value > most:
        raise ConfigError(f"{place} is {value}", hint=f"it must be at most {most:.16g}")
    return value


def _converted(kind: type, raw: Any, place: str) -> Any:
    """Turn text or a TOML value into the setting's type."""
    if kind is bool:
        return _boolean(raw, place)
    if isinstance(raw, bool) or (kind is str and not isinstance(raw, str)) or (kind is int and isinstance(raw, float)):
        raise ConfigError(f"{place} is {raw!r}", hint=f"it must be {_described(kind)}")
    try:
        return kind(raw)
    except ValueError as error:
        raise ConfigError(f"{place} is {raw!r}", hint=f"it must be {_described(kind)}") from error


def _boolean(raw: Any, place: str) -> bool:
    if isinstance(raw, bool):
        return raw
    text = str(raw).lower()
    if text not in _TRUE | _FALSE:
        raise ConfigError(f"{place} is {raw!r}", hint="it must be true or false")
    return text in _TRUE


def _described(kind: type) -> str:
    return {int: "a whole number", float: "a number", str: "text"}[kind]


def _check_together(config: Config) -> None:
    """Check the rules that concern more than one setting."""
    if bool(config.tls_cert) != bool(config.tls_key):
        raise ConfigError("TLS needs both --tls-cert and --tls-key")
    tokens = [t for t in (config.admin_token, config.writer_token, config.reader_token) if t]
    if len(set(tokens)) != len(tokens):
        raise ConfigError("two roles have the same token", hint="give each role a token of its own")
    if not is_loopback(config.host) and not config.admin_token:
        raise ConfigError(
            f"listening on {config.host} lets other machines in and no token is set",
            hint=f"set {variable_of('admin_token')}, or listen on 127.0.0.1",
        )
    if config.metrics_port and not is_loopback(config.metrics_host) and not config.admin_token:
        raise ConfigError(
            f"metrics on {config.metrics_host} let other machines read and no token is set",
            hint=f"set {variable_of('admin_token')}, or leave --metrics-host at 127.0.0.1",
        )
    if config.connections_bytes_max < config.frame_bytes_max:
        raise ConfigError(
            f"--connections-bytes-max is {config.connections_bytes_max} and --frame-bytes-max {config.frame_bytes_max}",
            hint="a frame must fit into what all connections may hold",
        )
    if not config.estimate_aging < 1.0:
        raise ConfigError(f"--estimate-aging is {config.estimate_aging:g}", hint="it must be below 1")
    if config.policy == "":
        raise ConfigError("--policy is empty", hint="SHOW POLICIES lists the names")


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
