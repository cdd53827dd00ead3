"""Queries over queries: subqueries, CTEs, derived streams; and windows by local time."""

from __future__ import annotations

import math
import random
from typing import Any

from tests.property.oracle.expressions import Maker
from tests.property.oracle.feeds import END, Event, Feed, Row, selected
from tests.property.oracle.queries import Expected, derived, from_item, grouped_query, random_grouped, random_window, ranked, selection
from tests.property.oracle.scenario import Scenario
from tests.property.oracle.values import TYPES, key_of

OVER = ("tumbling", "hopping", "session", "sliding", "rows", "none")


def inner_feed(choice: random.Random, feed: Feed) -> tuple[str, Feed]:
    """A query that gives a feed: its text and what it gives."""
    made = derived(choice, feed) if choice.random() < 0.5 else None
    if made is not None:
        return made
    condition = Maker(choice, feed.columns).condition(2)
    return f"SELECT {', '.join(n for n, _ in feed.columns)} FROM {feed.sql} WHERE {condition.sql}", selected(feed, condition, "")


def changes_query(scenario: Scenario) -> Expected:
    """An aggregate without a window over another, whose changes it follows."""
    choice, feed = scenario.choice, scenario.feed("s")
    window = random_window(choice, feed, choice.choice(["none", "none", "tumbling", "sliding"]))
    parts = random_grouped(choice, feed.columns, window, plain=True, prefix="v")
    columns = [(n, t) for n, t in parts.columns if t in TYPES and not n.startswith("window")]
    if not columns:
        return grouped_query(choice, feed)
    rows = [row for _, _, row in parts.answer(feed)]
    inner = Feed(f"(SELECT {parts.select} FROM {from_item(window, feed)}{parts.tail})", columns)
    inner.events = [Event(END, [(0, row) for row in rows], math.inf)]
    expected = grouped_query(choice, inner, random_window(choice, inner, "none"), alias=" q", ordered=False)
    return Expected(expected.sql, expected.rows, False, None, True, f"an aggregate over {window.kind}")


def final_query(scenario: Scenario, number: int) -> Expected:
    """A selection over an aggregate without a window, EMIT FINAL: of a derived stream, which gives changes, in any order."""
    choice, feed = scenario.choice, scenario.feed("s")
    window = random_window(choice, feed, "none")
    parts = random_grouped(choice, feed.columns, window, plain=True, prefix=f"f{number}_")
    columns = [(n, t) for n, t in parts.columns if t in TYPES]
    if not columns:
        return grouped_query(choice, feed)
    text = f"SELECT {parts.select} FROM {feed.sql}{parts.tail}"
    way = choice.choice(["subquery", "cte", "derived"])
    inner = Feed(f"({text}) q" if way == "subquery" else f"final{number}", columns)
    inner.events = [Event(END, [(0, row) for _, _, row in parts.answer(feed)], math.inf)]
    if way == "derived":
        scenario.definitions.append(f"CREATE STREAM final{number} AS {text}")
    expected = selection(choice, inner, ordered=way != "derived")
    head = f"WITH final{number} AS ({text}) " if way == "cte" else ""
    return Expected(f"{head}{expected.sql} EMIT FINAL", expected.rows, way != "derived", None, shape=f"final over a {way}")


def first_rows_query(scenario: Scenario) -> Expected:
    """The first rows of each group so far, EMIT FINAL (K24): some of their columns, or an aggregate of them."""
    choice, feed = scenario.choice, scenario.feed("s")
    names = [n for n, _ in feed.columns]
    group, by = choice.sample([n for n in names if n != "n"], 2)
    down, limit = by == "ts" or choice.random() < 0.5, choice.randint(1, 3)  # rising by event time it is K23
    members: dict[Any, list[Row]] = {}
    for row in feed.rows():
        members.setdefault(key_of(row[group]), []).append(row)
    first = [row for mine in members.values() for row in ranked(mine, by, down)[:limit]]
    order = f"{by}{' DESC' if down else ''}"
    if limit == 1 and choice.random() < 0.5:
        text = f"SELECT DISTINCT ON ({group}) {', '.join(names)} FROM {feed.sql} ORDER BY {group}, {order}"
    else:
        inside = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY {group} ORDER BY {order}) AS place FROM {feed.sql}"
        text = f"SELECT {', '.join(names)} FROM ({inside}) WHERE place <= {limit}"
    inner = Feed(f"({text}) q", feed.columns)
    inner.events = [Event(END, [(0, row) for row in first], math.inf)]
    if choice.random() < 0.5:
        expected = selection(choice, inner, ordered=False)
        return Expected(f"{expected.sql} EMIT FINAL", expected.rows, False, shape="first rows")
    inner.sql = f"({text})"
    expected = grouped_query(choice, inner, random_window(choice, inner, "none"), alias=" q", ordered=False)
    return Expected(expected.sql, expected.rows, False, None, True, "an aggregate over first rows")


def nested_query(scenario: Scenario, number: int) -> Expected:
    """A subquery, a CTE or a derived stream, and something over it; twice over for some."""
    choice = scenario.choice
    if choice.random() < 0.25:
        way = choice.random()
        return changes_query(scenario) if way < 0.35 else final_query(scenario, number) if way < 0.65 else first_rows_query(scenario)
    feed = scenario.feed("s")
    way = choice.choice(["subquery", "cte", "derived", "derived twice"])
    text, inner = inner_feed(choice, feed)
    head, alias = "", ""
    if way == "subquery":
        inner.sql, alias = f"({text})", " q"
    elif way == "cte":
        inner.sql, head = f"part{number}", f"WITH part{number} AS ({text}) "
    else:
        inner.sql = f"part{number}"
        scenario.definitions.append(f"CREATE STREAM part{number} AS {text}")
        if way == "derived twice" and not inner.sql.startswith("("):
            text, inner = inner_feed(choice, inner)
            inner.sql = f"more{number}"
            scenario.definitions.append(f"CREATE STREAM more{number} AS {text}")
    if choice.random() < 0.3:
        if alias:
            inner.sql += alias
        expected = selection(choice, inner)
        expected.late = None
    else:
        expected = grouped_query(choice, inner, random_window(choice, inner, choice.choice(OVER)), alias=alias)
    return Expected(head + expected.sql, expected.rows, expected.ordered, None, expected.sums, f"{expected.shape} over a {way}")
