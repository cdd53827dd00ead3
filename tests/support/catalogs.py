"""A catalogue of the definitions of a script, derived streams included, without a server."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.engine.language.parse import parse_statement
from millstream.engine.language.statements import CreateDerivedStream, CreateStream, CreateTable
from millstream.engine.plan.catalog import Catalog
from millstream.engine.plan.plan import derived_stream, plan_select


def catalog_of(definitions: Sequence[str]) -> Catalog:
    """Return a catalogue to plan queries against."""
    catalog = Catalog()
    for text in definitions:
        statement = parse_statement(text)
        if isinstance(statement, CreateDerivedStream):
            catalog.add(derived_stream(statement.name, plan_select(statement.query, catalog, text=statement.text)))
        else:
            assert isinstance(statement, CreateStream | CreateTable)
            catalog.add(statement.definition)
    return catalog
