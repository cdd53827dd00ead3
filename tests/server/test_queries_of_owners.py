"""A connection's queries are looked up on the loop's thread while the thread of the statements makes and drops others."""

from __future__ import annotations

from typing import Any

from millstream.server.host.queries import QueryBook


class Nosy:
    """A query at which others come, in the midst of a look over all."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.found = found

    @property
    def owner(self) -> str:
        self.found[f"q{len(self.found)}"] = self
        return "peer"


def test_queries_may_come_while_those_of_an_owner_are_looked_up() -> None:
    queries = QueryBook()
    for name in ("q0", "q1"):
        queries._by_name[name] = Nosy(queries._by_name)  # type: ignore[assignment]
    assert len(queries.owned_by("peer")) == 2
