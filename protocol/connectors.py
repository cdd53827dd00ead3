"""Which options the sources and sinks of Millstream have: what CREATE refuses at once, and `millstream connect` once more.

The server runs no connector and loads no library of one, so what it has to know of them is here, as data. A connector of a user's own is
not here: its options are told once it has been opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

TEXTS = ("json", "csv", "text")
WITH_SCHEMA = ("avro", "protobuf")  # a message is bytes of any kind
FORMATS = (*TEXTS, *WITH_SCHEMA)
WRITTEN = ("json", *WITH_SCHEMA)
LINES_ONLY = ("json",)
UNITS = ("s", "ms", "us", "ns")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")  # of Kafka's passwords
MODES = ("events", "poll")  # of an HTTP source
VERSIONS = ("5", "3.1.1")  # of MQTT
Options = Mapping[str, "Option"]


@dataclass(frozen=True, slots=True)
class Option:
    """One option: text, or a `number` from `least` on, a `flag`, one of `choices`, or a URL of one of `schemes`, as in `example`.

    With `formats` it belongs to these formats of messages alone, and is needed by them alone.
    """

    is_needed: bool = False
    kind: str = "text"
    least: float = 0
    choices: tuple[str, ...] = ()
    schemes: tuple[str, ...] = ()
    example: str = "…"
    formats: tuple[str, ...] = FORMATS

    def wrong(self, value: Any) -> str | None:
        """Return what a value has to be, None where it is that."""
        if self.kind == "number":
            return None if _is_number(value, self.least) else f"a number of at least {self.least:g}"
        if self.kind == "flag":
            return None if str(value).lower() in ("true", "false") else "true or false"
        if isinstance(value, bool):
            return f"text, as in '{self.example}'"
        if self.choices:
            return None if str(value) in self.choices else f"one of {', '.join(self.choices)}"
        if self.schemes:
            return None if _is_url(str(value), self.schemes) else self.example
        return None


def _is_number(value: Any, least: float) -> bool:
    try:
        return not isinstance(value, bool) and float(value) >= least
    except ValueError:
        return False


def _is_url(text: str, schemes: tuple[str, ...]) -> bool:
    try:
        found = urlsplit(text)
    except ValueError:
        return False  # brackets that do not close: no URL either
    return found.scheme in schemes and bool(found.hostname or found.scheme == "unix")


_TEXT, _NEEDED, _COUNT = Option(), Option(True), Option(kind="number")
_SECRETS: dict[str, Option] = {"user": _TEXT, "password": _TEXT}
_SCHEMA: dict[str, Option] = {
    "schema": Option(True, example="reading.avsc", formats=WITH_SCHEMA),
    "schema_id": Option(kind="number", least=-1, formats=WITH_SCHEMA),
    "message": Option(True, example="plant.Reading", formats=("protobuf",)),
}


def _url(*schemes: str, example: str) -> dict[str, Option]:
    return {"url": Option(True, schemes=schemes, example=example)}


def _read(options: Options, formats: tuple[str, ...] = FORMATS) -> Options:
    """Return the options of a source whose messages have a format."""
    return {
        **options,
        "format": Option(choices=formats),
        "columns": _TEXT,
        "header": Option(formats=("csv",)),
        "pattern": Option(True, example="(?P<v>[0-9]+)", formats=("text",)),
        **(_SCHEMA if "avro" in formats else {}),
        "time_unit": Option(choices=UNITS),
        "time_format": _TEXT,
    }


def _written(options: Options, formats: tuple[str, ...] = WRITTEN) -> Options:
    """Return the options of a sink whose messages have a format."""
    return {**options, "format": Option(choices=formats), **(_SCHEMA if "avro" in formats else {})}


_HTTP = {**_url("http", "https", example="http://… or https://…"), "token": _TEXT, "tls_ca": _TEXT}
_KAFKA = {
    **_url("kafka", "kafkas", example="kafka://host:port,host:port or kafkas://host:port"),
    "topic": _NEEDED,
    **_SECRETS,
    "mechanism": Option(choices=MECHANISMS),
    "tls_ca": _TEXT,
}
_MQTT = {
    **_url("mqtt", "mqtts", example="mqtt://host:port or mqtts://host:port"),
    "topic": _NEEDED,
    "version": Option(choices=VERSIONS),
    "client_id": _TEXT,
    **_SECRETS,
    "tls_ca": _TEXT,
}
_NATS = {**_url("nats", "tls", example="nats://host:port or tls://host:port"), "stream": _NEEDED, **_SECRETS, "token": _TEXT}
_POSTGRES = {"url": Option(True, example="postgresql://user@host/database"), "table": _NEEDED, "password": _TEXT}
_RABBIT = {**_url("amqp", "amqps", example="amqp://host:port/vhost or amqps://host:port/vhost"), **_SECRETS}
_REDIS = {
    **_url("redis", "rediss", "unix", example="redis://host:port/number"),
    "key": _NEEDED,
    "field": _TEXT,
    "password": _TEXT,
}

SOURCES: Mapping[str, Options] = {
    "files": _read({"path": _NEEDED, "glob": _TEXT}, TEXTS),
    "http": _read({**_HTTP, "mode": Option(choices=MODES), "poll": Option(kind="number", least=0.01)}),
    "kafka": _read(_KAFKA),
    "mqtt": _read(_MQTT),
    "nats": _read({**_NATS, "subject": _TEXT}),
    "postgres": _read({**_POSTGRES, "cursor": _NEEDED, "poll": Option(kind="number", least=0.01)}),
    "rabbitmq": _read({**_RABBIT, "queue": _NEEDED}),
    "redis": _read(_REDIS),
}
SINKS: Mapping[str, Options] = {
    "files": _written({"path": _NEEDED, "prefix": _TEXT, "roll_s": _COUNT, "roll_bytes": Option(kind="number", least=1)}, LINES_ONLY),
    "http": _written(_HTTP, LINES_ONLY),
    "kafka": _written({**_KAFKA, "key": _TEXT}),
    "mqtt": _written({**_MQTT, "retain": Option(kind="flag")}),
    "nats": _written({**_NATS, "subject": _NEEDED}),
    "postgres": {**_POSTGRES, "key": _TEXT},
    "rabbitmq": _written({**_RABBIT, "exchange": _TEXT, "routing_key": _NEEDED}),
    "redis": _written({**_REDIS, "length_max": _COUNT}),
}
OF_KIND: Mapping[str, Mapping[str, Options]] = {"source": SOURCES, "sink": SINKS}


class OptionProblem(ValueError):
    """What is wrong with the options of a source or sink. `unknown` is a name that there is not, among `known`; else it is empty."""

    def __init__(self, message: str, unknown: str = "", known: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.unknown = unknown
        self.known = known


def check_options(kind: str, given: Mapping[str, Any]) -> bool:
    """Check the options of a source or sink (`kind`), its `connector` among them; return False for a connector that is a user's own.

    A value that is not known here (a secret from the environment) is None. OptionProblem for an option that there is not, that is missing
    or that cannot be what it is.
    """
    connector = given.get("connector")
    declared = OF_KIND[kind].get(str(connector))
    if declared is None:
        return False
    what = f"{connector} {kind}s have"
    known = ("connector", *declared)
    for name in given:
        if name not in known:
            raise OptionProblem(f"there is no option {name}; {what} {', '.join(declared)}", name, tuple(declared))
    for name, value in given.items():
        wanted = declared[name].wrong(value) if name != "connector" and value is not None else None
        if wanted is not None:
            raise OptionProblem(f"{name} must be {wanted}, not {value!r:.40}")
    form = given.get("format", "json")
    for name, option in declared.items():
        is_of_form = form is None or form in option.formats
        if name in given and not is_of_form:
            raise OptionProblem(f"option {name} is for format = {' or '.join(map(repr, option.formats))}, and the format is {form}")
        if name not in given and option.is_needed and form is not None and is_of_form:
            of_form = f"format = '{form}' needs" if option.formats != FORMATS else f"option {name} is missing; add"
            raise OptionProblem(f"{of_form} {name} = '{option.example}'; {what} {', '.join(declared)}")
    return True


def named_columns(kind: str, given: Mapping[str, Any]) -> list[str]:
    """Return the columns of its stream or query that the options of a source or sink of Millstream's own name."""
    if kind == "source":
        return [name.strip() for name, equals, _ in (part.partition("=") for part in str(given.get("columns") or "").split(",")) if equals]
    key = str(given.get("key") or "")
    return {"postgres": [part.strip() for part in key.split(",") if part.strip()], "kafka": [key] if key else []}.get(
        given["connector"], []
    )
