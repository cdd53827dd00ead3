"""A catalogue to plan against, and the plan of a text."""

from __future__ import annotations

import json
from typing import Any

from millstream.engine.language.parse import parse_script
from millstream.engine.language.statements import CreateClass, CreateStream, CreateTable
from millstream.engine.plan.catalog import Catalog
from millstream.engine.plan.plan import PlannedQuery, PlanOptions, plan_select

DEFINITIONS = """
CREATE STREAM s (ts TIMESTAMP, k BIGINT, v DOUBLE, name TEXT, d DECIMAL(10, 2), i INT) TIMESTAMP BY ts DELAY 2 SECONDS;
CREATE STREAM r (ts TIMESTAMP, k INT, w DOUBLE) TIMESTAMP BY ts;
CREATE STREAM m (t BIGINT, k BIGINT) TIMESTAMP BY t UNIT ms;
CREATE STREAM a (k BIGINT, x INT);
CREATE TABLE tab (k BIGINT, label TEXT, PRIMARY KEY (k));
CREATE CLASS gold PRIORITY 6;
"""


def make_catalog(definitions: str = DEFINITIONS) -> Catalog:
    """Return a catalogue with the definitions of a script."""
    catalog = Catalog()
    for statement, _ in parse_script(definitions):
        assert isinstance(statement, CreateStream | CreateTable | CreateClass)
        catalog.add(statement.definition)
    return catalog


def plan(source: Any, *, off: str = "", catalog: Catalog | None = None) -> PlannedQuery:
    """Plan a query, text or plan object (also as JSON); `off` names rewrites to leave out."""
    if isinstance(source, str) and source.startswith("{"):
        source = json.loads(source)
    return plan_select(source, catalog or make_catalog(), options=PlanOptions(frozenset(off.split())))
