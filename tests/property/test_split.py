"""K15: a query that is split by key answers as the whole one does, in the same order, and calls the same rows late."""

from __future__ import annotations

from dataclasses import replace

from millstream.server.run.embedded import Replay, run_replay

from tests.property.oracle.scenario import Scenario

REFUSED = "option split: this query cannot be split by key, as "


def split(scenario: Scenario, parts: int) -> int:
    """Split those queries of a scenario that can be; return how many."""
    count = 0
    for place, query in enumerate(scenario.queries):
        if query.name or " WITH (" in query.sql:
            continue
        sql = f"{query.sql} WITH (split = {parts})"
        failure = run_replay(Replay(";\n".join([*scenario.definitions, sql]), ())).failure
        assert failure is None or REFUSED in str(failure), (sql, failure)
        if failure is None:
            scenario.queries[place] = replace(query, sql=sql)
            count += 1
    return count
