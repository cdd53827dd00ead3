"""What a notebook shows: rows as a table, a plan as a picture, results as a drawing that goes on. Values are escaped, so none is markup."""

from __future__ import annotations

import html
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from millstream.client.errors import MillstreamError

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_SHOWN_MAX = 50
POINTS_MAX = 10_000
REDRAW_S = 0.5
WAIT_S_MIN = 0.01  # for results, however long drawing takes: a wait of no time gives nothing
BOX_WIDTH, BOX_HEIGHT, GAP = 220, 44, 26  # of an operator in the picture, in pixels
LABEL_CHARACTERS_MAX = 34
_SAYS_MOST = ("stream", "condition", "window", "group_by", "columns", "on", "limit", "kind")  # of an operator, beside its name


def table_html(table: pa.Table) -> str:
    """Return the first rows of a table as HTML, and how many there are if that is not all."""
    from millstream.protocol.values.text import display_columns

    shown = table.slice(0, ROWS_SHOWN_MAX).combine_chunks()
    rows = [row for batch in shown.to_batches() for row in zip(*display_columns(batch), strict=True)]
    head = "".join(f"<th>{html.escape(name)}</th>" for name in shown.column_names)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(value)}</td>" for value in row) + "</tr>" for row in rows)
    more = f"<p>the first {ROWS_SHOWN_MAX} of {table.num_rows} rows</p>" if table.num_rows > ROWS_SHOWN_MAX else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def plan_svg(plan: Mapping[str, Any]) -> str:
    """Return a plan (as EXPLAIN gives it in `info`) as a picture: rows flow down from the streams."""
    boxes: list[tuple[float, int, Mapping[str, Any]]] = []
    lines: list[tuple[float, int, float, int]] = []
    root = plan.get("root", plan)
    depth = _depth(root)
    width = _place(root, depth - 1, 0, boxes, lines)
    drawn = "".join(
        f'<line x1="{_x(a)}" y1="{_y(level) + BOX_HEIGHT}" x2="{_x(b)}" y2="{_y(below)}" stroke="currentColor"/>'
        for a, level, b, below in lines
    )
    drawn += "".join(_box(at, level, node) for at, level, node in boxes)
    size = f'width="{width * (BOX_WIDTH + GAP)}" height="{depth * (BOX_HEIGHT + GAP)}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12" fill="currentColor">{drawn}</svg>'


def _inputs(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for value in node.values():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, Mapping) and "op" in one:
                yield one


def _depth(node: Mapping[str, Any]) -> int:
    return 1 + max(map(_depth, _inputs(node)), default=0)


def _place(
    node: Mapping[str, Any],
    level: int,
    left: float,
    boxes: list[tuple[float, int, Mapping[str, Any]]],
    lines: list[tuple[float, int, float, int]],
) -> float:
    """Place a node in the middle below its inputs, and return the width of all, in boxes."""
    width = 0.0
    middles = []
    for one in _inputs(node):
        width += _place(one, level - 1, left + width, boxes, lines)
        middles.append(boxes[-1][0])
    width = max(width, 1.0)
    at = sum(middles) / len(middles) if middles else left
    lines += [(middle, level - 1, at, level) for middle in middles]
    boxes.append((at, level, node))
    return width


def _x(at: float) -> float:
    return at * (BOX_WIDTH + GAP) + BOX_WIDTH / 2


def _y(level: int) -> int:
    return level * (BOX_HEIGHT + GAP)


def _box(at: float, level: int, node: Mapping[str, Any]) -> str:
    x, y = _x(at), _y(level)
    label = next((str(node[name]) for name in _SAYS_MOST if node.get(name)), "")
    short = label if len(label) <= LABEL_CHARACTERS_MAX else label[: LABEL_CHARACTERS_MAX - 1] + "…"
    return (
        f'<g><title>{html.escape(label)}</title><rect x="{x - BOX_WIDTH / 2}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6" '
        f'fill="none" stroke="currentColor"/><text x="{x}" y="{y + 18}" text-anchor="middle" font-weight="bold">'
        f'{html.escape(str(node["op"]))}</text><text x="{x}" y="{y + 34}" text-anchor="middle">{html.escape(short)}</text></g>'
    )


class LivePlot:
    """Lines through the last results: `x` against each of `y`. In a notebook the picture stands in one place and changes."""

    def __init__(self, title: str, columns: Sequence[str], x: str, y: str | Sequence[str], points_max: int = POINTS_MAX) -> None:
        self._x, self._y = x, [y] if isinstance(y, str) else list(y)
        unknown = [name for name in (x, *self._y) if name not in columns]
        if unknown:
            raise MillstreamError("unknown_name", f"{title} has no column {unknown[0]}", f"its columns are {', '.join(columns)}")
        try:
            from matplotlib import pyplot
        except ImportError:
            raise MillstreamError("unsupported", "a plot needs matplotlib, which is not installed", "pip install matplotlib") from None
        self._values: dict[str, deque[Any]] = {name: deque(maxlen=points_max) for name in (x, *self._y)}
        self.figure, self._axes = pyplot.subplots()
        pyplot.close(self.figure)  # it is shown here, not once more at the end of the cell
        self._axes.set_title(title)
        self._axes.set_xlabel(x)
        self._lines = [self._axes.plot([], [], label=name)[0] for name in self._y]
        self._axes.legend(loc="upper left")
        self._shown: Any = None

    def add(self, batch: Any) -> None:
        """Take a batch of results."""
        from millstream.protocol.values.rows import rows_of

        for row in rows_of(batch.select([name for name in batch.schema.names if name in self._values])):
            for name, values in self._values.items():
                value = row[name]
                values.append(float(value) if type(value).__name__ == "Decimal" else value)

    def draw(self) -> None:
        """Bring the picture up to date."""
        xs = list(self._values[self._x])
        for name, line in zip(self._y, self._lines, strict=True):
            known = [(a, b) for a, b in zip(xs, self._values[name], strict=True) if a is not None and b is not None]
            line.set_data([a for a, _ in known], [b for _, b in known])
        self._axes.relim()
        self._axes.autoscale_view()
        display = _display()
        if display is None:
            self.figure.canvas.draw_idle()
        elif self._shown is None:
            self._shown = display(self.figure, display_id=True)
        else:
            self._shown.update(self.figure)

    def follow(self, next_item: Callable[[float | None], Any], seconds: float | None, redraw_s: float) -> None:
        """Draw what `next_item(timeout)` gives, until it gives None, `seconds` have passed, or the person interrupts."""
        now = time.monotonic()
        until, due = None if seconds is None else now + seconds, now
        try:
            while until is None or now < until:
                try:
                    item = next_item(max(WAIT_S_MIN, min(due, until or due) - now))
                    if item is None:
                        break
                    if hasattr(item, "schema"):
                        self.add(item)
                except TimeoutError:
                    pass  # nothing has come; it is time to draw
                now = time.monotonic()
                if now >= due:
                    self.draw()
                    due = time.monotonic() + redraw_s
        except KeyboardInterrupt:
            pass  # how a person ends it in a notebook
        self.draw()


def _display() -> Any:
    """Return what shows a picture in the notebook that this runs in; None outside one."""
    ipython = sys.modules.get("IPython")
    if ipython is None or ipython.get_ipython() is None:
        return None
    return import_module("IPython.display").display
