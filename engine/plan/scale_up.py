"""WITH (scale_up = true): counts and sums estimated for all the input, from the part of it that was seen.

Beside each COUNT and SUM of the select list come two columns that were asked for so: `name_scaled`, the estimate of Horvitz and Thompson
(1952), and `name_error`, half the width of its 95 % confidence interval. With w the sampling weight of a kept row (1 over the chance
that it was kept) and y its value (1 for a count):

    estimate = Σ w·y          variance = Σ w·(w − 1)·y²          error = 1.96 · √variance

That assumes that each row was kept or dropped by itself, with the chance in force when it came (the hash of seed and arrival number sees to
it); that no chance was 0, so rows that fell because a log was quite full are not made up for; and, for the interval, enough kept rows for
the normal distribution (some thirty a group). A group of which nothing was kept has no row. Where nothing was shed the error is 0.
"""

from __future__ import annotations

from dataclasses import replace

from millstream.engine.data.errors import Unsupported
from millstream.engine.language.syntax import Name, NamedItem, Option, Place, Query, SelectBody, SelectItem, Star
from sqlglot import exp

CONFIDENCE_FACTOR = 1.96  # of the normal distribution, two-sided 95 %


def wants_scaling(query: Query, overrides: tuple[Option, ...]) -> Option | None:
    """Return the option that asks for it, None when nobody does."""
    found = None
    for option in (*query.options, *overrides):
        if option.name == "scale_up":
            found = option
    return found if found is not None and found.value is True else None


def scaled_up(query: Query, option: Option) -> Query:
    """Return the query with the two columns beside each COUNT and SUM."""
    body = query.body
    plain = isinstance(body, SelectBody) and isinstance(body.source, NamedItem) and not body.distinct
    if not isinstance(body, SelectBody) or not plain or query.stream is not None or query.common_tables:
        raise _refused(option, "scale_up is for one SELECT from one stream", "leave joins, derived tables, DISTINCT and ISTREAM out")
    taken = {item.alias.text.lower() for item in body.items if isinstance(item, SelectItem) and item.alias is not None}
    items: list[SelectItem | Star] = []
    for item in body.items:
        items.append(item)
        call = _scalable(item.expression) if isinstance(item, SelectItem) else None
        if isinstance(item, SelectItem) and call is not None:
            beside = _beside(item, call)
            double = next((name.text for one in beside if (name := one.alias) is not None and name.text.lower() in taken), None)
            if double is not None:
                raise _refused(option, f"scale_up adds a column {double}, and the select list has one of that name", "name yours otherwise")
            items += beside
    if len(items) == len(body.items):
        raise _refused(option, "scale_up needs a COUNT or SUM by itself in the select list", "AVG needs no scaling")
    return replace(query, body=replace(body, items=tuple(items)))


def _refused(option: Option, message: str, hint: str) -> Unsupported:
    place = option.place
    known = place != Place()  # one from outside the text has none
    return Unsupported(
        message, hint=hint, line=place.line if known else None, column=place.column if known else None, token=option.name if known else None
    )


def _scalable(node: exp.Expr) -> exp.Anonymous | None:
    """Return the COUNT or SUM that an item is, perhaps with FILTER."""
    call = node.this if isinstance(node, exp.Filter) else node
    if not isinstance(call, exp.Anonymous) or call.name.lower() not in ("count", "sum") or len(call.expressions) != 1:
        return None
    return None if isinstance(call.expressions[0], exp.Distinct) else call


def _beside(item: SelectItem, call: exp.Anonymous) -> list[SelectItem]:
    name = item.alias.text if item.alias is not None else call.name.lower()
    argument = call.expressions[0]
    weight = _function("SAMPLING_WEIGHT")
    first: exp.Expr = weight
    second: exp.Expr = exp.Mul(this=weight, expression=exp.Paren(this=exp.Sub(this=weight.copy(), expression=exp.Literal.number(1))))
    condition = item.expression.expression.this if isinstance(item.expression, exp.Filter) else None
    if call.name.lower() == "sum":
        value = exp.Paren(this=argument.copy())
        first = exp.Mul(this=weight.copy(), expression=value)
        second = exp.Mul(this=exp.Mul(this=second, expression=value.copy()), expression=value.copy())
    elif not isinstance(argument, exp.Star):
        counted = exp.Not(this=exp.Is(this=exp.Paren(this=argument.copy()), expression=exp.Null()))
        condition = counted if condition is None else exp.And(this=exp.Paren(this=condition), expression=counted)
    scaled = _summed(first, condition)
    error: exp.Expr = exp.Mul(this=exp.Literal.number(CONFIDENCE_FACTOR), expression=_function("SQRT", _summed(second, condition)))
    if call.name.lower() == "count":  # nothing counted is 0, as COUNT says
        scaled, error = (_function("COALESCE", one, exp.Literal.number(0)) for one in (scaled, error))
    beside = (("scaled", scaled), ("error", error))
    return [SelectItem(expression, Name(f"{name}_{word}", item.place), item.text, item.place) for word, expression in beside]


def _summed(value: exp.Expr, condition: exp.Expr | None) -> exp.Expr:
    call = _function("SUM", value)
    return call if condition is None else exp.Filter(this=call, expression=exp.Where(this=condition.copy()))


def _function(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=list(arguments))
