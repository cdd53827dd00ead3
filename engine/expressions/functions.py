"""The registry of operators and scalar functions: a name and argument types to a Signature.

The binder normally uses `build.call`, which also turns constants into options, casts the arguments and makes the `Call`.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from millstream.engine.data.errors import UnknownName
from millstream.engine.data.types import DataType
from millstream.engine.expressions.date_rules import DATE_RULES
from millstream.engine.expressions.lists import LIST_RULES
from millstream.engine.expressions.operator_rules import OPERATOR_RULES
from millstream.engine.expressions.scalar_rules import SCALAR_RULES
from millstream.engine.expressions.signature import Rule, Signature
from millstream.engine.expressions.text_rules import TEXT_RULES

RULES: dict[str, Rule] = {**OPERATOR_RULES, **SCALAR_RULES, **TEXT_RULES, **DATE_RULES, **LIST_RULES}

ALIASES: dict[str, str] = {
    "array_length": "cardinality", "list_contains": "array_contains",
    "!=": "<>", "==": "=", "add": "+", "subtract": "-", "multiply": "*", "divide": "/",
    "char_length": "length", "character_length": "length", "len": "length", "ceiling": "ceil", "pow": "power", "substr": "substring",
    "upper_case": "upper", "ucase": "upper", "lcase": "lower", "btrim": "trim", "instr": "strpos", "truncate": "trunc",
    "startswith": "starts_with", "endswith": "ends_with", "prefix": "starts_with", "suffix": "ends_with",
    "ifnull": "coalesce", "nvl": "coalesce", "iif": "if", "is_nan": "isnan", "is_inf": "isinf", "is_finite": "isfinite",
    "regexp_matches": "regexp_like", "rlike": "regexp_like", "regexp": "regexp_like", "datepart": "extract", "datetrunc": "date_trunc",
    "from_unixtime": "to_timestamp", "log_10": "log10", "log_2": "log2", "sgn": "sign", "watermark": "current_watermark",
}  # fmt: skip

# What people try, and why it is not here.
REFUSED: dict[str, str] = {
    **dict.fromkeys(
        ("now", "current_timestamp", "localtimestamp", "current_date", "current_time", "getdate"),
        "answers must not depend on the clock; use CURRENT_WATERMARK(), or the event time of a stream TIMESTAMP BY ARRIVAL",
    ),
    **dict.fromkeys(("strftime", "date_format", "format_timestamp"), "use TO_CHAR(ts, 'YYYY-MM-DD HH24:MI:SS')"),
    **dict.fromkeys(("format", "printf"), "join texts with ||"),
    **dict.fromkeys(("date_add", "dateadd", "timestampadd", "date_sub"), "write ts + INTERVAL '1 hour'"),
    **dict.fromkeys(("datediff", "date_diff", "timestampdiff", "age"), "subtract the instants; EXTRACT(EPOCH FROM …) gives seconds"),
    **dict.fromkeys(("count_if", "countif"), "write COUNT(*) FILTER (WHERE …)"),
    **dict.fromkeys(("bool_and", "every"), "write MIN(condition)"),
    "bool_or": "write MAX(condition)",
    **dict.fromkeys(("random", "rand", "uuid", "gen_random_uuid"), "answers must be the same on every run"),
}


def is_function(name: str) -> bool:
    """Tell whether a scalar function or operator of that name (any case) exists."""
    lowered = name.lower()
    return ALIASES.get(lowered, lowered) in RULES


def function_names() -> tuple[str, ...]:
    """Return the names of all scalar functions, sorted, without operators and aliases (documentation, completion)."""
    return tuple(sorted(name for name in RULES if name[0].isalpha() and name not in OPERATOR_RULES))


def resolve(name: str, argument_types: Sequence[DataType], options: Sequence[Any] = ()) -> Signature:
    """Return the signature of a call; UnknownName when there is no such function, TypeProblem when the arguments do not fit.

    `options` are constants that belong to the function: the field of EXTRACT and DATE_TRUNC (and a zone after it), the escape
    character of LIKE, the constant digits of ROUND. `build.call` finds them among literal arguments.
    """
    lowered = name.lower()
    lowered = ALIASES.get(lowered, lowered)
    rule = RULES.get(lowered)
    if rule is None:
        raise UnknownName(f"there is no function {name.upper()}", hint=_suggestion(lowered))
    return rule(lowered, tuple(argument_types), tuple(options))


def _suggestion(name: str) -> str | None:
    if name in REFUSED:
        return REFUSED[name]
    known = [n for n in (*RULES, *ALIASES) if n[0].isalpha()]
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0].upper()}?" if close else None
