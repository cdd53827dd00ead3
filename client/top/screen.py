"""The screen of `millstream top`: four panes that sort, filter and scroll, and what opens from them. Textual draws it.

On a large terminal all panes are seen at once; on a small one the pane in use, and the names of the others above it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from millstream.client.errors import MillstreamError
from millstream.client.statements import query_statement, quoted
from millstream.client.top.model import PANES, Board, Column, Look, board, details, operators
from rich.cells import cell_len
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical, VerticalScroll
from textual.events import Resize
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, OptionList, Static
from textual.widgets.option_list import Option

SMALL_WIDTH, SMALL_HEIGHT = 100, 32  # below either, one pane is seen at a time
BOX_WIDTH_MAX, BOX_FRAME = 120, 10  # of a list to choose from, its border, padding and scroll bar
BAD, DOUBTFUL = "bold red", "yellow"
STYLES = {"failed": BAD, "missed": BAD, "paused": DOUBTFUL, "stopped": DOUBTFUL, "ended": DOUBTFUL}
HELP = """\
1 2 3 4   queries, streams, classes and policy, workers
Tab       next pane
↑ ↓ ← →   move and scroll; also PgUp, PgDn, Home, End
s  S      sort by the next column, by the one before
r         turn the order round
/         show only rows with a text; Esc shows all again
Enter     open what is under the cursor
space     pause the query under the cursor, or resume it
p         choose another policy
q         leave"""


class Source(Protocol):
    """The server, as the screen needs it. Both methods may wait; both raise MillstreamError."""

    @property
    def server(self) -> str:
        """Its address."""

    def look(self) -> Look:
        """Ask for everything that is shown."""

    def execute(self, statement: str) -> Iterable[Mapping[str, Any]]:
        """Run a statement."""


@dataclass
class Order:
    """How a pane is sorted and filtered."""

    sort: str | None = None
    descending: bool = True
    filter: str = ""


class PaneTable(DataTable[Text]):
    """A pane: its rows by their key, so that cursor and scroll position stay with a row while its figures change."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select_cursor", "Open"),
        Binding("space", "app.pause", "Pause/resume"),
        Binding("home", "scroll_top", "First", show=False),
        Binding("end", "scroll_bottom", "Last", show=False),
    ]

    def __init__(self, name: str, columns: Iterable[Column]) -> None:
        super().__init__(id=name, cursor_type="row", zebra_stripes=True)
        self.pane_columns = tuple(columns)
        self.order = Order()
        self._heads: list[Text] = []

    def on_mount(self) -> None:
        """Make the columns."""
        self._make_columns([])

    def _make_columns(self, rows: list[tuple[str, list[str]]]) -> None:
        """Make the columns anew, as wide as their heads and cells, and no narrower than they were.

        Textual measures cells when it is idle. Lines that it draws before are cut off at the old width, and it keeps them.
        """
        heads = [self._head(column) for column in self.pane_columns]
        widths = [max(head.cell_len, width) for head, width in zip(heads, self._needed(rows), strict=True)]
        if heads == self._heads:
            widths = [max(width, column.width) for width, column in zip(widths, self.ordered_columns, strict=True)]
        self.clear(columns=True)
        self._heads = heads
        for column, head, width in zip(self.pane_columns, heads, widths, strict=True):
            self.add_column(head, key=column.key, width=width)

    def _needed(self, rows: list[tuple[str, list[str]]]) -> list[int]:
        """Return how wide the cells of each column are."""
        return [max((cell_len(cells[place]) for _, cells in rows), default=0) for place in range(len(self.pane_columns))]

    def _head(self, column: Column) -> Text:
        arrow = "" if self.order.sort != column.key else "↓" if self.order.descending else "↑"
        return Text(f"{column.title}{arrow}", justify="right" if column.to_the_right else "left")

    def show(self, rows: list[tuple[str, list[str]]]) -> None:
        """Show (key, cells) in this order."""
        has_columns = self._heads == [self._head(column) for column in self.pane_columns] and all(
            width <= column.width for width, column in zip(self._needed(rows), self.ordered_columns, strict=True)
        )
        if has_columns and [key for key, _ in rows] == [str(row.key.value) for row in self.ordered_rows]:
            for key, cells in rows:
                for column, cell in zip(self.pane_columns, cells, strict=True):
                    text = self._cell(column, cell)
                    if self.get_cell(key, column.key) != text:
                        self.update_cell(key, column.key, text)
            return
        at, top, left = self.key_at_cursor, self.scroll_y, self.scroll_x
        if has_columns:
            self.clear()
        else:
            self._make_columns(rows)
        for key, cells in rows:
            self.add_row(*(self._cell(column, cell) for column, cell in zip(self.pane_columns, cells, strict=True)), key=key)
        place = next((i for i, (key, _) in enumerate(rows) if key == at), 0)
        self.move_cursor(row=place, animate=False, scroll=False)
        self.scroll_to(left, top, animate=False)

    @staticmethod
    def _cell(column: Column, cell: str) -> Text:
        return Text(cell, style=STYLES.get(cell, ""), justify="right" if column.to_the_right else "left", no_wrap=True)

    @property
    def key_at_cursor(self) -> str | None:
        """The key of the row under the cursor; None where there is none."""
        if not self.row_count:
            return None
        return str(self.coordinate_to_cell_key(self.cursor_coordinate).row_key.value)

    def sort_by_next(self, step: int) -> None:
        """Sort by the next column, or the one before it; behind the last one stands the server's own order."""
        keys = [None, *(column.key for column in self.pane_columns)]
        self.order.sort = keys[(keys.index(self.order.sort) + step) % len(keys)]
        column = next((column for column in self.pane_columns if column.key == self.order.sort), None)
        self.order.descending = column is not None and column.to_the_right  # the greatest figure first, names from A


