"""Functions over STRUCT and MAP, the constructors of all nested values, and their casts (K21). Those over lists alone stand in `lists.py`.

A step to a part that is not there is NULL: `list[9]`, `map['none']`, and any part of a NULL.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from millstream.engine.data.arrow import arrow_type, column_from_arrow, column_to_arrow
from millstream.engine.data.column import Column, with_nulls
from millstream.engine.data.errors import TypeProblem, UnknownName
from millstream.engine.data.nearest import near_or_listed
from millstream.engine.data.types import BOOLEAN, NULL, TEXT, DataType, Kind, list_of, map_of, struct_of
from millstream.engine.expressions.ir import Call
from millstream.engine.expressions.kernel import Builder, Compiler, EvaluationContext, Kernel, KernelRows, fail_where, null_or_fail
from millstream.engine.expressions.lists import build_element, element_rule
from millstream.engine.expressions.nested_values import (
    Converted,
    Failed,
    entries_of,
    from_texts,
    from_values,
    list_array,
    map_array,
    offsets_of,
    shown,
)
from millstream.engine.expressions.signature import (
    Options,
    Rule,
    Signature,
    Types,
    common_type_of_all,
    expect_count,
    refuse,
    refuse_argument,
)
from millstream.engine.expressions.text_columns import parse_column
from millstream.protocol.values import Number
from millstream.protocol.values import arrow_functions as pc
from millstream.protocol.values.json_values import whole_text


def array_rule(name: str, types: Types, options: Options) -> Signature:
    """ARRAY[a, …]: a list of values that meet in one type."""
    common = common_type_of_all(types)
    if common is None:
        refuse(name, types, "the items of a list have one type; cast them, or make a STRUCT")
    return Signature(name, tuple(common for _ in types), list_of(common))


def struct_rule(name: str, types: Types, options: Options) -> Signature:
    """ROW(a AS x, …), STRUCT(a AS x, …) or {'x': a, …}. Options: the names of the parts."""
    expect_count(name, types, 1)
    names = [str(option) for option in options]
    twice = next((part for part in names if names.count(part) > 1), None)
    if twice is not None:
        raise TypeProblem(f"the part {twice} stands twice", hint="give each part its own name with AS")
    return Signature(name, types, struct_of(zip(names, types, strict=True)), tuple(names))


def map_rule(name: str, types: Types, options: Options) -> Signature:
    """MAP {'k': v, …} or MAP['k', v, …]: keys of TEXT, values that meet in one type."""
    if len(types) % 2:
        raise TypeProblem("a MAP takes keys and values in turn", hint="write MAP {'k': v} or MAP['k', v]")
    for place in range(0, len(types), 2):
        if types[place] not in (TEXT, NULL):
            refuse_argument(name, place, types[place], "a key of TEXT")
    common = common_type_of_all(types[1::2])
    if common is None:
        refuse(name, types, "the values of a MAP have one type; cast them, or make a STRUCT")
    return Signature(name, (TEXT, common) * (len(types) // 2), map_of(common))


def step_rule(name: str, types: Types, options: Options) -> Signature:
    """`list[n]`, counted from 1, and `map['key']`."""
    expect_count(name, types, 2, 2)
    if types[0].kind is Kind.MAP:
        if types[1] not in (TEXT, NULL):
            raise TypeProblem(f"a value of a MAP is named by its key, a TEXT, not by {types[1]}", hint="write map['key']")
        assert types[0].element is not None
        return Signature("map_element", (types[0], TEXT), types[0].element)
    if types[0].kind is Kind.STRUCT:
        raise TypeProblem("a part of a STRUCT is named by a point", hint="write s.part")
    if types[0].kind is Kind.JSON:
        raise TypeProblem("a step into JSON is an arrow", hint="write j -> 'name', j -> 0, or ->> for TEXT")
    return element_rule(name, types, options)


def part_rule(name: str, types: Types, options: Options) -> Signature:
    """`struct.part`. Option: its name."""
    if not options:  # a call by name, which SQL does not have
        raise TypeProblem("PART is written with a point", hint="write s.name")
    wanted = str(options[0])
    if types[0].kind is not Kind.STRUCT:
        hint = "write j -> 'name'" if types[0].kind is Kind.JSON else "write m['key']" if types[0].kind is Kind.MAP else None
        raise TypeProblem(f"a {types[0]} has no parts", hint=hint)
    names = [part for part, _ in types[0].fields]
    if wanted not in names:
        raise UnknownName(f"{types[0]} has no part {wanted}", hint=near_or_listed(wanted, names, "parts"))
    place = names.index(wanted)
    return Signature(name, types, types[0].fields[place][1], (wanted,))


def entries_rule(name: str, types: Types, options: Options) -> Signature:
    """MAP_KEYS(map) and MAP_VALUES(map), in the order of the keys."""
    expect_count(name, types, 1, 1)
    if types[0].kind is not Kind.MAP or types[0].element is None:
        refuse_argument(name, 0, types[0], "a MAP")
    return Signature(name, types, list_of(TEXT if name == "map_keys" else types[0].element))


def joined_rule(name: str, types: Types, options: Options) -> Signature:
    """ARRAY_CONCAT(list, list …): the items of all; NULL if one is NULL."""
    expect_count(name, types, 2)
    common = common_type_of_all(types)
    if common is None or common.kind is not Kind.LIST:
        refuse(name, types, "the lists must have items of one type")
    return Signature(name, tuple(common for _ in types), common)


NESTED_RULES: dict[str, Rule] = {
    "array": array_rule,
    "struct": struct_rule,
    "map": map_rule,
    "part": part_rule,
    "array_element": step_rule,
    **dict.fromkeys(("map_keys", "map_values"), entries_rule),
    "array_concat": joined_rule,
}


def build_array(call: Call, compiler: Compiler) -> Kernel:
    """Build ARRAY[…]."""
    kernels = [compiler.kernel(a) for a in call.arguments]

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        return Column(call.type, _lists([k(rows, context) for k in kernels], rows.rows, call.type))

    return kernel


def _lists(columns: list[Column], rows: int, type_: DataType) -> Any:
    """Return a list a row, of the columns' values in turn."""
    assert type_.element is not None
    width = len(columns)
    offsets = np.arange(rows + 1, dtype=np.int32) * width
    items = pa.concat_arrays([column_to_arrow(c) for c in columns]) if columns else pa.nulls(0, arrow_type(type_.element))
    in_turn = np.arange(width * rows, dtype=np.int64).reshape(width, rows).T.reshape(-1) if columns else np.zeros(0, np.int64)
    return list_array(offsets, column_from_arrow(pc.take(items, pa.array(in_turn)), type_.element), type_)


