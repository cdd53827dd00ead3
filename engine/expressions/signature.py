"""What a resolved function call looks like, and how rules refuse arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from millstream.engine.data.errors import TypeProblem
from millstream.engine.data.records import dataclass
from millstream.engine.data.types import NULL, DataType
from millstream.engine.expressions.coercion import common_type_of_all


@dataclass(frozen=True, slots=True)
class Signature:
    """A call whose types fit: the canonical name, the types to cast the arguments to, the type of the result, checked options."""

    name: str
    arguments: tuple[DataType, ...]
    result: DataType
    options: tuple[Any, ...] = ()


Types = tuple[DataType, ...]
Options = tuple[Any, ...]
Rule = Callable[[str, Types, Options], Signature]


def refuse(name: str, types: Sequence[DataType], hint: str | None = None) -> NoReturn:
    """Raise the TypeProblem for a call whose argument types do not fit, naming function, place and type."""
    shown = ", ".join(str(t) for t in types)
    if len(types) == 2 and not name[:1].isalpha():
        raise TypeProblem(f"{types[0]} {name} {types[1]} is not defined", hint=hint)
    raise TypeProblem(f"{name.upper()}({shown}) is not defined", hint=hint)


def refuse_argument(name: str, position: int, type_: DataType, wanted: str, hint: str | None = None) -> NoReturn:
    """Raise the TypeProblem for one argument (0-based position) of the wrong type."""
    raise TypeProblem(f"argument {position + 1} of {name.upper()} is {type_}, it must be {wanted}", hint=hint)


def expect_count(name: str, types: Sequence[DataType], least: int, most: int | None = None) -> None:
    """Refuse a call with fewer than `least` or more than `most` arguments (None: no bound)."""
    if len(types) < least or (most is not None and len(types) > most):
        wanted = str(least) if most == least else f"at least {least}" if most is None else f"{least} to {most}"
        raise TypeProblem(f"{name.upper()} takes {wanted} argument{'' if wanted == '1' else 's'}, not {len(types)}")


def all_in_common(name: str, types: Sequence[DataType]) -> DataType:
    """Return the type in which all arguments meet, or refuse the call."""
    common = common_type_of_all(types)
    if common is None:
        refuse(name, types, "cast one side, as in CAST(x AS TEXT)")
    return common


def of_kind(name: str, position: int, type_: DataType, wanted: DataType) -> DataType:
    """Return `wanted` when the argument has that type or is a bare NULL, else refuse it."""
    if type_ not in (wanted, NULL):
        refuse_argument(name, position, type_, str(wanted), f"cast it, as in CAST(x AS {wanted})")
    return wanted
