"""Steps into JSON: `->`, `->>`, `#>`, `#>>` as in PostgreSQL, JSON_VALUE and JSON_QUERY as in the SQL standard (K21).

Steps are constants, so `j -> 'a' ->> 'b'` is one call, and the text of each row is read once. A TEXT is taken for JSON as well; one that is
none is a row error. Whatever a path does not reach is NULL.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.data.column import Column
from millstream.engine.data.errors import TypeProblem
from millstream.engine.data.types import BIGINT, JSON, NULL, TEXT
from millstream.engine.expressions.ir import Call
from millstream.engine.expressions.kernel import Builder, Compiler, EvaluationContext, Kernel, KernelRows, fail_where
from millstream.engine.expressions.signature import Options, Rule, Signature, Types, expect_count, refuse_argument
from millstream.protocol.values.json_values import json_text, whole_text

Step = str | int
STEPS_MAX = 64
_PATH_STEP = re.compile(r"""\.\s*(?:([^\W\d][\w$]*)|"((?:[^"\\]|\\.)*)")|\[\s*(\d{1,9})\s*\]|\[\s*'((?:[^'])*)'\s*\]""")
_INDEX = re.compile(r"-?[0-9]{1,9}")
_MISSING = object()


def steps_of_path(path: str) -> tuple[Step, ...]:
    """Return the steps of `$.a."b c"[0]`; TypeProblem for other paths."""
    text = path.strip()
    text = text.removeprefix("lax").strip()
    if not text.startswith("$"):
        raise TypeProblem(f"a JSON path begins with $, unlike {path!r}", hint="write '$.name' or '$.list[0].name'")
    steps: list[Step] = []
    at = 1
    while at < len(text):
        match = _PATH_STEP.match(text, at)
        if match is None:
            hint = 'a path has steps .name, ."any name" and [n], n from 0'
            raise TypeProblem(f"the JSON path {path!r} cannot be read from {text[at : at + 20]!r} on", hint=hint)
        plain, quoted, index, bracketed = match.groups()
        try:
            name = plain if plain is not None else bracketed if quoted is None else whole_text(json.loads(f'"{quoted}"'))
        except ValueError as problem:
            raise TypeProblem(f'the JSON path {path!r} has a name that is no JSON string: "{quoted}"') from problem
        steps.append(int(index) if index is not None else name)
        at = match.end()
    return _bounded(steps)


def path_text(steps: tuple[Step, ...]) -> str:
    """Return a JSON path that `steps_of_path` reads."""
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{json.dumps(step)}" for step in steps)


def _bounded(steps: list[Step]) -> tuple[Step, ...]:
    if len(steps) > STEPS_MAX:
        raise TypeProblem(f"a JSON path has at most {STEPS_MAX} steps")
    return tuple(steps)


def steps_of_braces(text: str) -> tuple[Step, ...]:
    """Return the steps of PostgreSQL's `'{a, 0, b}'`; TypeProblem for other texts. A number leads into lists and objects alike."""
    stripped = text.strip()
    if not (stripped.startswith("{") and stripped.endswith("}")):
        raise TypeProblem(f"the path {text!r} is not of the form '{{a, b}}'", hint="write j #>> '{name, 0}'")
    inner = stripped[1:-1].strip()
    return _bounded([part.strip().strip('"') for part in inner.split(",")] if inner else [])


def _json_argument(name: str, types: Types) -> None:
    if types[0] not in (JSON, TEXT, NULL):
        hint = "write s.part" if types[0].fields else "write CAST(x AS JSON)"
        refuse_argument(name, 0, types[0], "JSON, or TEXT that holds it", hint)


def step_rule(name: str, types: Types, options: Options) -> Signature:
    """`->` and `->>` with a name or a place (from 0, or from the end when negative), `#>` and `#>>` with a path in braces."""
    _json_argument(name, types)
    return Signature("json_get", (JSON if types[0] == NULL else types[0],), TEXT if name.endswith(">>") else JSON, options)


def path_rule(name: str, types: Types, options: Options) -> Signature:
    """JSON_VALUE(j, path): a plain value as TEXT. JSON_QUERY(j, path): an object or list as JSON. Option: the path."""
    expect_count(name, types, 1, 1)
    if not options:
        raise TypeProblem(f"{name.upper()} takes 2 arguments, not 1", hint=f"write {name.upper()}(j, '$.name')")
    _json_argument(name, types)
    steps = steps_of_path(str(options[0]))
    return Signature(name, (JSON if types[0] == NULL else types[0],), TEXT if name == "json_value" else JSON, (steps,))


def size_rule(name: str, types: Types, options: Options) -> Signature:
    """JSON_ARRAY_LENGTH(j) and JSON_TYPEOF(j)."""
    expect_count(name, types, 1, 1)
    _json_argument(name, types)
    return Signature(name, (JSON if types[0] == NULL else types[0],), BIGINT if name == "json_array_length" else TEXT)


JSON_RULES: dict[str, Rule] = {
    **dict.fromkeys(("->", "->>", "#>", "#>>"), step_rule),
    **dict.fromkeys(("json_value", "json_query"), path_rule),
    **dict.fromkeys(("json_array_length", "json_typeof"), size_rule),
}
_LOADS = json.JSONDecoder().decode


