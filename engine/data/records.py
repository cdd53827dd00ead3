"""Records: classes of named values that cost next to nothing until the first of them is made.

The standard library writes and compiles six methods for each frozen data class while its module is imported, most of a millisecond a
class, and a small script uses a fifth of our four hundred. `dataclass` here takes the same arguments as the standard one and gives the
class its slots at once; what depends on the fields is compiled, in one piece, when somebody first makes an instance or asks for them.
The fields themselves are described by the standard library, so that its functions know them.

Start reading at `dataclass`. It knows nothing of what the records are about.
"""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")

_DESCRIPTIONS = ("__dataclass_fields__", "__dataclass_params__", "__match_args__")
_OF_INSTANCES = ("__dict__", "__weakref__")  # of the class as it stood in the source, which has no slots
_NOT_FIELDS = ("ClassVar", "typing.ClassVar")
_MADE = object()  # stands for a value that a factory is to make


@dataclass_transform(field_specifiers=(dataclasses.field,))
def dataclass(*, frozen: bool = False, slots: bool = True, eq: bool = True, kw_only: bool = False) -> Callable[[type[T]], type[T]]:
    """Return the decorator that makes a class a record with slots, as `dataclasses.dataclass(frozen=…, slots=True, eq=…, kw_only=…)` would.

    `fields`, `replace`, `asdict`, matching, comparing, copying and pickling work as with any data class. InitVar and KW_ONLY do not.
    Raises TypeError for a class without slots or with an `__init__` of its own.
    """

    def make(template: type[T]) -> type[T]:
        if not slots or "__init__" in template.__dict__:
            raise TypeError(f"{template.__name__} needs the data class of the standard library: a record has slots and a written __init__")
        return _Unwritten(template, frozen, eq, kw_only).record

    return make


def members_of(kind: type[Any]) -> tuple[str, ...]:
    """Return the names of a record's fields, in order; each kind of record is looked through once."""
    found = _MEMBERS.get(kind)
    if found is None:
        found = _MEMBERS[kind] = tuple(field.name for field in dataclasses.fields(kind))
    return found


_MEMBERS: dict[type[Any], tuple[str, ...]] = {}


class _Unwritten:
    """A record whose methods are not written yet: the class as it stood in the source, and the one that users hold."""

    def __init__(self, template: type[Any], frozen: bool, eq: bool, kw_only: bool) -> None:
        self.body = {name: value for name, value in template.__dict__.items() if name not in _OF_INSTANCES}
        self.frozen = frozen
        self.kw_only = kw_only
        self.compares = eq and "__eq__" not in self.body
        self.hashes = eq and frozen and self.body.get("__hash__") is None
        self.record: type[Any] = self._with_slots(template, eq)

    def _with_slots(self, template: type[Any], eq: bool) -> type[Any]:
        """Return the class with slots in place of its fields' defaults, and with stand-ins for what is written later."""
        body = dict(self.body)
        names = [name for name, kind in body.get("__annotations__", {}).items() if not str(kind).startswith(_NOT_FIELDS)]
        inherited = {name for base in template.__mro__[1:-1] for name in getattr(base, "__slots__", ())}
        for name in names:
            body.pop(name, None)
        body["__slots__"] = tuple(name for name in names if name not in inherited)
        body["__init__"] = self._stand_in()
        body.update((name, _Description(self, name)) for name in _DESCRIPTIONS)
        body.setdefault("__repr__", _shown)
        if eq:
            body.setdefault("__hash__", None)
        if self.frozen:
            body.update(__setattr__=_refuse_set, __delattr__=_refuse_delete)
            body.setdefault("__getstate__", _values)
            body.setdefault("__setstate__", _set_values)
        return _again(template, body)

    def _stand_in(self) -> Callable[..., None]:
        def __init__(instance: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807, the name that a TypeError shows
            self.write()
            self.record.__init__(instance, *args, **kwargs)

        return __init__

    def write(self) -> None:
        """Describe the fields, compile the methods, and give both to the record.

        Threads that come at the same time each write their own: the same ones, so that the last to be put in place changes nothing.
        """
        record = self.record
        template = _again(record, {**self.body, "__doc__": record.__name__})  # without a text the library would take pains to write one
        dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=self.kw_only)(template)
        methods = self._compiled(list(dataclasses.fields(template)))
        initialiser = methods.pop("__init__")
        for name in _DESCRIPTIONS:
            setattr(record, name, getattr(template, name))
        for name, method in methods.items():
            setattr(record, name, method)
        record.__init__ = initialiser  # last: whoever finds it may use all the others

    def _compiled(self, fields: list[Field[Any]]) -> dict[str, Any]:
        """Return the methods that depend on the fields."""
        known: dict[str, Any] = {"MADE": _MADE, "__name__": self.record.__module__}
        for field in fields:
            known[f"set_{field.name}"] = getattr(self.record, field.name).__set__
            known[f"default_{field.name}"] = field.default
            known[f"make_{field.name}"] = field.default_factory
        source = _initialiser(fields, self.frozen, hasattr(self.record, "__post_init__"))
        if self.compares:
            source += _comparison([field for field in fields if field.compare])
        if self.hashes:
            source += _hash([field for field in fields if (field.compare if field.hash is None else field.hash)])
        methods: dict[str, Any] = {}
        exec(source, known, methods)
        for name, method in methods.items():
            method.__qualname__ = f"{self.record.__qualname__}.{name}"
        return methods


