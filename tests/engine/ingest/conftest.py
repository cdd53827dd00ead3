"""What the ingest tests share: a coercer from a few words, and the accepted rows as Python values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from millstream.engine.data.event_time import event_times, time_position
from millstream.engine.data.schema import Field, Schema, StreamDefinition, TimeRule
from millstream.engine.data.types import DataType
from millstream.engine.expressions.strings import as_list
from millstream.engine.expressions.text_columns import format_column
from millstream.engine.ingest.checks import Coerced
from millstream.engine.ingest.coerce import Coercer


def make_coercer(*columns: tuple[Any, ...], time: TimeRule | None = None, extra: str = "ignore") -> Coercer:
    """Columns are (name, type) or (name, type, nullable)."""
    definition = StreamDefinition("s", Schema(tuple(Field(*c) for c in columns)), time or TimeRule())
    return Coercer(definition, ignore_extra=extra == "ignore")


def accepted_times(stream: Coercer, result: Coerced) -> list[int]:
    assert isinstance(stream.definition, StreamDefinition)
    position = time_position(stream.definition)
    assert position is not None
    times: list[int] = event_times(result.columns[position], stream.definition.time).tolist()
    return times


def accepted_rows(result: Coerced) -> list[tuple[Any, ...]]:
    assert all(len(c) == result.rows for c in result.columns)
    return list(zip(*(as_list(c) for c in result.columns), strict=True))


def accepted_texts(result: Coerced) -> list[tuple[str | None, ...]]:
    return list(zip(*(format_column(c).to_pylist() for c in result.columns), strict=True))


@pytest.fixture(scope="session")
def coercer() -> Callable[..., Coercer]:
    return make_coercer


@pytest.fixture(scope="session")
def rows_of() -> Callable[[Coerced], list[tuple[Any, ...]]]:
    return accepted_rows


@pytest.fixture(scope="session")
def texts_of() -> Callable[[Coerced], list[tuple[str | None, ...]]]:
    return accepted_texts


@pytest.fixture(scope="session")
def one_type() -> Callable[..., Coercer]:
    """A coercer of a single nullable column v."""

    def make(type_: DataType, **time: Any) -> Coercer:
        rule = TimeRule("v", unit_round=time.get("unit") == "ns", **time) if time else None
        return make_coercer(("v", type_), time=rule)

    return make


@pytest.fixture(scope="session")
def times_of() -> Callable[[Coercer, Coerced], list[int]]:
    """The event times of the accepted rows."""
    return accepted_times
