"""Types of the functions over TEXT. Positions and lengths count code points, the first is 1."""

from __future__ import annotations

from typing import Any

from millstream.engine.data.types import BIGINT, BOOLEAN, NULL, TEXT, DataType, Kind
from millstream.engine.expressions.signature import Rule, Signature, expect_count, of_kind, refuse_argument

Types = tuple[DataType, ...]
Options = tuple[Any, ...]


def texts(result: DataType, least: int, most: int | None = None, *, integers: frozenset[int] = frozenset()) -> Rule:
    """Return the rule of a function of `least` to `most` TEXT arguments, integers at the given positions."""

    def rule(name: str, types: Types, options: Options) -> Signature:
        expect_count(name, types, least, least if most is None else most)
        arguments = tuple(_whole(name, i, t) if i in integers else of_kind(name, i, t, TEXT) for i, t in enumerate(types))
        return Signature(name, arguments, result, options)

    return rule


def _whole(name: str, position: int, type_: DataType) -> DataType:
    if not (type_.is_integer or type_ == NULL):
        refuse_argument(name, position, type_, "a whole number")
    return BIGINT


def joined(name: str, types: Types, options: Options) -> Signature:
    """CONCAT(a, …) and CONCAT_WS(separator, a, …): arguments of any type are written as text, NULLs passed over."""
    expect_count(name, types, 1 if name == "concat" else 2)
    for i, type_ in enumerate(types):
        if type_.kind is Kind.LIST:
            refuse_argument(name, i, type_, "a plain value")
    if name == "concat_ws":
        of_kind(name, 0, types[0], TEXT)
    return Signature(name, tuple(TEXT for _ in types), TEXT)


def character(name: str, types: Types, options: Options) -> Signature:
    """CHR(code point)."""
    expect_count(name, types, 1, 1)
    return Signature(name, (_whole(name, 0, types[0]),), TEXT)


def split_part(name: str, types: Types, options: Options) -> Signature:
    """SPLIT_PART(text, delimiter, n)."""
    return texts(TEXT, 3, integers=frozenset((2,)))(name, types, options)


TEXT_RULES: dict[str, Rule] = {
    **dict.fromkeys(("upper", "lower", "initcap", "reverse"), texts(TEXT, 1)),
    **dict.fromkeys(("trim", "ltrim", "rtrim"), texts(TEXT, 1, 2)),
    "substring": texts(TEXT, 2, 3, integers=frozenset((1, 2))),
    "left": texts(TEXT, 2, integers=frozenset((1,))),
    "right": texts(TEXT, 2, integers=frozenset((1,))),
    "repeat": texts(TEXT, 2, integers=frozenset((1,))),
    "lpad": texts(TEXT, 2, 3, integers=frozenset((1,))),
    "rpad": texts(TEXT, 2, 3, integers=frozenset((1,))),
    "length": texts(BIGINT, 1),
    "octet_length": texts(BIGINT, 1),
    "ascii": texts(BIGINT, 1),
    "chr": character,
    "replace": texts(TEXT, 3),
    "translate": texts(TEXT, 3),
    "strpos": texts(BIGINT, 2),
    "position": texts(BIGINT, 2),
    "split_part": split_part,
    "starts_with": texts(BOOLEAN, 2),
    "ends_with": texts(BOOLEAN, 2),
    "contains": texts(BOOLEAN, 2),
    "regexp_like": texts(BOOLEAN, 2, 3),
    "regexp_replace": texts(TEXT, 3, 4),
    "concat": joined,
    "concat_ws": joined,
}
