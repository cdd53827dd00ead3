"""A script as Spark gets it: definitions, and each query with its plan over the streams that rows come to.

The same text gives the same plans in the driver and in every task, so that the text is all that is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from millstream.engine.data.errors import EngineError
from millstream.engine.data.schema import Schema, StreamDefinition
from millstream.engine.language.parse import parse_script, placed_in_script
from millstream.engine.language.statements import (
    CreateClass,
    CreateDerivedStream,
    CreateQuery,
    CreateStream,
    Option,
    SelectStatement,
    Statement,
)
from millstream.engine.plan.catalog import Catalog
from millstream.engine.plan.physical import InputRef, PhysicalNode, SourceNode
from millstream.engine.plan.plan import PlannedQuery, PlanOptions, derived_stream, plan_select
from millstream.feeder.errors import SourceError
from millstream.protocol.values.mapping import ColumnMap, column_maps

WHOLE = PlanOptions(overrides=(Option("split", 1),))  # Spark cuts queries by key itself
SCRIPTS_KEPT_MAX = 16
Node = PhysicalNode | SourceNode


@dataclass(frozen=True, slots=True)
class ScriptQuery:
    """A query whose rows are wanted: its name, the root of its plan with derived streams put in their place, its output."""

    name: str
    root: Node
    schema: Schema


@dataclass(slots=True)
class Script:
    """Streams by name and queries in the order of the text. `whole` says why the script can only run as a whole, None if it need not."""

    text: str
    streams: dict[str, StreamDefinition] = field(default_factory=dict)
    queries: list[ScriptQuery] = field(default_factory=list)
    whole: str | None = None
    notes: list[str] = field(default_factory=list)


@lru_cache(maxsize=SCRIPTS_KEPT_MAX)
def read_script(text: str) -> Script:
    """Return the script. Raises the engine's errors, with their place in the text."""
    return _Reading(text).read()


def maps_of(script: Script, streams: Iterable[str], maps: Sequence[str], time_formats: Sequence[str]) -> dict[str, ColumnMap]:
    """Return the map of each of these streams as `--map` and `--time-format` say. SourceError if they are wrong."""
    if not (maps or time_formats):
        return {}
    columns = {name: {f.name: str(f.type) for f in script.streams[name].schema.fields} for name in streams}
    try:
        return column_maps(maps, time_formats, columns)
    except ValueError as error:
        raise SourceError(str(error)) from None


class _Reading:
    def __init__(self, text: str) -> None:
        self.script = Script(text)
        self.catalog = Catalog()
        self.derived: dict[str, Node] = {}
        self.bare = 0

    def read(self) -> Script:
        for statement, span in parse_script(self.script.text):
            try:
                self._take(statement)
            except EngineError as problem:
                raise placed_in_script(problem, span.place) from None
            if self.script.whole is not None:
                break
        return self.script

    def _take(self, statement: Statement) -> None:
        if getattr(statement, "or_replace", False):
            self.script.whole = "OR REPLACE acts on the whole script"
        elif isinstance(statement, CreateStream):
            definition = statement.definition
            self.script.whole = _why_whole(definition)
            if self.script.whole is None and not (statement.if_not_exists and self.catalog.find(definition.name) is not None):
                self.catalog.add(definition)
                self.script.streams[definition.name] = definition
        elif isinstance(statement, CreateDerivedStream):
            planned = plan_select(statement.query, self.catalog, options=WHOLE, text=statement.text)
            self.catalog.add(derived_stream(statement.name, planned))
            self.derived[statement.name] = self._inlined(planned.physical.root)
        elif isinstance(statement, SelectStatement):
            self.bare += 1
            self._query(f"q{self.bare}", plan_select(statement, self.catalog, options=WHOLE))
        elif isinstance(statement, CreateQuery):
            self._query(statement.name, plan_select(statement.query, self.catalog, options=WHOLE, text=statement.text))
        elif not isinstance(statement, CreateClass):
            self.script.whole = f"{_words(statement)} acts on the whole script"
        else:
            self.catalog.add(statement.definition)

    def _query(self, name: str, planned: PlannedQuery) -> None:
        options = planned.physical.options
        if options.start_at_us is not None or options.lifetime_us is not None:
            self.script.whole = f"query {name} starts or ends by the clock"
            return
        if planned.functions:
            self.script.whole = f"query {name} calls a function of a user"
            return
        physical = planned.physical
        self.script.notes += [*planned.notes]
        self.script.queries.append(ScriptQuery(name, self._inlined(physical.root), physical.schema))

    def _inlined(self, node: Node, done: dict[int, Node] | None = None) -> Node:
        """Put the plans of derived streams in the place of their names."""
        done = {} if done is None else done
        found = done.get(id(node))
        if found is None:
            if isinstance(node, SourceNode):
                found = self.derived.get(node.stream, node)
            else:
                inputs = tuple(InputRef(self._inlined(ref.node, done), ref.output) for ref in node.inputs)
                found = replace(node, inputs=inputs)
            done[id(node)] = found
        return found


def _why_whole(definition: StreamDefinition) -> str | None:
    if definition.late_into is not None or definition.errors_into is not None:
        return f"stream {definition.name} sends late rows or errors to another stream"
    if definition.time.column is None:
        return f"stream {definition.name} takes its times from arrival"
    if definition.time.skew_us is not None:
        return f"stream {definition.name} compares times with the clock (SKEW)"
    return None


def _words(statement: Statement) -> str:
    name = type(statement).__name__
    return "".join(f" {letter}" if letter.isupper() else letter for letter in name).strip().upper()
