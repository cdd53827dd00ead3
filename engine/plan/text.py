"""Expressions, windows and emission as text of the language that reads back to the same plan."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from millstream.engine.data.durations import duration_text, format_duration
from millstream.engine.data.types import BIGINT, BOOLEAN, BYTES, DOUBLE, INT, JSON, NULL, TEXT, Kind
from millstream.engine.expressions.build import integer_literal
from millstream.engine.expressions.chain import CHAIN
from millstream.engine.expressions.ir import Call, Case, Cast, ColumnRef, Expression, Literal
from millstream.engine.expressions.values import format_date, format_decimal, format_timestamp
from millstream.engine.language.names import quote_name
from millstream.engine.language.recipes import (
    EmitKind,
    EmitSpec,
    FrameSpec,
    MatchSkip,
    MatchSpec,
    MatchValue,
    Pattern,
    WindowKind,
    WindowSpec,
)
from millstream.engine.plan.logical import Attributes

NameOf = Callable[[int], str]

_INFIX = ("+", "-", "*", "/", "%", "=", "<>", "<", "<=", ">", ">=", "||", "&", "|", "#")
_DISTINCT = {"is_distinct_from": "IS DISTINCT FROM", "is_not_distinct_from": "IS NOT DISTINCT FROM"}
_POSTFIX = {
    "is_null": "IS NULL",
    "is_not_null": "IS NOT NULL",
    "is_true": "IS TRUE",
    "is_false": "IS FALSE",
    "is_unknown": "IS UNKNOWN",
    "is_not_true": "IS NOT TRUE",
    "is_not_false": "IS NOT FALSE",
    "is_not_unknown": "IS NOT UNKNOWN",
}


def attribute_names(attributes: Attributes) -> NameOf:
    """Return the function that spells the attribute at a position so that it is found again: qualified where it must be."""
    names = [a.name for a in attributes]

    def spell(position: int) -> str:
        attribute = attributes[position]
        if names.count(attribute.name) > 1 and attribute.qualifier is not None:
            return f"{quote_name(attribute.qualifier)}.{quote_name(attribute.name)}"
        return quote_name(attribute.name)

    return spell


def expression_text(expression: Expression, name_of: NameOf) -> str:
    """Return the expression as SQL, compound operands in parentheses."""
    return _Writer(name_of).write(expression)


class _Writer:
    def __init__(self, name_of: NameOf) -> None:
        self.name_of = name_of

    def write(self, node: Expression) -> str:
        if isinstance(node, ColumnRef):
            return self.name_of(node.position)
        if isinstance(node, Literal):
            return literal_text(node)
        if isinstance(node, Cast):
            word = "TRY_CAST" if node.quiet else "CAST"
            return f"{word}({self.write(node.argument)} AS {node.type})"
        if isinstance(node, Case):
            branches = " ".join(f"WHEN {self.write(c)} THEN {self.write(v)}" for c, v in node.branches)
            return f"CASE {branches} ELSE {self.write(node.otherwise)} END"
        assert isinstance(node, Call)
        return self._call(node)

    def _operand(self, node: Expression) -> str:
        text = self.write(node)
        compound = isinstance(node, Call) and not _is_plain_call(node)
        signed = isinstance(node, Literal) and text.startswith("-")
        return f"({text})" if compound or signed else text

    def _call(self, node: Call) -> str:
        name, arguments = node.function, node.arguments
        if name in ("and", "or"):
            return f" {name.upper()} ".join(self._operand(a) for a in arguments)
        if name in _INFIX:
            return f" {name} ".join(self._operand(a) for a in arguments)
        if name == CHAIN:
            following = (f" {operator} {self._operand(a)}" for operator, a in zip(node.options, arguments[1:], strict=True))
            return self._operand(arguments[0]) + "".join(following)
        if name in _DISTINCT:
            return f"{self._operand(arguments[0])} {_DISTINCT[name]} {self._operand(arguments[1])}"
        if name in _POSTFIX:
            return f"{self._operand(arguments[0])} {_POSTFIX[name]}"
        if name == "not":
            return f"NOT {self._operand(arguments[0])}"
        if name == "neg":  # a constant in brackets, as one with a sign before it reads back as a negative constant
            operand = self._operand(arguments[0])
            return f"- ({operand})" if isinstance(arguments[0], Literal) and not operand.startswith("(") else f"- {operand}"
        if name == "between":
            value, low, high = (self._operand(a) for a in arguments)
            return f"{value} BETWEEN {low} AND {high}"
        if name == "in":
            listed = ", ".join(self.write(a) for a in arguments[1:])
            return f"{self._operand(arguments[0])} IN ({listed})"
        if name in ("like", "ilike"):
            escape = "" if node.options[:1] in ((), ("\\",)) else f" ESCAPE {quoted(str(node.options[0]))}"
            return f"{self._operand(arguments[0])} {name.upper()} {self._operand(arguments[1])}{escape}"
        return self._function(node)

    def _function(self, node: Call) -> str:
        written = [self.write(a) for a in node.arguments]
        if node.function in _NESTED:
            return self._nested(node, written)
        if node.function == "extract" and len(node.options) == 1:
            return f"EXTRACT({str(node.options[0]).upper()} FROM {written[0]})"
        if node.function in ("extract", "date_trunc"):
            name = "DATE_PART" if node.function == "extract" else "DATE_TRUNC"
            options = [quoted(str(o)) for o in node.options]
            return f"{name}({', '.join([options[0], *written, *options[1:]])})"
        if node.function in ("to_char", "to_bytes", "from_bytes", "parse_timestamp"):
            written += [quoted(str(o)) for o in node.options]
        return f"{node.function.upper()}({', '.join(written)})"

    def _nested(self, node: Call, written: list[str]) -> str:
        """Write steps into nested values and JSON, and their constructors."""
        name = node.function
        first = written[0] if written and isinstance(node.arguments[0], ColumnRef) else f"({''.join(written[:1])})"
        if name == "part":
            return f"({written[0]}).{quote_name(node.options[0])}"
        if name in ("array_element", "map_element"):
            return f"{first}[{written[1]}]"
        if name == "json_get":
            *steps, last = node.options[0] or ("",)
            if not node.options[0]:
                return f"{first} #>{'>' if node.type == TEXT else ''} '{{}}'"
            arrow = "->>" if node.type == TEXT else "->"
            return "".join([first, *(f" -> {_step(step)}" for step in steps), f" {arrow} {_step(last)}"])
        if name == "array":
            return f"ARRAY[{', '.join(written)}]"
        if name == "map":
            return f"MAP {{{', '.join(f'{k}: {v}' for k, v in zip(written[::2], written[1::2], strict=True))}}}"
        if name == "struct":
            return f"ROW({', '.join(f'{w} AS {quote_name(part)}' for w, part in zip(written, node.options, strict=True))})"
        from millstream.engine.expressions.json_functions import path_text

        return f"{name.upper()}({written[0]}, {quoted(path_text(node.options[0]))})"


_NESTED = ("part", "array_element", "map_element", "json_get", "array", "map", "struct", "json_value", "json_query")


def _step(step: object) -> str:
    return quoted(step) if isinstance(step, str) else str(step)


def _is_plain_call(node: Call) -> bool:
    infix = (*_INFIX, CHAIN, *_DISTINCT, *_POSTFIX, "and", "or", "not", "neg", "between", "in", "like", "ilike")
    return node.function not in infix


def quoted(text: str) -> str:
    """Return a string literal."""
    return "'" + text.replace("'", "''") + "'"


def literal_text(literal: Literal) -> str:
    """Return a constant so that it reads back with the same type."""
    value, type_ = literal.value, literal.type
    if value is None:
        return "NULL" if type_ == NULL else f"CAST(NULL AS {type_})"
    if type_ == TEXT:
        return quoted(value)
    if type_ == JSON:
        return f"CAST({quoted(value)} AS JSON)"
    if type_ == BYTES:
        return f"x'{value.hex()}'"
    if type_ == BOOLEAN:
        return "TRUE" if value else "FALSE"
    if type_ in (INT, BIGINT):
        return str(value) if integer_literal(value).type == type_ else f"CAST({value} AS {type_})"
    if type_ == DOUBLE:
        return _double_text(value)
    if type_.kind is Kind.DECIMAL:
        return _decimal_text(literal)
    return _temporal_text(value, type_.kind)


def _double_text(value: float) -> str:
    if not math.isfinite(value):
        return f"CAST('{'NaN' if math.isnan(value) else 'Infinity' if value > 0 else '-Infinity'}' AS DOUBLE)"
    text = repr(value)
    return text if "e" in text else f"{text}e0"


def _decimal_text(literal: Literal) -> str:
    from millstream.engine.plan.expression_binder import number_literal  # that file writes nothing; only this one reads back

    text = format_decimal(literal.value, literal.type.scale)
    if "." in text and number_literal(text.lstrip("-")).type == literal.type:
        return text
    return f"CAST({text} AS {literal.type})"


def _temporal_text(value: Any, kind: Kind) -> str:
    if kind is Kind.TIMESTAMP:
        return f"TIMESTAMP '{format_timestamp(value)}'"
    if kind is Kind.DATE:
        return f"DATE '{format_date(value)}'"
    if kind is Kind.TIME:
        return f"TIME '{format_duration(value)}'"
    return f"INTERVAL '{duration_text(value)}'"


def window_text(spec: WindowSpec, attributes: Attributes) -> str:
    """Return the window as it stands in brackets."""
    spell = attribute_names(attributes)
    partition = "".join(f"PARTITION BY {', '.join(spell(p) for p in spec.partition)} " for _ in (0,) if spec.partition)
    kind = spec.kind
    if kind is WindowKind.HOPPING:
        within = "WITHIN " if spec.slide_within else ""
        return f"RANGE {duration_text(spec.range_us)} SLIDE {within}{duration_text(spec.slide_us)}{_alignment(spec)}"
    if kind is WindowKind.CUMULATE:
        return f"CUMULATE {duration_text(spec.range_us)} STEP {duration_text(spec.slide_us)}{_alignment(spec)}"
    if kind is WindowKind.SLIDING:
        return f"RANGE {duration_text(spec.range_us)}"
    if kind is WindowKind.ROWS:
        return f"{partition}ROWS {spec.rows}" + (f" SLIDE {spec.rows_slide}" if spec.rows_slide != 1 else "")
    if kind is WindowKind.SESSION:
        longest = "" if spec.max_us is None else f" MAX {duration_text(spec.max_us)}"
        return f"{partition}SESSION {duration_text(spec.gap_us)}{longest}"
    if kind is WindowKind.LANDMARK:
        return "LANDMARK" + ("" if spec.from_us is None else f" FROM TIMESTAMP '{format_timestamp(spec.from_us)}'")
    if kind is WindowKind.UNBOUNDED:
        return "UNBOUNDED" + ("" if spec.state_rows_max is None else f" STATE {spec.state_rows_max} ROWS")
    return "NOW"


def frame_text(frame: FrameSpec) -> str:
    """Return the frame as it stands in OVER."""

    def end(offset: int | None) -> str:
        if offset is None:
            return "UNBOUNDED PRECEDING"
        size = str(abs(offset)) if frame.by_rank else f"INTERVAL '{duration_text(abs(offset))}'"
        return f"{size} {'FOLLOWING' if offset > 0 else 'PRECEDING'}" if offset else "CURRENT ROW"

    start = None if frame.preceding is None else -frame.preceding
    return f"{'ROWS' if frame.by_rank else 'RANGE'} BETWEEN {end(start)} AND {end(frame.following)}"


_QUANTIFIERS = {(0, None): "*", (1, None): "+", (0, 1): "?"}


def pattern_text(pattern: Pattern, variables: Sequence[str], outer: bool = True) -> str:
    """Return a row pattern as it stands in PATTERN ( … )."""
    kind = pattern[0]
    if kind == "row":
        return quote_name(variables[pattern[1]])
    if kind == "times":
        _, part, least, most, reluctant = pattern
        range_ = f"{{{least}}}" if least == most else f"{{{least},{'' if most is None else most}}}"
        inner = pattern_text(part, variables, False)
        inner = f"({inner})" if part[0] == "times" else inner
        return f"{inner}{_QUANTIFIERS.get((least, most), range_)}{'?' if reluctant else ''}"
    parts = [pattern_text(part, variables, False) for part in pattern[1]]
    text = (" " if kind == "then" else " | ").join(parts)
    return text if outer and parts else f"({text})"


def match_value_text(value: MatchValue, spec: MatchSpec, name_of: NameOf, subsets: Mapping[tuple[int, ...], str]) -> str:
    """Return what a measure or condition reads of a match, for aggregates of one argument at most."""
    called = "" if not value.variables else subsets.get(value.variables) or spec.variables[value.variables[0]]
    prefix = f"{quote_name(called)}." if called else ""
    if value.word:
        text = "MATCH_NUMBER()" if value.word == "number" else "CLASSIFIER()"
    elif value.call is not None:
        call = value.call
        options = "".join(f", {option}" for option in call.options)
        listed = ", ".join(f"{prefix}{name_of(a)}" for a in call.arguments) or f"{prefix}*"
        condition = "" if call.filter is None else f" FILTER (WHERE {prefix}{name_of(call.filter)})"
        text = f"{call.function.upper()}({'DISTINCT ' if call.distinct else ''}{listed}{options}){condition}"
    else:
        assert value.column is not None
        offset = f", {value.offset}" if value.offset else ""
        text = f"{'FIRST' if value.first else 'LAST'}({prefix}{name_of(value.column)}{offset})"
        text = _moved_text(text, value.shift)
    return f"FINAL {text}" if value.final else text


def _moved_text(text: str, shift: int) -> str:
    count = "" if abs(shift) == 1 else f", {abs(shift)}"
    return f"{'PREV' if shift < 0 else 'NEXT'}({text}{count})" if shift else text


def match_condition_text(condition: Expression, spec: MatchSpec, name_of: NameOf, subsets: Mapping[tuple[int, ...], str]) -> str:
    """Return a condition as it stands in DEFINE."""

    def spell(position: int) -> str:
        if position >= len(spec.near):
            return match_value_text(spec.past[position - len(spec.near)], spec, name_of, subsets)
        column, shift = spec.near[position]
        return _moved_text(name_of(column), shift)

    return expression_text(condition, spell)


def match_subsets(spec: MatchSpec) -> dict[tuple[int, ...], str]:
    """Return a name for each choice of several variables that is read, or skipped to."""
    found: dict[tuple[int, ...], str] = {}
    for chosen in (spec.skip_to, *(value.variables for value in (*spec.past, *spec.measures))):
        if len(chosen) > 1 and chosen not in found:
            name = "_or_".join(spec.variables[v] for v in chosen)
            found[chosen] = next(
                n for n in (name, *(f"{name}_{i}" for i in range(1, 10_000))) if n not in (*spec.variables, *found.values())
            )
    return found


def skip_text(spec: MatchSpec, subsets: Mapping[tuple[int, ...], str]) -> str:
    """Return what stands behind AFTER MATCH SKIP."""
    if spec.skip is MatchSkip.PAST_LAST:
        return "PAST LAST ROW"
    if spec.skip is MatchSkip.TO_NEXT:
        return "TO NEXT ROW"
    called = subsets.get(spec.skip_to) or spec.variables[spec.skip_to[0]]
    return f"TO {'FIRST' if spec.skip is MatchSkip.TO_FIRST else 'LAST'} {quote_name(called)}"


def _alignment(spec: WindowSpec) -> str:
    offset = f" OFFSET {duration_text(spec.offset_us)}" if spec.offset_us else ""
    zone = f" TIME ZONE {quoted(spec.zone)}" if spec.zone else ""
    return offset + zone


def emit_text(emit: EmitSpec) -> str:
    """Return the words after EMIT."""
    word = {EmitKind.FINAL: "FINAL", EmitKind.CHANGES: "CHANGES", EmitKind.EVERY: f"EVERY {duration_text(emit.every_us)}"}[emit.kind]
    if not emit.empty:
        return word
    return "EMPTY"