class Details(ModalScreen[None]):
    """Everything known of one thing, as text to scroll."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter", "dismiss", "Close")]

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self._title, self._text = title, text

    def compose(self) -> ComposeResult:
        """Make the box."""
        with VerticalScroll(id="box") as box:
            box.border_title = self._title
            box.border_subtitle = "Esc closes"
            yield Static(Text(self._text), id="text")

    def add(self, text: str) -> None:
        """Put more text below."""
        self._text += text
        self.query_one("#text", Static).update(Text(self._text))


class Choice(ModalScreen[str | None]):
    """A list to choose one of."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "dismiss(None)", "Close")]

    def __init__(self, title: str, options: Iterable[tuple[str, str]]) -> None:
        super().__init__()
        self._title, self._options = title, tuple(options)

    def compose(self) -> ComposeResult:
        """Make the list."""
        width = max((len(name) for name, _ in self._options), default=0)
        room = min(self.app.size.width * 9 // 10, BOX_WIDTH_MAX) - BOX_FRAME - width
        shown = (
            Option(f"{name:{width}}  {words if len(words) <= room else words[: room - 1] + '…'}", id=name) for name, words in self._options
        )
        choices = OptionList(*shown, id="box", markup=False)
        choices.border_title = self._title
        choices.border_subtitle = "Enter chooses, Esc closes"
        yield choices

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Answer with the one that was chosen."""
        self.dismiss(event.option.id)


class TopScreen(App[None]):
    """The application. `every_s` is the time between two looks."""

    TITLE = "millstream top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #summary { height: 2; padding: 0 1; background: $panel; }
    #tabs { height: 1; padding: 0 1; display: none; }
    #panes { layout: grid; grid-size: 3 2; grid-rows: 3fr 2fr; grid-columns: 43fr 47fr 30fr; }
    .pane { border: round $primary-darken-1; border-title-color: $text; }
    .pane:focus-within { border: round $accent; }
    .pane DataTable { height: 1fr; background: $surface; scrollbar-size-vertical: 1; }
    #pane-queries { column-span: 3; }
    .-small #tabs { display: block; }
    .-small #panes { grid-size: 1 1; grid-rows: 1fr; grid-columns: 1fr; }
    .-small .pane { display: none; column-span: 1; border: none; }
    .-small .pane.-active { display: block; }
    #filter { display: none; height: 1; border: none; padding: 0 1; }
    #filter.-open { display: block; }
    Details, Choice { align: center middle; }
    #box { width: 90%; max-width: 120; height: auto; max-height: 90%; border: round $accent; background: $surface; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(number), f"pane('{pane.name}')", pane.title, show=False) for number, pane in enumerate(PANES, 1)),
        Binding("s", "sort(1)", "Sort"),
        Binding("S", "sort(-1)", "Sort back", show=False),
        Binding("r", "reverse", "Reverse"),
        Binding("slash", "filter", "Filter"),
        Binding("escape", "all_rows", "All rows", show=False),
        Binding("p", "policy", "Policy"),
        Binding("question_mark", "help", "Keys", key_display="?"),
        Binding("q", "quit", "Leave"),
        Binding("ctrl+c", "quit", show=False, priority=True),  # as of any command, also with a box open
    ]

    def __init__(self, source: Source, every_s: float = 1.0) -> None:
        super().__init__()
        self.board: Board | None = None
        self._source = source
        self._every_s = every_s
        self._before: Look | None = None
        self._looking = False
        self._trouble = ""
        self._active = PANES[0].name

    def compose(self) -> ComposeResult:
        """Make the widgets."""
        yield Static(id="summary")
        yield Static(id="tabs")
        with Container(id="panes"):
            for pane in PANES:
                with Vertical(classes="pane", id=f"pane-{pane.name}"):
                    yield PaneTable(pane.name, pane.columns)
        yield Input(placeholder="show only rows with this text", id="filter", compact=True)
        yield Footer(compact=True)

    async def on_mount(self) -> None:
        """Look at once, then again and again."""
        self.action_pane(PANES[0].name)
        self._head()
        self.set_interval(self._every_s, self.look)
        self.run_worker(self.look())

    def on_resize(self, event: Resize) -> None:
        """Show one pane at a time where there is little room."""
        self.screen_stack[0].set_class(event.size.width < SMALL_WIDTH or event.size.height < SMALL_HEIGHT, "-small")

    async def look(self) -> None:
        """Look at the server and show what it says; a server that cannot be reached is asked again the next time."""
        if self._looking:
            return
        self._looking = True
        try:
            now = await asyncio.to_thread(self._source.look)
            self.board = board(now, self._before)
            self._before, self._trouble = now, ""
        except MillstreamError as error:
            self._trouble = str(error)
        finally:
            self._looking = False
        self._show()

    # --- what is seen ---

    def _table(self, name: str) -> PaneTable:
        return self.screen_stack[0].query_one(f"#{name}", PaneTable)

    def _show(self) -> None:
        self._head()
        if self.board is None:
            return
        for name, pane in self.board.panes.items():
            table, box = self._table(name), self.screen_stack[0].query_one(f"#pane-{name}", Vertical)
            order = table.order
            rows = pane.shown(order.sort, descending=order.descending, filter=order.filter)
            table.show(rows)
            counted = f"{len(rows)} of {len(pane.rows)}" if order.filter else str(len(pane.rows))
            box.border_title = f"{pane.title} ({counted})" if name != "workers" else pane.title
            box.border_subtitle = f"policy {self.board.policy}" if name == "classes" else f"with “{order.filter}”" if order.filter else ""

    def _head(self) -> None:
        base = self.screen_stack[0]
        first = Text(self._source.server)
        second = Text(overflow="ellipsis", no_wrap=True)
        if self.board is not None:
            first.append("  policy ", "dim").append(self.board.policy, "bold")
            for word, figure in self.board.summary:
                second.append(f"{word} ", "dim").append(f"{figure}   ")
        if self._trouble:
            second = Text(f"{self._trouble}; asking again", BAD, overflow="ellipsis", no_wrap=True)
        first.no_wrap, first.overflow = True, "ellipsis"
        base.query_one("#summary", Static).update(Text("\n").join([first, second]))
        tabs = Text(no_wrap=True, overflow="ellipsis")
        for number, pane in enumerate(PANES, 1):
            here = pane.name == self._active
            found = None if self.board is None else self.board.panes[pane.name]
            shown = f"{number} {pane.title}" + (f" ({len(found.rows)})" if found is not None and pane.name != "workers" else "")
            tabs.append(f" {shown} ", "reverse" if here else "").append(" ")
        base.query_one("#tabs", Static).update(tabs)

    # --- keys ---

    def action_pane(self, name: str) -> None:
        """Go to a pane."""
        self._active = name
        for pane in PANES:
            self.screen_stack[0].query_one(f"#pane-{pane.name}", Vertical).set_class(pane.name == name, "-active")
        self._table(name).focus()
        self._head()

    def on_descendant_focus(self) -> None:
        """Remember the pane in use."""
        if isinstance(self.focused, PaneTable) and self.focused.id and self.focused.id != self._active:
            self.action_pane(self.focused.id)

    def action_sort(self, step: int) -> None:
        """Sort the pane by the next column."""
        self._table(self._active).sort_by_next(step)
        self._show()

    def action_reverse(self) -> None:
        """Turn the order round."""
        order = self._table(self._active).order
        order.descending = not order.descending
        self._show()

    def action_filter(self) -> None:
        """Ask for the text that rows must hold."""
        field = self.query_one("#filter", Input)
        field.add_class("-open")
        field.value = self._table(self._active).order.filter
        field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while the text is typed."""
        self._table(self._active).order.filter = event.value
        self._show()

    def on_input_submitted(self) -> None:
        """Go back to the pane."""
        self.query_one("#filter", Input).remove_class("-open")
        self._table(self._active).focus()

    def action_all_rows(self) -> None:
        """Show all rows again."""
        self.query_one("#filter", Input).remove_class("-open")
        self._table(self._active).order.filter = ""
        self._table(self._active).focus()
        self._show()

    async def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open what is under the cursor."""
        key, name = str(event.row_key.value), str(event.data_table.id)
        if self._before is None or name == "workers":
            return
        screen = Details(key, details(self._before, name, key))
        await self.push_screen(screen)
        if name == "queries":
            rows = await self._do(f"EXPLAIN ANALYZE {quoted(key)}")
            if rows is not None and screen.is_attached:
                screen.add(f"\n\n{operators(rows)}")

    def action_pause(self) -> None:
        """Pause the query under the cursor, or resume it, if the answer is yes."""
        key = self._table("queries").key_at_cursor
        row = None if self.board is None else next((row for row in self.board.panes["queries"].rows if row["name"] == key), None)
        if self._active != "queries" or key is None or row is None:
            return
        verb = "RESUME" if row["state"] == "paused" else "PAUSE"

        def answered(answer: str | None) -> None:
            if answer == "yes":
                self.run_worker(self._steer(query_statement(verb, key), f"{verb.lower()}d {key}"))

        self.push_screen(Choice(f"{verb.capitalize()} query {key}?", [("no", "leave it as it is"), ("yes", "do it")]), answered)

    def action_policy(self) -> None:
        """Let another policy be chosen."""

        def chosen(name: str | None) -> None:
            if name is not None:
                self.run_worker(self._steer(f"SET POLICY {quoted(name)}", f"policy {name} is in use"))

        self.push_screen(Choice("Policy", () if self.board is None else self.board.policies), chosen)

    def action_help(self) -> None:
        """Show the keys."""
        self.push_screen(Details("Keys", HELP))

    async def _steer(self, statement: str, done: str) -> None:
        if await self._do(statement) is not None:
            self.notify(done)
            await self.look()

    async def _do(self, statement: str) -> list[Mapping[str, Any]] | None:
        """Run a statement; None, and a message on the screen, when it is refused."""
        try:
            return await asyncio.to_thread(lambda: list(self._source.execute(statement)))
        except MillstreamError as error:
            self.notify(str(error), severity="error", markup=False)
            return None