def documents(column: Column, context: EvaluationContext) -> list[Any]:
    """Return the values of a JSON column, `_MISSING` where it is NULL, and where a TEXT is no JSON, which is a row error."""
    texts = column.values.to_pylist()
    if column.type == JSON:  # which was looked at when it came in: all at once, as one list
        with contextlib.suppress(ValueError, RecursionError):
            whole = _LOADS(f"[{','.join('null' if text is None else text for text in texts)}]")
            return [_MISSING if text is None else value for text, value in zip(texts, whole, strict=True)]
    found: list[Any] = []
    bad: list[int] = []
    for i, text in enumerate(texts):
        try:
            found.append(_MISSING if text is None else _LOADS(text))
        except (ValueError, RecursionError):
            bad.append(i)
            found.append(_MISSING)
    _fail_at(bad, len(column), context, "the TEXT is not JSON")
    return found


def _fail_at(bad: list[int], rows: int, context: EvaluationContext, reason: str) -> None:
    if bad:
        where = np.zeros(rows, dtype=np.bool_)
        where[bad] = True
        fail_where(context, where, None, reason)


def reached(document: Any, steps: tuple[Step, ...]) -> Any:
    """Return what a path leads to, `_MISSING` where it leads nowhere."""
    value = document
    for step in steps:
        if isinstance(value, dict):
            value = value.get(step, _MISSING) if isinstance(step, str) else _MISSING
        elif isinstance(value, list):
            place = step if isinstance(step, int) else int(step) if _INDEX.fullmatch(step) else None
            value = value[place] if place is not None and -len(value) <= place < len(value) else _MISSING
        else:
            return _MISSING
    return value


def all_reached(documents: list[Any], steps: tuple[Step, ...]) -> list[Any]:
    """Return what a path leads to in each document."""
    if len(steps) == 1 and isinstance(steps[0], str):
        name = steps[0]
        return [one.get(name, _MISSING) if type(one) is dict else reached(one, steps) for one in documents]
    return [reached(one, steps) for one in documents]


def _as_json(value: Any) -> str | None:
    return None if value is _MISSING else json_text(value)


def _as_text(value: Any) -> str | None:
    """A text as it is, other values in their JSON form; a JSON null is NULL."""
    if value is _MISSING or value is None:
        return None
    return whole_text(value) if isinstance(value, str) else json_text(value)


def _scalar(value: Any) -> str | None:
    return None if isinstance(value, dict | list) else _as_text(value)


def _composite(value: Any) -> str | None:
    return json_text(value) if isinstance(value, dict | list) else None


def _build(read: Callable[[Any], str | None]) -> Builder:
    def build(call: Call, compiler: Compiler) -> Kernel:
        inner, steps, is_text = compiler.kernel(call.arguments[0]), call.options[0], call.type == TEXT and read is not _composite

        def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
            values = all_reached(documents(inner(rows, context), context), steps)
            found: list[str | None] = []
            bad: list[int] = []  # of a TEXT, which nobody looked at when it came in
            for i, value in enumerate(values):
                try:
                    found.append(value if type(value) is str and is_text and value.isascii() else read(value))
                except ValueError:
                    bad.append(i)
                    found.append(None)
            _fail_at(bad, len(found), context, "the JSON in the TEXT is nested too deeply or has half of a surrogate pair")
            return Column(call.type, pa.array(found, pa.string()))

        return kernel

    return build


_GET_JSON, _GET_TEXT = _build(_as_json), _build(_as_text)


def build_get(call: Call, compiler: Compiler) -> Kernel:
    """Build the arrows."""
    return (_GET_TEXT if call.type == TEXT else _GET_JSON)(call, compiler)


def build_length(call: Call, compiler: Compiler) -> Kernel:
    """Build JSON_ARRAY_LENGTH: NULL of what is no list."""
    inner = compiler.kernel(call.arguments[0])

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        lengths = [len(d) if isinstance(d, list) else -1 for d in documents(inner(rows, context), context)]
        values = np.array(lengths, dtype=np.int64)
        return Column(BIGINT, values, None if (values >= 0).all() else values >= 0)

    return kernel


def _type_name(value: Any) -> str | None:
    if value is _MISSING:
        return None
    if isinstance(value, bool):
        return "boolean"
    names = {type(None): "null", str: "string", int: "number", float: "number", dict: "object", list: "array"}
    return names[type(value)]


def build_typeof(call: Call, compiler: Compiler) -> Kernel:
    """Build JSON_TYPEOF, with PostgreSQL's words."""
    inner = compiler.kernel(call.arguments[0])

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        return Column(TEXT, pa.array([_type_name(d) for d in documents(inner(rows, context), context)], pa.string()))

    return kernel


JSON_BUILDERS: dict[str, Builder] = {
    "json_get": build_get,
    "json_value": _build(_scalar),
    "json_query": _build(_composite),
    "json_array_length": build_length,
    "json_typeof": build_typeof,
}
