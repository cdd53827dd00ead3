"""What a one-time answer (FETCH) is planned by: every input is a finite set of rows that stand now.

A table may then stand anywhere in FROM: where a continuous query allows it (on the right of a join with a stream) it is joined as there,
elsewhere its rows are read like those of a stream that has ended. Two such inputs may be joined without a bound in time. Rows
without an event time (those of tables, and kept results whose time is not among their columns) take no window and no bound in time.
"""

from __future__ import annotations

from millstream.engine.data.errors import Unsupported
from millstream.engine.plan.logical import AsofJoin, Join, Node, Scan, TableScan, Window, walk_plan

_ROWS_OF = "\x00"  # no name begins with it


def table_rows(table: str) -> str:
    """Return the name under which the rows of a table are read as a stream."""
    return _ROWS_OF + table


def table_of_rows(stream: str) -> str | None:
    """Return the table whose rows are read under this name, None for any other name."""
    return stream.removeprefix(_ROWS_OF) if stream.startswith(_ROWS_OF) else None


def as_scan(node: Node) -> Node:
    """Return a table's scan as one of its rows; any other node as it is."""
    return Scan(attributes=node.attributes, stream=table_rows(node.table)) if isinstance(node, TableScan) else node


def check_times(root: Node, timeless: frozenset[str]) -> None:
    """Refuse windows and bounds in time over inputs whose rows have no event time; `timeless` names kept results that have none."""
    for node in walk_plan(root):
        bounded = isinstance(node, Join) and (node.lower_us is not None or node.upper_us is not None)
        if not bounded and not isinstance(node, Window | AsofJoin):
            continue
        for below in walk_plan(node):
            if isinstance(below, Scan) and (below.stream in timeless or table_of_rows(below.stream) is not None):
                name = table_of_rows(below.stream) or below.stream
                hint = "leave the window or bound in time out" if below.stream not in timeless else "let the query select its event time"
                raise Unsupported(f"the rows of {name} have no event time, so no window or bound in time fits them", hint=hint)
