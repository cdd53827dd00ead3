"""A query as a program holds it, and the statements its verbs are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from millstream.client.connection import Answer, AsyncClient
    from millstream.client.subscriber import Pending

VERBS = ("START", "STOP", "PAUSE", "RESUME", "DROP")


def quoted(name: str) -> str:
    """Return a name as the language reads it exactly, whatever characters it has."""
    return '"' + name.replace('"', '""') + '"'


def name_of(text: str) -> str:
    """Return the name that `text`, typed on a command line, stands for: as in the language, plain words fold to lower case.

    In double quotes a name is taken as it is; so is one that is not a plain word (`a/b`, ` x `), which needs none.
    """
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1].replace('""', '"')
    return text.lower() if text.isidentifier() else text


def statement(verb: str, name: str, *, cascade: bool = False) -> str:
    """Return the statement that does `verb` to the query called `name`."""
    if verb not in VERBS:
        raise ValueError(f"{verb} is not a verb of queries")
    return f"{verb} QUERY {quoted(name)}{' CASCADE' if cascade else ''}"


class Query:
    """A submitted query. The handle is only a name: dropping the handle does not drop the query."""

    def __init__(self, client: AsyncClient, name: str) -> None:
        self.name = name
        self._client = client

    def __repr__(self) -> str:
        return f"<query {self.name}>"

    def subscribe(self, **options: Any) -> Pending:
        """Subscribe to its results (see `AsyncClient.subscribe`)."""
        return self._client.subscribe(self.name, **options)

    async def start(self) -> None:
        """Start a stopped query; it begins anew."""
        await self._do("START")

    async def stop(self) -> None:
        """Stop reading and drop its state."""
        await self._do("STOP")

    async def pause(self) -> None:
        """Stand still, keeping state and queues."""
        await self._do("PAUSE")

    async def resume(self) -> None:
        """Go on after a pause."""
        await self._do("RESUME")

    async def drop(self, *, cascade: bool = False) -> None:
        """Remove it."""
        await self._client.execute(statement("DROP", self.name, cascade=cascade))

    async def fetch(self) -> pa.Table:
        """Return what its windows hold now: what it would still answer if its inputs ended here, or the rows that stand."""
        return (await self._client.execute(f"FETCH QUERY {quoted(self.name)}")).to_arrow()

    async def explain(self, what: str = "") -> Answer:
        """Return the plan; `what` may be SEMANTICS, ANALYZE or QOS."""
        return await self._client.execute(f"EXPLAIN {what} {quoted(self.name)}".replace("  ", " "))

    async def _do(self, verb: str) -> None:
        await self._client.execute(statement(verb, self.name))
