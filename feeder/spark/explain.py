"""How the queries of a script would be cut, in words."""

from __future__ import annotations

from collections.abc import Iterator

from millstream.feeder.spark.cuts import ANYWHERE, BY_KEY, MERGEABLE, Cut, schema_of
from millstream.feeder.spark.pieces import whole_or_cut
from millstream.feeder.spark.script import read_script

_WAYS = {
    ANYWHERE: "runs where the rows are; nothing is shuffled",
    BY_KEY: "all rows of a key are brought together",
    MERGEABLE: "each stretch of rows is aggregated where it is, then the parts are merged",
}


def explained(text: str) -> Iterator[str]:
    """Yield the lines. Raises the engine's errors for the script."""
    script = read_script(text)
    if script.whole is not None:
        yield f"the whole script runs in one task: {script.whole}"
        return
    for number, query in enumerate(script.queries):
        if number:
            yield ""
        found = whole_or_cut(query.root)
        yield f"{query.name}: {_WAYS.get(found.label, f'runs in one place: {found.reason}')}"
        width = max(len(line.operator) for line in found.operators)
        for line in found.operators:
            yield f"  {line.operator.ljust(width)}  {line.label}"
        yield from _shuffles(found)


def _shuffles(found: Cut) -> Iterator[str]:
    if found.second is None:
        return
    for exchange in found.exchanges:
        names = [schema_of(exchange.root).fields[k].name for k in exchange.keys]
        by = f"by {', '.join(names)}" if names else "to one bucket"
        yield f"  shuffle: rows of {', '.join(exchange.streams)} {by}"
    if found.rest is not None:
        yield f"  then in one place: {found.reason}"
