"""The name of a scheduling policy with its options, as text and as data."""

from __future__ import annotations

from millstream.engine.data.records import dataclass
from millstream.scheduler.errors import PolicyError

OptionValue = str | int | float | bool


def read_value(text: str) -> OptionValue:
    """Return an option's value: true/false, an integer, a float, else the text itself."""
    lowered = text.strip().lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    for kind in (int, float):
        try:
            return kind(lowered)
        except ValueError:
            continue
    return text.strip()


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """A policy by name (a row of `catalog`) and its options in the order given.

    As text: `hnr`, `hnr:level=operator,train=100`, `user:file=mine.py`.
    """

    name: str = "round-robin"
    options: tuple[tuple[str, OptionValue], ...] = ()

    @classmethod
    def parse(cls, text: str) -> PolicySpec:
        """Read `name[:key=value[,key=value]…]`; raises `PolicyError` naming the part that is wrong."""
        name, _, rest = text.strip().partition(":")
        if not name:
            raise PolicyError(f"no policy name in '{text}'")
        options: list[tuple[str, OptionValue]] = []
        for part in filter(None, (piece.strip() for piece in rest.split(","))):
            key, equals, value = part.partition("=")
            if not equals or not key.strip():
                hint = f"a file of your own is user:file={part}" if part.endswith(".py") else None
                raise PolicyError(f"policy option '{part}' is not of the form key=value", hint=hint)
            options.append((key.strip().replace("-", "_"), read_value(value)))
        return cls(name.strip(), tuple(options))

    def get(self, key: str, default: OptionValue) -> OptionValue:
        """Return the last value given for `key`, or the default."""
        found = default
        for name, value in self.options:
            if name == key:
                found = value
        return found

    def with_option(self, key: str, value: OptionValue) -> PolicySpec:
        """Return the same policy with one option set."""
        kept = tuple(pair for pair in self.options if pair[0] != key)
        return PolicySpec(self.name, (*kept, (key, value)))

    def __str__(self) -> str:
        """Return the text that `parse` reads back."""
        if not self.options:
            return self.name
        return self.name + ":" + ",".join(f"{key}={value}" for key, value in self.options)
