"""The server's settings: one definition each, read once at start.

A value comes from the command line's flag, else the environment (`MILLSTREAM_…`), else `millstream.toml`, else the default given
here. Names of flags, variables and keys all follow from the field's name, so that there is nothing to keep in step. Units stand
last in the names. docs/configuration.md and deploy/millstream.toml list every setting; tests compare them with this file.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import tomllib
from collections.abc import Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import Any, get_type_hints

from millstream.engine.data.records import dataclass
from millstream.scheduler.load.names import DEFAULT as LOADS_DEFAULT
from millstream.scheduler.load.names import NAMES as LOADS
from millstream.scheduler.sharing.names import DEFAULT, NAMES
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
) -> Any:
    """Define a setting: its default, its section of millstream.toml, what it does and why the default is what it is."""
    metadata = {"section": section, "explanation": explanation, "least": least, "most": most, "choices": choices}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All settings of `millstream serve`."""

    host: str = setting("127.0.0.1", "server", "Address to listen on. Loopback unless you say otherwise; beyond it a token is required.")
    port: int = setting(
        7415, "server", "TCP port to listen on; 0 lets the system choose one, which is then logged.", least=0, most=PORT_MAX
    )
    data_dir: str = setting("", "server", "Directory of the catalogue and journals. Empty: nothing is kept over a restart.")
    workers: int = setting(1, "server", "Worker threads that run operators, beside the scheduler's own.", least=0)
    policy: str = setting(
        "auto",
        "server",
        "Scheduling policy at start: `auto` is fcfs, and cqc with a load manager; SHOW POLICIES lists the names, SET POLICY changes it.",
    )
    load: str = setting(
        LOADS_DEFAULT,
        "server",
        "Who sheds when more comes than can be worked off: `none`, `common` (one for all), `class` (one per class) or `dilos` "
        "(docs/overload.md).",
        choices=LOADS,
    )
    policy_dir: str = setting("", "server", "Directory of policy files of one's own; SET POLICY takes such files from there alone.")
    estimate_rows: int = setting(100, "server", "Rows an operator takes between two moves of its estimated cost and selectivity.", least=1)
    estimate_aging: float = setting(
        0.175, "server", "How far an estimate then moves towards what was measured: above 0, below 1.", least=0.001
    )
    rewrite: bool = setting(True, "server", "Rewrite query plans (push conditions down, share equal parts) before they run.")
    optimise: bool = setting(False, "server", "Correct what misses its QoS target while it runs (docs/optimiser.md).")
    optimise_settle_s: float = setting(
        5.0, "server", "How long the optimiser waits after a change before it measures the effect and may change again.", least=0.1
    )
    admission: str = setting(
        "warn",
        "server",
        "What becomes of a query that would push a class below its target: let in unasked (`off`), with a warning (`warn`), or refused "
        "(`refuse`).",
        choices=("off", "warn", "refuse"),
    )
    sharing: str = setting(
        DEFAULT,
        "server",
        "How queries share work: `off`, or who decides the periods under SLIDE WITHIN (docs/sharing.md).",
        choices=NAMES,
    )
    shed_seed: int = setting(
        0, "server", "Decides, with its arrival number, which rows fall when load is shed; the same at every start.", least=0
    )
    metrics_port: int = setting(0, "server", "Port for /metrics, /healthz and /readyz over HTTP; 0: none.", least=0, most=PORT_MAX)
    drain_s: float = setting(10.0, "server", "On SIGTERM, how long queued rows may take to be answered before the server leaves.", least=0)

    admin_token: str = setting("", "security", "Who sends it may do everything.")
    writer_token: str = setting("", "security", "Who sends it may publish, and read as a reader may.")
    reader_token: str = setting("", "security", "Who sends it may list, explain, start temporary queries and subscribe.")
    files_dir: str = setting(
        "",
        "security",
        "Directory that CREATE TABLE … FROM and CREATE FUNCTION … FROM take files from; empty: wherever the server may read.",
    )
    functions_confined: bool = setting(
        True,
        "security",
        "Keep users' functions from network, other processes and all files but Python's and those beside their own; false: only their "
        "memory and time are bounded (docs/operations.md).",
    )
    tls_cert: str = setting("", "security", "File of the server's certificate chain (PEM); with it only TLS is spoken.")
    tls_key: str = setting("", "security", "File of the certificate's private key (PEM).")

    fetch_workers: int = setting(2, "limits", "FETCHes answered at once, each in a process of its own; more wait.", least=1)
    fetch_waiting_max: int = setting(64, "limits", "FETCHes that may wait for one of these; peers take turns.", least=0)
    fetch_memory_bytes_max: int = setting(2**30, "limits", "Memory of one FETCH, its rows and its answer among it.", least=64 * 2**20)
    fetch_cpu_s_max: float = setting(60.0, "limits", "Processor time of one FETCH.", least=1)
    fetch_idle_s: float = setting(60.0, "limits", "How long the process of a FETCH waits for the next before it ends.", least=0)
    file_bytes_max: int = setting(2**30, "limits", "Largest file, unpacked, that CREATE TABLE … FROM reads.", least=65_536)
    function_memory_bytes_max: int = setting(
        2**30, "limits", "Memory of one user's function; Python and Arrow take 150 MB of it.", least=256 * 2**20
    )
    connections_max: int = setting(
        1024, "limits", "Connections at once; one more is told so and closed. Readers have fifteen sixteenths of them.", least=1
    )
    connection_queries_max: int = setting(256, "limits", "Unnamed queries of one connection at once.", least=1)
    frame_bytes_max: int = setting(
        64 * 2**20, "limits", "Largest frame after hello; one that says more is refused unread.", least=65_536, most=2**32 - 1
    )
    reader_frame_bytes_max: int = setting(2**20, "limits", "Largest frame of a reader, who sends no rows.", least=65_536, most=2**32 - 1)
    connections_bytes_max: int = setting(
        256 * 2**20,
        "limits",
        "Memory for what all peers have sent in part, have asked and not read; beyond it, who holds more than an even share is closed, the "
        "longest first.",
        least=65_536,
    )
    messages_per_s_max: int = setting(
        20_000,
        "limits",
        "Messages without rows (pings, statements, credits) that are handled each second beyond the few that each peer has of its own; "
        "peers that send more wait.",
        least=100,
    )
    frame_s: float = setting(
        10.0, "limits", "How long hello, or the rest of a frame that has begun, may take before the peer is dropped.", least=0.1
    )
    ping_s: float = setting(
        30.0, "limits", "Silence after which a peer is asked whether it is there; as much again and it is dropped.", least=0.1
    )
    publish_rows_max: int = setting(262_144, "limits", "Rows a publisher may have under way; its credit.", least=1)
    publish_bytes_max: int = setting(64 * 2**20, "limits", "Bytes a publisher may have under way; its credit.", least=65_536)
    subscriber_bytes_max: int = setting(16 * 2**20, "limits", "Results held for one subscriber that reads too slowly.", least=65_536)
    slow_subscriber: str = setting(
        "disconnect",
        "limits",
        "What then happens to it: `disconnect` (it may resume with its token) or `gap` (oldest results are lost, their number is told).",
        choices=("disconnect", "gap"),
    )
    results_kept_bytes_max: int = setting(64 * 2**20, "limits", "Results kept for each query so that a subscriber can resume.", least=0)
    results_kept_total_bytes_max: int = setting(
        512 * 2**20, "limits", "Results kept for all queries together; with many queries each keeps less.", least=0
    )
    results_kept_s: float = setting(3600.0, "limits", "How long they are kept at most.", least=0)

    server_memory_bytes_max: int = setting(
        0,
        "limits",
        "Bytes that queues, states, results and steps of all queries may hold together; 0: half of the memory that the machine, or the "
        "server's control group, has.",
        least=0,
    )
    query_memory_bytes_max: int = setting(
        0, "limits", "The same for a query whose WITH says no memory_bytes_max; 0: half of server_memory_bytes_max.", least=0
    )
    step_s_max: float = setting(
        2.0, "limits", "Processor time that one step of a query may take where it cannot be cut; then the query ends.", least=0.01
    )

    journal_bytes_max: int = setting(
        2**30, "journal", "Bytes the journal keeps, of all durable streams together; the oldest rows go first.", least=2**20
    )
    journal_kept_s: float = setting(86_400.0, "journal", "How long it keeps rows at most.", least=1)
    journal_fsync_s: float = setting(
        0.1, "journal", "DURABILITY journal: within which time a written row is forced to disk; sync does not wait.", least=0.001
    )

    log_level: str = setting("info", "logging", "Least level that is written.", choices=("debug", "info", "warning", "error"))
    log_format: str = setting(
        "auto", "logging", "`human`, `json`, or `auto`: human on a terminal, else JSON.", choices=("auto", "human", "json")
    )


def policy_at_start(config: Config) -> str:
    """Return the policy that the settings mean."""
    if config.policy != "auto":
        return config.policy
    return "fcfs" if config.load == "none" else "cqc"


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
    """Put the settings together; `flags` holds only those that were given. Raises ConfigError naming the place."""
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
    value = _converted(kind, raw, place)
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
    """Say whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
