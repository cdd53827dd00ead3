"""PostgreSQL's settings of a session: what SHOW answers, what SET may change, and what is told by itself."""

from __future__ import annotations

import re

from millstream.client.gateway.postgres import limits
from millstream.client.gateway.postgres.sqlstates import INVALID_PARAMETER, LIMIT, PgError

UNDEFINED_SETTING = "42704"
DEFAULT_VERSION = "15.0"  # where there is no private PostgreSQL whose version could be told
_REPORTED = {
    "server_version", "server_encoding", "client_encoding", "application_name", "is_superuser", "session_authorization", "datestyle",
    "intervalstyle", "timezone", "integer_datetimes", "standard_conforming_strings", "default_transaction_read_only", "in_hot_standby",
}  # fmt: skip
_SPELLED = {"datestyle": "DateStyle", "intervalstyle": "IntervalStyle", "timezone": "TimeZone"}
_DEFAULTS = {
    "server_encoding": "UTF8", "client_encoding": "UTF8", "application_name": "", "datestyle": "ISO, MDY", "intervalstyle": "postgres",
    "timezone": "UTC", "integer_datetimes": "on", "standard_conforming_strings": "on", "default_transaction_read_only": "off",
    "in_hot_standby": "off", "transaction_isolation": "read committed", "default_transaction_isolation": "read committed",
    "transaction_read_only": "off", "search_path": '"$user", public', "extra_float_digits": "1", "max_identifier_length": "63",
    "client_min_messages": "notice", "statement_timeout": "0", "lock_timeout": "0", "bytea_output": "hex", "row_security": "on",
    "idle_in_transaction_session_timeout": "0", "max_index_keys": "32", "lc_collate": "C", "lc_ctype": "C", "jit": "off",
}  # fmt: skip
_READ_ONLY = {"server_version", "server_version_num", "server_encoding", "integer_datetimes", "is_superuser", "in_hot_standby"}
# Values are written in one way whatever is asked for, so only asking for that way can be granted.
_FIXED = {
    "client_encoding": ({"utf8", "utf-8", "unicode", "sql_ascii"}, "UTF8"),
    "standard_conforming_strings": ({"on", "true", "1", "yes"}, "on"),
    "intervalstyle": ({"postgres"}, "postgres"),
}
_DURATION = re.compile(r"(\d{1,10})\s*(us|ms|s|min|h|d)?")
_UNIT_MS = {None: 1.0, "us": 0.001, "ms": 1.0, "s": 1_000.0, "min": 60_000.0, "h": 3_600_000.0, "d": 86_400_000.0}


class SessionSettings:
    """The settings of one session. Names are in lower case."""

    def __init__(self, version: str, user: str, *, is_admin: bool) -> None:
        number = [int(part) for part in re.findall(r"\d+", version)[:2]] or [15]
        self._initial = {
            **_DEFAULTS,
            "server_version": version,
            "server_version_num": str(number[0] * 10_000 + (number[1] if len(number) > 1 else 0)),
            "session_authorization": user,
            "is_superuser": "on" if is_admin else "off",
        }
        self._values = dict(self._initial)

    def reported(self) -> list[tuple[str, str]]:
        """Return what is told when the session begins, by the name that PostgreSQL writes."""
        return [(_SPELLED.get(name, name), self._values[name]) for name in sorted(_REPORTED)]

    def get(self, name: str) -> str:
        """Return a value. `PgError` when there is no such setting."""
        found = self._values.get(name)
        if found is None:
            hint = "SHOW STREAMS, TABLES and QUERIES list what Millstream has"
            raise PgError(UNDEFINED_SETTING, f'unrecognized configuration parameter "{name[:60]}"', hint)
        return found

    def set(self, name: str, value: str) -> tuple[str, str] | None:
        """Set a value, and return what is to be told of it, if anything. `PgError` for one that would not be kept to."""
        if name in _READ_ONLY:
            raise PgError("55P02", f'parameter "{name}" cannot be changed')
        if value.upper() == "DEFAULT":
            value = self._initial.get(name, "")
        if len(self._values) >= limits.SETTINGS_MAX + len(self._initial) and name not in self._values:
            raise PgError(LIMIT, f"a session sets at most {limits.SETTINGS_MAX} settings of its own")
        if name in _FIXED:
            granted, kept = _FIXED[name]
            if value.lower() not in granted:
                raise PgError(INVALID_PARAMETER, f'{name} "{value[:40]}" is not supported: it is {kept}')
            value = kept
        elif name == "datestyle":
            if "iso" not in value.lower():
                raise PgError(INVALID_PARAMETER, f'DateStyle "{value[:40]}" is not supported: dates are ISO')
            value = "ISO, MDY"
        elif name == "timezone":
            value = "UTC"  # every instant is written with its offset, so its meaning is the same
        elif name == "statement_timeout":
            self._ms(value)
        self._values[name] = value[:1_000]
        return (_SPELLED.get(name, name), value[:1_000]) if name in _REPORTED else None

    def reset(self, name: str) -> list[tuple[str, str]]:
        """Set a value, or `all`, to what it was at first; return what is to be told."""
        if name == "all":
            changed = [key for key, value in self._initial.items() if self._values.get(key) != value]
            self._values = dict(self._initial)
            return [(_SPELLED.get(key, key), self._values[key]) for key in changed if key in _REPORTED]
        told = self.set(name, "DEFAULT")
        return [] if told is None else [told]

    @property
    def timeout_s(self) -> float | None:
        """How long a statement may take; None for as long as it takes."""
        return self._ms(self._values["statement_timeout"]) / 1_000 or None

    def _ms(self, text: str) -> float:
        match = _DURATION.fullmatch(text.strip())
        if match is None:
            raise PgError(INVALID_PARAMETER, f'statement_timeout "{text[:40]}" is no time: write 5000, or 5s')
        return int(match[1]) * _UNIT_MS[match[2]]