class _Description:
    """Stands where the fields' description will be, and has it written when somebody reads it."""

    def __init__(self, unwritten: _Unwritten, name: str) -> None:
        self.unwritten = unwritten
        self.name = name

    def __get__(self, instance: Any, owner: type[Any]) -> Any:
        self.unwritten.write()
        return getattr(self.unwritten.record, self.name)


def _again(template: type[Any], body: dict[str, Any]) -> type[Any]:
    """Return another class of the same kind, name and bases."""
    kind: Any = type(template)
    made: type[Any] = kind(template.__name__, template.__bases__, body)
    made.__qualname__ = template.__qualname__
    return made


# --- what is compiled ---


def _initialiser(fields: list[Field[Any]], frozen: bool, checks: bool) -> str:
    taken = [field for field in fields if field.init]
    named = [_parameter(field) for field in taken if field.kw_only]
    parameters = ["self", *(_parameter(field) for field in taken if not field.kw_only), *(["*", *named] if named else [])]
    lines = [_assignment(field, frozen) for field in fields if field.init or _has_default(field)]
    lines += ["self.__post_init__()"] if checks else []
    return f"def __init__({', '.join(parameters)}):\n" + "".join(f" {line}\n" for line in lines or ["pass"])


def _has_default(field: Field[Any]) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING


def _parameter(field: Field[Any]) -> str:
    if field.default is not MISSING:
        return f"{field.name}=default_{field.name}"
    return field.name if field.default_factory is MISSING else f"{field.name}=MADE"


def _assignment(field: Field[Any], frozen: bool) -> str:
    name = field.name
    value = name if field.init else f"default_{name}"
    if field.default_factory is not MISSING:
        value = f"make_{name}() if {name} is MADE else {name}" if field.init else f"make_{name}()"
    # The slot's own setter: a frozen record refuses any other way, and it is the fastest.
    return f"set_{name}(self, {value})" if frozen else f"self.{name} = {value}"


def _comparison(fields: list[Field[Any]]) -> str:
    own, others = _tuple_of("self", fields), _tuple_of("other", fields)
    return f"def __eq__(self, other):\n return {own} == {others} if other.__class__ is self.__class__ else NotImplemented\n"


def _hash(fields: list[Field[Any]]) -> str:
    return f"def __hash__(self):\n return hash({_tuple_of('self', fields)})\n"


def _tuple_of(owner: str, fields: list[Field[Any]]) -> str:
    return "(" + "".join(f"{owner}.{field.name}, " for field in fields) + ")"


# --- what is the same for all ---


@reprlib.recursive_repr()
def _shown(record: Any) -> str:
    values = (f"{field.name}={getattr(record, field.name)!r}" for field in dataclasses.fields(record) if field.repr)
    return f"{type(record).__qualname__}({', '.join(values)})"


def _refuse_set(record: Any, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(record: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _values(record: Any) -> list[Any]:
    """Return the values of a frozen record, as the standard library's data classes with slots keep them when pickled."""
    return [getattr(record, field.name) for field in dataclasses.fields(record)]


def _set_values(record: Any, values: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(record), values, strict=False):
        object.__setattr__(record, field.name, value)
