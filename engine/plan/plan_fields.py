"""Reading plan objects: fields by name with their types, and refusals that name the path (`root.inputs[1].condition`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from millstream.engine.data.errors import EngineError, InvalidDefinition
from millstream.engine.data.records import dataclass
from millstream.engine.language.dialect import did_you_mean


@dataclass(frozen=True, slots=True)
class Fields:
    """One object of a plan and the path to it."""

    values: Mapping[str, Any]
    path: str

    @classmethod
    def of(cls, value: Any, path: str) -> Fields:
        """Return the fields of `value`, which must be an object with text keys."""
        if not isinstance(value, Mapping) or not all(isinstance(k, str) for k in value):
            raise InvalidDefinition(f"{path} must be an object, not {_shown(value)}")
        return cls(value, path)

    def at(self, name: str) -> str:
        """Return the path of a field."""
        return f"{self.path}.{name}" if self.path else name

    def only(self, known: Sequence[str]) -> None:
        """Refuse fields that are not among `known`."""
        for name in self.values:
            if name not in known:
                hint = did_you_mean(name, known) or f"the fields are {', '.join(known)}"
                raise InvalidDefinition(f"{self.at(name)} is not a field of a plan", hint=hint)

    def has(self, name: str) -> bool:
        """The field is there and not null."""
        return self.values.get(name) is not None

    def required(self, name: str) -> Any:
        """Return a field that must be there."""
        if not self.has(name):
            raise InvalidDefinition(f"{self.at(name)} is missing")
        return self.values[name]

    def text(self, name: str) -> str:
        """Return a text that must be there."""
        return as_text(self.required(name), self.at(name))

    def optional_text(self, name: str) -> str | None:
        """Return a text or None."""
        return self.text(name) if self.has(name) else None

    def items(self, name: str) -> list[tuple[Any, str]]:
        """Return the items of a list with the path of each; an absent list is empty."""
        value = self.values.get(name)
        if value is None:
            return []
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise InvalidDefinition(f"{self.at(name)} must be a list, not {_shown(value)}")
        return [(item, f"{self.at(name)}[{i}]") for i, item in enumerate(value)]

    def number(self, name: str, *, least: float = 0.0, above: bool = False) -> float | None:
        """Return a number of at least (or above) `least`, or None."""
        value = self.values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or value < least or (above and value == least):
            bound = "above" if above else "of at least"
            raise InvalidDefinition(f"{self.at(name)} must be a number {bound} {least:g}, not {_shown(value)}")
        return float(value)

    def integer(self, name: str) -> int:
        """Return a whole number of at least 1 that must be there."""
        value = self.required(name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InvalidDefinition(f"{self.at(name)} must be a whole number of at least 1, not {_shown(value)}")
        return value

    def truth(self, name: str, default: bool) -> bool:
        """Return a boolean."""
        value = self.values.get(name, default)
        if not isinstance(value, bool):
            raise InvalidDefinition(f"{self.at(name)} must be true or false, not {_shown(value)}")
        return value


def as_text(value: Any, path: str) -> str:
    """Return the text that `value` must be."""
    if not isinstance(value, str):
        raise InvalidDefinition(f"{path} must be a text, not {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def at_path(problem: EngineError, path: str) -> EngineError:
    """Return the error of an expression in a plan object, its path put first; line and column count within that text."""
    if not problem.message.startswith("root"):
        problem.message = f"{path}: {problem.message}"
    return problem
