"""Which classes a state may be made of. Each has a form: a name, a version and the fields that are written.

A form's name says what the record is and not where its class stands, so classes move freely. What is not registered here cannot be
written, and no bytes can make a reader create anything else or run any code.

How a form changes from release to release is the rule of CONTRIBUTING.md, "State and upgrades":

    a field is added      raise `version`, name the field in `added` with what makes its value for older states
    a field goes          raise `version`; older states' value is ignored
    a field's meaning     raise `version`, name in `migrations` the function that makes the fields of one version those of the next
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar

Buffer = bytes | bytearray | memoryview
T = TypeVar("T", bound=type[Any])
Values = dict[str, Any]
Migration = Callable[[Values], Values]
Default = Callable[[], Any]


class StateError(ValueError):
    """Bytes that are no state, or of a newer release; or something that no state can hold. The text says what."""


class Form:
    """How the instances of a class are written. `fields` None: those of the data class, found when they are first asked for.

    A class may give its fields' values with `to_state` and be made again with `from_state`; else attributes are read and set, and a data
    class is called with them. Of many instances `to_table` makes a few long columns, and `from_table` instances again.
    """

    __slots__ = ("_fields", "added", "from_table", "is_bare", "make", "migrations", "name", "to_table", "type", "values", "version")

    def __init__(
        self,
        name: str,
        version: int,
        type_: type[Any],
        fields: Sequence[str] | None,
        added: Mapping[str, Default],
        migrations: Mapping[int, Migration],
        *,
        is_bare: bool = False,
    ) -> None:
        self.name = name
        self.version = version
        self.type = type_
        self._fields = None if fields is None else tuple(fields)
        self.added = added
        self.migrations = migrations
        self.is_bare = is_bare  # read back as `Fields`, for who has an instance already
        self.values: Callable[[Any], Sequence[Any]] = getattr(type_, "to_state", self._attributes)
        self.make: Callable[[Values], Any] = getattr(
            type_, "from_state", self._called if "__dataclass_fields__" in type_.__dict__ else self._filled
        )
        self.to_table: Callable[[Sequence[Any]], Sequence[Any]] | None = getattr(type_, "to_table", None)
        self.from_table: Callable[[Values], list[Any]] | None = getattr(type_, "from_table", None)

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the fields, in the order in which they are written."""
        if self._fields is None:
            self._fields = tuple(field.name for field in dataclasses.fields(self.type) if field.init)
        return self._fields

    def _attributes(self, instance: Any) -> list[Any]:
        return [getattr(instance, name) for name in self.fields]

    def _called(self, values: Values) -> Any:
        return self.type(**values)

    def _filled(self, values: Values) -> Any:
        made = object.__new__(self.type)
        for name, value in values.items():
            setattr(made, name, value)
        return made

    def taken_over(self, version: int, values: Values) -> Values:
        """Return the fields of today's version from those of an older one. StateError when that cannot be."""
        if version == self.version and values.keys() == set(self.fields):
            return values
        for one in range(version, self.version):
            migrate = self.migrations.get(one)
            values = values if migrate is None else migrate(values)
        missing = [name for name in self.fields if name not in values]
        unknown = [name for name in missing if name not in self.added]
        if unknown or version == self.version:
            raise StateError(f"version {version} of {self.name} has other fields than this release knows: {', '.join(unknown or values)}")
        return {name: self.added[name]() if name in missing else values[name] for name in self.fields}


class Fields:
    """The fields of an instance that is not made anew: an operator's, which was built from its recipe."""

    __slots__ = ("name", "values")

    def __init__(self, name: str, values: Values) -> None:
        self.name = name
        self.values = values


_FORMS: dict[str, Form] = {}
_OF_TYPES: dict[type[Any], Form] = {}
_ENUMS: dict[str, type[Enum]] = {}
_ENUM_NAMES: dict[type[Enum], str] = {}
_CONSTANTS: dict[str, Any] = {}
_CONSTANT_NAMES: dict[int, str] = {}


def state_record(
    name: str,
    version: int,
    fields: Sequence[str] | None = None,
    *,
    added: Mapping[str, Default] | None = None,
    migrations: Mapping[int, Migration] | None = None,
) -> Callable[[T], T]:
    """Return the decorator that lets instances of a class be part of states. ValueError for a name that another class has."""

    def register(type_: T) -> T:
        register_form(Form(name, version, type_, fields, added or {}, migrations or {}))
        return type_

    return register


def register_form(form: Form) -> None:
    """Let instances of the form's class be part of states. ValueError for a name that another class has."""
    if form.name in _FORMS:
        raise ValueError(f"{form.name} is the state of {_FORMS[form.name].type.__name__} already")
    _FORMS[form.name] = _OF_TYPES[form.type] = form


def written_as(other: type[Any]) -> Callable[[T], T]:
    """Return the decorator for a class whose instances are written, and come back, as those of another."""

    def register(type_: T) -> T:
        _OF_TYPES[type_] = _OF_TYPES[other]
        return type_

    return register


def state_enum(name: str) -> Callable[[T], T]:
    """Return the decorator that lets members of an enumeration be part of states; they are written by their values, which are texts."""

    def register(type_: T) -> T:
        _ENUMS[name] = type_
        _ENUM_NAMES[type_] = name
        return type_

    return register


def state_constant(name: str, value: Any) -> None:
    """Let a function be part of states, by this name."""
    _CONSTANTS[name] = value
    _CONSTANT_NAMES[id(value)] = name


def form_of(type_: type[Any]) -> Form:
    """Return the form of a class. StateError when it has none."""
    try:
        return _OF_TYPES[type_]
    except KeyError:
        raise StateError(f"a {type_.__name__} can be no part of a state: it has no form") from None


def form_with_table(type_: type[Any]) -> Form | None:
    """Return the form of a class of whose instances many are written as one table; None for any other class."""
    form = _OF_TYPES.get(type_)
    return None if form is None or form.to_table is None else form


def form_named(name: str, version: int) -> Form:
    """Return the form of that name. StateError when there is none, or it was written by a newer release."""
    form = _FORMS.get(name)
    if form is None:
        raise StateError(f"this release does not know the state {name}")
    if not 1 <= version <= form.version:
        raise StateError(f"version {version} of the state {name} is newer than this release, which reads up to {form.version}")
    return form


def enum_name(type_: type[Any]) -> str | None:
    """Return the name of an enumeration, None when it has none."""
    return _ENUM_NAMES.get(type_)


def member(name: str, value: str) -> Any:
    """Return a member of an enumeration. StateError when there is none."""
    try:
        return _ENUMS[name](value)
    except (KeyError, ValueError):
        raise StateError(f"this release does not know {value} of {name}") from None


def constant_name(value: Any) -> str | None:
    """Return the name of a constant, None when it has none."""
    return _CONSTANT_NAMES.get(id(value))


def constant(name: str) -> Any:
    """Return a constant. StateError when there is none."""
    try:
        return _CONSTANTS[name]
    except KeyError:
        raise StateError(f"this release does not know {name}") from None


def known_forms() -> list[Form]:
    """Return the forms of all classes that have been loaded, by name."""
    return [_FORMS[name] for name in sorted(_FORMS)]