def build_struct(call: Call, compiler: Compiler) -> Kernel:
    """Build ROW(…); it is never NULL itself."""
    kernels = [compiler.kernel(a) for a in call.arguments]
    fields = list(arrow_type(call.type))

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        return Column(call.type, pa.StructArray.from_arrays([column_to_arrow(k(rows, context)) for k in kernels], fields=fields))

    return kernel


def build_map(call: Call, compiler: Compiler) -> Kernel:
    """Build MAP {…}. A key that is NULL, or stands twice, is a row error."""
    keys = [compiler.kernel(a) for a in call.arguments[::2]]
    values = [compiler.kernel(a) for a in call.arguments[1::2]]
    type_, width = call.type, len(keys)
    assert type_.element is not None
    element = type_.element

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        count = rows.rows
        named = list(zip(*[k(rows, context).values.to_pylist() for k in keys], strict=True)) if width else [()] * count
        bad = np.array([None in row or len(set(row)) < width for row in named], dtype=np.bool_)
        order = np.array(
            [place * count + i for i, row in enumerate(named) if not bad[i] for place in sorted(range(width), key=row.__getitem__)],
            dtype=np.int64,
        )
        texts = [row[place] for i, row in enumerate(named) if not bad[i] for place in sorted(range(width), key=row.__getitem__)]
        columns = [v(rows, context) for v in values]
        items = pa.concat_arrays([column_to_arrow(c) for c in columns]) if columns else pa.nulls(0, arrow_type(element))
        taken = column_from_arrow(pc.take(items, pa.array(order)), element)
        offsets = np.concatenate((np.zeros(1, np.int32), np.cumsum(np.where(bad, 0, width), dtype=np.int32)))
        valid = fail_where(context, bad, None, "a key of a MAP is NULL or stands twice")
        mask = None if valid is None else ~valid
        return Column(type_, map_array(offsets, pa.array(texts, pa.string()), taken, type_, mask))

    return kernel


def build_part(call: Call, compiler: Compiler) -> Kernel:
    """Build `struct.part`."""
    inner = compiler.kernel(call.arguments[0])
    place = [name for name, _ in call.arguments[0].type.fields].index(call.options[0])

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        return column_from_arrow(pc.struct_field(inner(rows, context).values, [place]), call.type)

    return kernel


def build_map_element(call: Call, compiler: Compiler) -> Kernel:
    """Build `map['key']`: NULL where there is no such key."""
    maps, keys = (compiler.kernel(a) for a in call.arguments)

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        array, wanted = maps(rows, context).values, keys(rows, context).values
        names, items, offsets = entries_of(array)
        row = np.repeat(np.arange(len(array), dtype=np.int64), np.diff(offsets))
        hits = pc.equal(names, pc.take(wanted, pa.array(row)))
        found = np.flatnonzero(pc.coalesce(hits, False).to_numpy(zero_copy_only=False))
        places = np.zeros(len(array), dtype=np.int64)
        missing = np.ones(len(array), dtype=np.bool_)
        places[row[found]], missing[row[found]] = found, False
        return column_from_arrow(pc.take(items, pa.array(places, mask=missing)), call.type)

    return kernel


def build_entries(call: Call, compiler: Compiler) -> Kernel:
    """Build MAP_KEYS and MAP_VALUES."""
    inner = compiler.kernel(call.arguments[0])
    element = call.type.element
    assert element is not None

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        column = inner(rows, context)
        keys, items, offsets = entries_of(column.values)
        picked = column_from_arrow(keys if call.function == "map_keys" else items, element)
        return Column(call.type, list_array(offsets, picked, call.type, column.validity()))

    return kernel


