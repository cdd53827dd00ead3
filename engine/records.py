"""Records: classes of named values that cost next to nothing until the first of them is made.

The standard library writes and compiles six methods for each frozen data class while its module is imported: most of a millisecond a class,
and of our four hundred a small script makes a fifth. `dataclass` here takes the same arguments as the standard one, gives the class
its slots at once, and has the standard one write the methods when somebody first makes an instance or asks for the fields.

Start reading at `dataclass`. It knows nothing of what the records are about.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")

_DESCRIPTIONS = ("__dataclass_fields__", "__dataclass_params__", "__match_args__")
_OF_INSTANCES = ("__dict__", "__weakref__")  # of the class as it stood in the source, which has no slots
_NOT_FIELDS = ("ClassVar", "typing.ClassVar")


@dataclass_transform(field_specifiers=(dataclasses.field,))
def dataclass(*, frozen: bool = False, slots: bool = True, eq: bool = True, kw_only: bool = False) -> Callable[[type[T]], type[T]]:
    """Make a class a record with slots, as `dataclasses.dataclass(frozen=…, slots=True, eq=…, kw_only=…)` would.

    `fields`, `replace`, `asdict`, matching, comparing, copying and pickling work as with any data class. InitVar and KW_ONLY do not.
    Raises TypeError for a class without slots or with an `__init__` of its own.
    """

    def make(template: type[T]) -> type[T]:
        if not slots or "__init__" in template.__dict__:
            raise TypeError(f"{template.__name__} needs the data class of the standard library: a record has slots and a written __init__")
        return _Unwritten(template, {"frozen": frozen, "eq": eq, "kw_only": kw_only}).record

    return make


class _Unwritten:
    """A record whose methods are not written yet: the class as it stood in the source, and the one that users hold."""

    def __init__(self, template: type[Any], options: dict[str, bool]) -> None:
        self.template: type[Any] = template
        self.options = options
        self.record: type[Any] = self._with_slots()

    def _with_slots(self) -> type[Any]:
        """Return the class with slots in place of its fields' defaults, and with stand-ins for what is written later."""
        template = self.template
        body = dict(template.__dict__)
        names = [name for name, kind in body.get("__annotations__", {}).items() if not str(kind).startswith(_NOT_FIELDS)]
        inherited = {name for base in template.__mro__[1:-1] for name in getattr(base, "__slots__", ())}
        for name in (*names, *_OF_INSTANCES):
            body.pop(name, None)
        body["__slots__"] = tuple(name for name in names if name not in inherited)
        body["__init__"] = self._stand_in()
        body.update((name, _Description(self, name)) for name in _DESCRIPTIONS)
        if self.options["frozen"]:
            body.setdefault("__getstate__", _values)
            body.setdefault("__setstate__", _set_values)
        return _again(template, body)

    def _stand_in(self) -> Callable[..., None]:
        def __init__(instance: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807, the name that a TypeError shows
            self.write()
            self.record.__init__(instance, *args, **kwargs)

        return __init__

    def write(self) -> None:
        """Have the standard library write the methods, and give them to the record.

        Threads that come at the same time each write their own: the same ones, so that the last to be put in place changes nothing.
        """
        body = {name: value for name, value in self.template.__dict__.items() if name not in _OF_INSTANCES}
        template = _again(self.template, body)
        before = dict(template.__dict__)
        dataclasses.dataclass(**self.options)(template)
        fields = template.__dataclass_fields__
        written = {name: value for name, value in template.__dict__.items() if name not in fields and before.get(name, self) is not value}
        initialiser = written.pop("__init__")
        for name in written:
            setattr(self.record, name, written[name])
        self.record.__init__ = initialiser  # last: whoever finds it may use all the others


def _again(template: type[Any], body: dict[str, Any]) -> type[Any]:
    """Return another class of the same kind, name and bases."""
    kind: Any = type(template)
    made: type[Any] = kind(template.__name__, template.__bases__, body)
    made.__qualname__ = template.__qualname__
    return made


class _Description:
    """Stands where the fields' description will be, and has it written when somebody reads it."""

    def __init__(self, unwritten: _Unwritten, name: str) -> None:
        self.unwritten = unwritten
        self.name = name

    def __get__(self, instance: Any, owner: type[Any]) -> Any:
        self.unwritten.write()
        return getattr(self.unwritten.record, self.name)


def _values(record: Any) -> list[Any]:
    """Return the values of a frozen record, as the standard library's data classes with slots keep them when pickled."""
    return [getattr(record, field.name) for field in dataclasses.fields(record)]


def _set_values(record: Any, values: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(record), values, strict=False):
        object.__setattr__(record, field.name, value)
