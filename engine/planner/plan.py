"""The planner's one door: a SELECT (text, parsed, or a plan object) and a catalogue in, a physical query out.

    planned = plan_select("SELECT k, COUNT(*) FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k", catalog)
    planned.physical        the tree of recipes for the instantiator
    planned.logical         the optimised logical plan, for EXPLAIN
    planned.applied         names of the rewrites that changed it

Raises the errors of `engine/errors.py` and nothing else: SyntaxProblem, UnknownName, TypeProblem, Unsupported, InvalidDefinition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from millstream.engine.catalog import Catalog
from millstream.engine.language.statements import SelectStatement
from millstream.engine.language.syntax import Option, Query
from millstream.engine.planner.logical import LogicalQuery
from millstream.engine.planner.physical import PhysicalQuery


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """How to plan. `rules_off` names rewrites to leave out ("all" for every one); `overrides` are WITH options from outside the text.

    An override wins over the text's own WITH (CREATE QUERY … WITH, `submit(class=…)`).
    """

    rules_off: frozenset[str] = frozenset()
    overrides: tuple[Option, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """A query ready to be instantiated. `streams` and `tables` are the names it reads, in order of appearance."""

    physical: PhysicalQuery
    logical: LogicalQuery
    applied: tuple[str, ...]
    text: str
    streams: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())


def plan_select(
    source: str | Query | SelectStatement | Mapping[str, Any],
    catalog: Catalog,
    *,
    options: PlanOptions | None = None,
    text: str | None = None,
) -> PlannedQuery:
    """Plan one query. `source` is SELECT text, a parsed query, or a plan object; `text` what to show when it was parsed elsewhere."""
    raise NotImplementedError