def build_joined(call: Call, compiler: Compiler) -> Kernel:
    """Build ARRAY_CONCAT."""
    kernels = [compiler.kernel(a) for a in call.arguments]
    element = call.type.element
    assert element is not None

    def kernel(rows: KernelRows, context: EvaluationContext) -> Column:
        arrays = [k(rows, context).values for k in kernels]
        lengths = np.array([np.diff(offsets_of(a)) for a in arrays], dtype=np.int64).reshape(len(arrays), rows.rows)
        flat = pa.concat_arrays([a.flatten() for a in arrays])
        starts = (np.cumsum(lengths.reshape(-1)) - lengths.reshape(-1)).reshape(lengths.shape)
        piece_starts, piece_lengths = starts.T.reshape(-1), lengths.T.reshape(-1)  # row by row, list by list
        before = np.cumsum(piece_lengths) - piece_lengths
        places = np.repeat(piece_starts - before, piece_lengths) + np.arange(int(piece_lengths.sum()), dtype=np.int64)
        offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths.sum(axis=0))))
        valid = np.ones(rows.rows, dtype=np.bool_)
        for array in arrays:
            valid &= np.asarray(pc.is_valid(array))
        items = column_from_arrow(pc.take(flat, pa.array(places)), element)
        return Column(call.type, list_array(offsets, items, call.type, None if valid.all() else valid))

    return kernel


NESTED_BUILDERS: dict[str, Builder] = {
    "array": build_array,
    "struct": build_struct,
    "map": build_map,
    "part": build_part,
    "array_element": build_element,
    "map_element": build_map_element,
    **dict.fromkeys(("map_keys", "map_values"), build_entries),
    "array_concat": build_joined,
}


# CAST: from TEXT and JSON by the values that they hold, as strictly as rows are read; between nested types level by level ---------------


def of_text(column: Column, target: DataType, context: EvaluationContext, reason: str | None) -> Column:
    """Read TEXT or JSON as JSON, and its values as a type."""
    made, failed = from_texts(column.values, target, _of_values)
    if not failed:
        return made
    bad = np.zeros(len(column), dtype=np.bool_)
    bad[list(failed)] = True
    null_or_fail(context, bad, None, reason)
    return with_nulls(made, ~bad)


def _of_values(values: list[Any], type_: DataType) -> Converted:
    """Return values as JSON has them as a column."""
    if not type_.is_ordered:
        return from_values(values, type_, _of_values)
    failed: Failed = {}
    texts: list[str | None] = []
    for i, value in enumerate(values):
        is_text = isinstance(value, str) and not isinstance(value, Number)
        fits = value is None or (is_text or not isinstance(value, bool | dict | list) if type_ != BOOLEAN else isinstance(value, bool))
        if (type_ == TEXT and value is not None and not is_text) or not fits:
            failed[i] = f"{shown(value)} is not {type_}"
            texts.append(None)
        else:
            try:
                texts.append(None if value is None else str(value).lower() if isinstance(value, bool) else whole_text(str(value)))
            except ValueError as error:
                failed[i] = str(error)
                texts.append(None)
    parsed = parse_column(pa.array(texts, pa.string()), type_)
    return parsed.column, {**parsed.failed, **failed}


def between(source: DataType, target: DataType, inner: Any) -> Any:
    """Return the conversion between two nested types of the same kind; `inner` gives that of their parts."""
    if source.kind is Kind.STRUCT:
        return _structs(target, [inner(a, b) for (_, a), (_, b) in zip(source.fields, target.fields, strict=True)], source)
    assert source.element is not None
    assert target.element is not None
    return _items(source.element, target, inner(source.element, target.element))


def _structs(target: DataType, parts: list[Any], source: DataType) -> Any:
    fields = list(arrow_type(target))

    def convert(column: Column, context: EvaluationContext, reason: str | None) -> Column:
        flat = column.values.flatten()
        made = [
            column_to_arrow(part(column_from_arrow(array, type_), context, reason))
            for part, array, (_, type_) in zip(parts, flat, source.fields, strict=True)
        ]
        valid = column.validity()
        return Column(target, pa.StructArray.from_arrays(made, fields=fields, mask=None if valid is None else pa.array(~valid)))

    return convert


def _items(element: DataType, target: DataType, part: Any) -> Any:
    def convert(column: Column, context: EvaluationContext, reason: str | None) -> Column:
        array, valid = column.values, column.validity()
        keys, flat, offsets = entries_of(array) if target.kind is Kind.MAP else (None, array.flatten(), offsets_of(array))
        below = EvaluationContext()
        items = part(column_from_arrow(flat, element), below, reason)
        row = np.repeat(np.arange(len(array), dtype=np.int64), np.diff(offsets))
        for places, why in below.errors:
            at = row[np.sort(places)]  # rows in order, each perhaps more than once
            context.errors.append((at[np.diff(at, prepend=-1) > 0], why))
        if target.kind is Kind.LIST:
            return Column(target, list_array(offsets, items, target, valid))
        return Column(target, map_array(offsets, keys, items, target, None if valid is None else ~valid))

    return convert
