"""The kinds of random scenarios: rows of some streams and tables, and a group of three to nine queries of one kind over them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from millstream.engine.data.errors import EngineError
from millstream.engine.plan.plan import plan_select

from tests.property.oracle import values
from tests.property.oracle.expressions import Columns, literal
from tests.property.oracle.feeds import Row, source
from tests.property.oracle.join_queries import asof_query, join_query, table_query, union_query
from tests.property.oracle.nested import first_rows_query, nested_query
from tests.property.oracle.nested_types import nested_columns, nested_row, nested_values_query
from tests.property.oracle.over import over_query
from tests.property.oracle.queries import (
    Expected,
    bytes_and_times_query,
    distinct_query,
    empty_keys_query,
    empty_query,
    functions_query,
    grouped_query,
    hopped_rows,
    lag_query,
    pairs_in_windows,
    random_window,
    selection,
    top_query,
    whole_query,
)
from tests.property.oracle.scenario import (
    Scenario,
    Way,
    late_of,
    random_row,
    random_times,
    rows_of,
    same_rows,
    summed,
)
from tests.property.oracle.sets import groupings_query, set_query
from tests.property.oracle.subqueries import table_subquery, window_subquery
from tests.property.oracle.table_queries import TABLES, apply_to, changes_of, connected
from tests.property.oracle.table_queries import Maker as TableQueries
from tests.property.oracle.table_windows import table_windows_query
from tests.support import random_matches
from tests.support.catalogs import catalog_of

CLOCK_CHANGES = (1_772_863_200, 1_793_491_200, 1_541_289_600, 1_550_368_800, 1_774_746_000, 1_792_886_400)


Kept = frozenset[int] | None  # the places of the arrivals that are left in, all of them for None; queries do not depend on it


def group(choice: random.Random, make: Callable[[], Expected]) -> list[Expected]:
    """Three to nine queries, now and then the same one again, as when several people watch one thing."""
    queries = [make() for _ in range(choice.randint(3, 9))]
    if choice.random() < 0.3 and len(queries) < 9:
        queries.append(choice.choice(queries))
    return queries


def one_stream(choice: random.Random, kept: Kept, *, start: int | None = None, scale: int = 1, columns: Columns | None = None) -> Scenario:
    scenario = Scenario(choice, choice.choice([0, 2, 5]) * scale)
    columns = scenario.stream("s", columns)
    for number, moment in enumerate(random_times(choice, choice.randint(0, 40), start, scale)):
        scenario.arrivals.append(("s", random_row(choice, columns, moment, number)))
    scenario.keep(kept)
    return scenario


def two_streams(choice: random.Random, kept: Kept, *, table: bool = False) -> Scenario:
    scenario = Scenario(choice, choice.choice([0, 2, 5]))
    a, b = scenario.stream("a"), scenario.stream("b")
    if table:
        scenario.schemas["t"] = [("id", values.INT), *((f"v{i}", k) for i, k in enumerate(choice.sample(values.TYPES, 2)))]
        listed = ", ".join(f"{n} {t}" for n, t in scenario.schemas["t"])
        scenario.definitions.append(f"CREATE TABLE t ({listed}, PRIMARY KEY (id))")
    for number, moment in enumerate(random_times(choice, choice.randint(0, 30))):
        turn = choice.random()
        if table and turn < 0.25:
            row = {n: values.random_value(choice, t) for n, t in scenario.schemas["t"]} | {"id": choice.randint(0, 5)}
            scenario.arrivals.append(("t", row | ({"op": "-"} if choice.random() < 0.3 else {})))
        else:
            name, columns = ("a", a) if turn < 0.6 else ("b", b)
            scenario.arrivals.append((name, random_row(choice, columns, moment, number)))
    scenario.keep(kept)
    return scenario


def windows(seed: int, kept: Kept = None) -> Scenario:
    scenario = one_stream(random.Random(seed), kept)
    scenario.queries = group(scenario.choice, lambda: grouped_query(scenario.choice, scenario.feed("s")))
    return scenario


def local_time(seed: int, kept: Kept = None) -> Scenario:
    choice = random.Random(seed)
    scenario = one_stream(choice, kept, start=choice.choice(CLOCK_CHANGES), scale=choice.choice([600, 3_000, 9_000]))
    feed = scenario.feed("s")
    scenario.queries = group(choice, lambda: grouped_query(choice, feed, random_window(choice, feed, "zoned")))
    return scenario


def selections(seed: int, kept: Kept = None) -> Scenario:
    scenario = one_stream(random.Random(seed), kept)
    makers = [selection, selection, distinct_query, top_query, lag_query, hopped_rows, empty_query, empty_keys_query]
    scenario.queries = group(scenario.choice, lambda: scenario.choice.choice(makers)(scenario.choice, scenario.feed("s")))
    return scenario


def overs(seed: int, kept: Kept = None) -> Scenario:
    scenario = one_stream(random.Random(seed), kept)
    scenario.queries = group(scenario.choice, lambda: over_query(scenario.choice, scenario.feed("s")))
    return scenario


def nested(seed: int, kept: Kept = None) -> Scenario:
    scenario = one_stream(random.Random(seed), kept)
    scenario.queries = [nested_query(scenario, number) for number in range(scenario.choice.randint(3, 9))]
    return scenario


def unions(seed: int, kept: Kept = None) -> Scenario:
    scenario = two_streams(random.Random(seed), kept)
    scenario.queries = group(scenario.choice, lambda: union_query(scenario.choice, scenario.feed("a"), scenario.feed("b")))
    return scenario


def joins(seed: int, kept: Kept = None) -> Scenario:
    scenario = two_streams(random.Random(seed), kept)
    scenario.queries = group(scenario.choice, lambda: join_query(scenario.choice, scenario.feed("a"), scenario.feed("b")))
    return scenario


def tables(seed: int, kept: Kept = None) -> Scenario:
    scenario = two_streams(random.Random(seed), kept, table=True)
    changes = [(seq, row) for seq, (stream, row) in enumerate(scenario.arrivals) if stream == "t"]
    scenario.queries = group(scenario.choice, lambda: table_query(scenario.choice, scenario.feed("a"), changes, scenario.schemas["t"]))
    return scenario


def as_of(seed: int, kept: Kept = None) -> Scenario:
    scenario = two_streams(random.Random(seed), kept)
    scenario.queries = group(scenario.choice, lambda: asof_query(scenario.choice, scenario.feed("a"), scenario.feed("b")))
    return scenario


def table_subqueries(seed: int, kept: Kept = None) -> Scenario:
    scenario = two_streams(random.Random(seed), kept, table=True)
    changes = [(seq, row) for seq, (stream, row) in enumerate(scenario.arrivals) if stream == "t"]
    scenario.queries = group(scenario.choice, lambda: table_subquery(scenario.choice, scenario.feed("a"), changes, scenario.schemas["t"]))
    return scenario


def window_subqueries(seed: int, kept: Kept = None) -> Scenario:
    scenario = two_streams(random.Random(seed), kept)
    scenario.queries = group(scenario.choice, lambda: window_subquery(scenario.choice, scenario.feed("a"), scenario.feed("b")))
    return scenario


def sets(seed: int, kept: Kept = None) -> Scenario:
    scenario = two_streams(random.Random(seed), kept)
    choice, a, b = scenario.choice, scenario.feed("a"), scenario.feed("b")
    scenario.queries = group(choice, lambda: choice.choice([set_query(choice, a, b), groupings_query(choice, a)]))
    return scenario


def nested_values(seed: int, kept: Kept = None) -> Scenario:
    choice = random.Random(seed)
    scenario = Scenario(choice, choice.choice([0, 2, 5]))
    columns = scenario.stream("s", nested_columns(choice))
    for number, moment in enumerate(random_times(choice, choice.randint(0, 30))):
        scenario.arrivals.append(("s", nested_row(choice, columns, moment, number)))
    scenario.keep(kept)
    scenario.queries = group(choice, lambda: nested_values_query(choice, scenario.feed("s")))
    return scenario


def bytes_and_times(seed: int, kept: Kept = None) -> Scenario:
    choice = random.Random(seed)
    columns = [
        ("ts", values.BIGINT),
        ("n", values.INT),
        ("c0", values.BYTES),
        ("c1", values.TIME),
        ("c2", values.TEXT),
        ("c3", values.TIMESTAMP),
    ]
    scenario = one_stream(choice, kept, columns=columns)
    makers = [bytes_and_times_query, grouped_query, over_query, distinct_query]
    scenario.queries = group(choice, lambda: choice.choice(makers)(choice, scenario.feed("s")))
    return scenario


def functions(seed: int, kept: Kept = None) -> Scenario:
    choice = random.Random(seed)
    columns = [("ts", values.BIGINT), ("n", values.INT), ("c0", values.TEXT), ("c1", values.TIMESTAMP), ("c2", values.BIGINT)]
    scenario = one_stream(choice, kept, columns=columns)
    scenario.queries = group(choice, lambda: functions_query(choice, scenario.feed("s")))
    return scenario


def table_windows(seed: int, kept: Kept = None) -> Scenario:
    scenario = two_streams(random.Random(seed), kept, table=True)
    choice, columns = scenario.choice, scenario.schemas["t"]
    changes = [(seq, row) for seq, (stream, row) in enumerate(scenario.arrivals) if stream == "t"]
    scenario.queries = group(choice, lambda: table_windows_query(choice, scenario.feed("a"), changes, columns))
    return scenario


def gaps(seed: int, kept: Kept = None) -> Scenario:
    scenario = one_stream(random.Random(seed), kept)
    makers = [empty_query, empty_keys_query, empty_keys_query]
    scenario.queries = group(scenario.choice, lambda: scenario.choice.choice(makers)(scenario.choice, scenario.feed("s")))
    return scenario


def first_rows(seed: int, kept: Kept = None) -> Scenario:
    scenario = one_stream(random.Random(seed), kept)
    scenario.queries = group(scenario.choice, lambda: first_rows_query(scenario))
    return scenario


def ordered_aggregates(seed: int, kept: Kept = None) -> Scenario:
    scenario = one_stream(random.Random(seed), kept)
    scenario.queries = group(scenario.choice, lambda: pairs_in_windows(scenario.choice, scenario.feed("s")))
    return scenario


def patterns(seed: int, kept: Kept = None) -> Scenario:
    choice = random.Random(seed)
    scenario = Scenario(choice, choice.choice([0, 2, 5]))
    scenario.stream("s", list(random_matches.COLUMNS))
    scenario.arrivals = [("s", row) for row in random_matches.random_rows(choice, choice.randint(1, 24))]
    scenario.keep(kept)
    scenario.arrivals = [(name, {**row, "n": number}) for number, (name, row) in enumerate(scenario.arrivals)]
    rows, catalog = [row for _, row in scenario.arrivals], catalog_of(scenario.definitions)

    def query() -> Expected:
        while True:
            case = random_matches.Case(choice, rows, scenario.delay)
            try:
                plan_select(case.text, catalog)
            except EngineError as error:
                if "is always the first row" not in str(error):
                    raise
                continue
            return Expected(case.text, [list(row) for row in case.wanted()], shape="patterns")

    scenario.queries = group(choice, query)
    return scenario


def tables_that_change(seed: int, kept: Kept = None) -> Scenario:
    choice = random.Random(seed)
    scenario = Scenario(choice, 0)
    scenario.definitions = list(TABLES.values())
    for name in TABLES:
        scenario.schemas[name] = [("id", values.INT), ("a", values.INT), ("b", values.INT), ("c", values.TEXT)]
    for _ in range(choice.randint(2, 8)):
        name = choice.choice(list(TABLES))
        scenario.arrivals += [(name, dict(zip(("id", "a", "b", "c", "op"), row, strict=True))) for row in changes_of(choice, name)]
    scenario.keep(kept)
    connection, maker = connected(), TableQueries(choice)
    for name, row in scenario.arrivals:
        apply_to(connection, name, [tuple(row.values())])

    def query() -> Expected:
        text, is_total = maker.query()
        rows = [list(row) for row in connection.execute(text).fetchall()]
        rows = [] if is_total and not rows[0][0] else rows
        if choice.random() < 0.4:
            scenario.definitions.append(f"CREATE MATERIALIZED VIEW v{len(scenario.definitions)} AS {text}")
            return Expected(text, rows, False, shape="a view of tables", name=f"v{len(scenario.definitions) - 1}", added=True)
        return Expected(text, rows, False, shape="tables that change", added=True)

    scenario.queries = group(choice, query)
    connection.close()
    return scenario


def altered(seed: int, kept: Kept = None) -> Scenario:
    """A stream to which a column is added, and queries that are replaced, while rows come."""
    choice = random.Random(seed)
    columns = [
        ("ts", values.BIGINT),
        ("n", values.INT),
        ("c0", values.INT),
        ("c1", choice.choice([values.TEXT, values.BYTES, values.TIME])),
    ]
    more = ("c2", choice.choice([values.DOUBLE, values.TEXT, values.BOOLEAN]))
    scenario = Scenario(choice, choice.choice([0, 2, 5]))
    scenario.stream("s", columns)
    moments = random_times(choice, choice.randint(2, 30))
    began = choice.randrange(len(moments))
    rows = [random_row(choice, [*columns, more][: None if place >= began else 4], moment, place) for place, moment in enumerate(moments)]
    arrivals: list[tuple[str, Row]] = [("s", row) for place, row in enumerate(rows) if kept is None or place in kept or place < began]
    scenario.arrivals = arrivals
    before = scenario.feed("s")
    late = max((e.watermark for e in before.events[: began + 1]), default=-math.inf)
    after = source("s", [*columns, more], [("s", row) for _, row in arrivals[began:]], scenario.delay, late)
    makers = [selection, distinct_query, lag_query, over_query, whole_query]
    queries = group(choice, lambda: choice.choice(makers)(choice, before))
    named = [replace(query, name=f"a{place}") for place, query in enumerate(queries)]
    scenario.definitions += [f"CREATE QUERY {query.name} AS {query.sql}" for query in named]
    for _, row in arrivals[:began]:
        scenario.definitions.append(f"INSERT INTO s VALUES ({', '.join(_written(row[n], t) for n, t in columns)})")
    scenario.definitions.append(f"ALTER STREAM s ADD COLUMN {' '.join(more)}")
    scenario.schemas["s"] = [*columns, more]
    for place in choice.sample(range(len(named)), len(named) // 2):
        if " EMIT " not in named[place].sql:
            named[place] = replace(choice.choice(makers)(choice, after), name=named[place].name)
            scenario.definitions.append(f"CREATE OR REPLACE QUERY {named[place].name} AS {named[place].sql}")
    scenario.queries = [*named, *(choice.choice(makers)(choice, after) for _ in range(choice.randint(0, 9 - min(9, len(named)))))]
    scenario.arrivals = arrivals[began:]
    return scenario


def _written(value: Any, kind: str) -> str:
    return "NULL" if value is None else literal(value, kind).sql


NO_TREES = (table_windows, table_subqueries, window_subqueries, sets, patterns, tables_that_change, altered)
SHAPES = {
    f.__name__: f
    for f in (
        *(windows, local_time, selections, unions, joins, tables, nested, nested_values, bytes_and_times, overs, first_rows),
        *(
            table_subqueries,
            window_subqueries,
            table_windows,
            tables_that_change,
            as_of,
            patterns,
            sets,
            ordered_aggregates,
            gaps,
            functions,
            altered,
        ),
    )
}
TREES = [shape for shape in SHAPES if SHAPES[shape] not in NO_TREES]  # of the others there is no plan object, or it is tried elsewhere


def failing(scenario: Scenario, way: Way) -> list[str]:
    """What is wrong with the answers of a scenario, run in a way; nothing when all is right."""
    outcomes = scenario.run(way)
    if outcomes.failure is not None:
        return [f"failed: {outcomes.failure}"]
    wrong = []
    for name, query in scenario.named():
        try:
            found = summed(rows_of(outcomes, name)) if query.added else rows_of(outcomes, name)
        except ValueError as problem:
            wrong.append(f"{query.shape}: {query.sql}\n  takes back a row that does not stand: {problem}")
            continue
        if not same_rows(query.rows, found, ordered=query.ordered):
            wrong.append(f"{query.shape}: {query.sql}\n  right {query.rows}\n  found {found}")
        late = late_of(outcomes, name)
        if query.late is not None and late not in (None, query.late):
            wrong.append(f"{query.shape}: {query.sql}\n  {late} late, right {query.late}")
    return wrong
