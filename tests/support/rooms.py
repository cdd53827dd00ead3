"""The rooms of a folder: what they hold, which floor they stand on, and which imports go up or round in a circle.

A room is a package in a folder, or a file beside the packages that the contract names. An arrow is an import of one file by another,
at whatever depth of the file: imports for type checkers and inside functions count like all others. A floor is a line of the folder's
`layers` contract in pyproject.toml, the ground last; where there is none, the floors are those with the fewest arrows up.

    python -m tests.support.rooms [--root FOLDER] [--write docs/rooms]     tables on paper, pictures into a folder

Start reading at `Picture`.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("client", "engine", "feeder", "protocol", "scheduler", "server")
TOP = "(top)"  # the room of the files that stand in no package


@dataclass(frozen=True)
class Picture:
    """A folder of modules, by their dotted names below it, and who imports whom."""

    folder: str
    sources: Mapping[str, str]
    packages: frozenset[str]
    layers: tuple[tuple[str, ...], ...] = ()  # the roof first; empty without a contract

    @cached_property
    def arrows(self) -> dict[str, set[str]]:
        """Each module and those it imports."""
        return {name: self._imports(name) - {name} for name in sorted(self.sources)}

    def _imports(self, name: str) -> set[str]:
        prefix = f"millstream.{self.folder}."
        found = set()
        for node in ast.walk(ast.parse(self.sources[name])):
            wanted: list[str] = []
            if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                wanted = [self._module(f"{node.module}.{alias.name}", node.module) for alias in node.names]
            elif isinstance(node, ast.Import):
                wanted = [alias.name for alias in node.names]
            found.update(w.removeprefix(prefix) for w in wanted if w.startswith(prefix))
        return found & set(self.sources)

    def _module(self, longer: str, shorter: str) -> str:
        return longer if longer.removeprefix(f"millstream.{self.folder}.") in self.sources else shorter

    @cached_property
    def rooms(self) -> dict[str, list[str]]:
        """Each room and its modules."""
        found: dict[str, list[str]] = {}
        for name in sorted(self.sources):
            found.setdefault(self.room(name), []).append(name)
        return found

    def room(self, module: str) -> str:
        """Return the room a module is in: its package, or itself where a contract names it among the rooms."""
        first = module.partition(".")[0]
        return first if first in self.packages or any(first in layer for layer in self.layers) else TOP

    @cached_property
    def between(self) -> Counter[tuple[str, str]]:
        """How many arrows go from a room to another."""
        pairs = ((self.room(a), self.room(b)) for a, targets in self.arrows.items() for b in targets)
        return Counter((a, b) for a, b in pairs if a != b)

    @cached_property
    def floors(self) -> list[tuple[str, ...]]:
        """The rooms by floor, the roof first."""
        placed = {room for layer in self.layers for room in layer}
        if not set(self.rooms) - {TOP} <= placed:
            return [(room,) for room in self._ordered(list(self.rooms))]
        contracted = [tuple(r for r in layer if r in self.rooms) for layer in self.layers]
        return [*([(TOP,)] if TOP in self.rooms else []), *(layer for layer in contracted if layer)]

    def _ordered(self, rooms: list[str]) -> list[str]:
        """Return rooms without a contract in the order with few arrows up: the one that is used least by the others first."""
        left, order = sorted(rooms), []
        while left:
            cost = {r: sum(self.between[other, r] - self.between[r, other] for other in left) for r in left}
            first = min(left, key=lambda r: (sum(self.between[other, r] for other in left), cost[r], r))
            order.append(first)
            left.remove(first)
        return self._improved(order)

    def _improved(self, order: list[str]) -> list[str]:
        """Move single rooms as long as that leaves fewer arrows up."""
        best, count = order, self._against(order)
        moved = True
        while moved:
            moved = False
            for room in order:
                for place in range(len(best)):
                    other = [r for r in best if r != room]
                    other.insert(place, room)
                    if self._against(other) < count:
                        best, count, moved = other, self._against(other), True
        return best

    def _against(self, order: list[str]) -> int:
        place = {room: at for at, room in enumerate(order)}
        return sum(n for (a, b), n in self.between.items() if a in place and b in place and place[a] > place[b])

    @cached_property
    def up(self) -> list[tuple[str, str]]:
        """The arrows from a room to one on a floor above it, or beside it."""
        floor = {room: at for at, rooms in enumerate(self.floors) for room in rooms}
        pairs = [(a, b) for a, targets in self.arrows.items() for b in sorted(targets) if self.room(a) != self.room(b)]
        return [(a, b) for a, b in pairs if floor[self.room(b)] <= floor[self.room(a)]]

    @cached_property
    def circles(self) -> list[list[str]]:
        """The sets of modules that reach each other, the greatest first."""
        return sorted((sorted(c) for c in _components(self.arrows) if len(c) > 1), key=lambda c: (-len(c), c))

    @cached_property
    def namesakes(self) -> list[tuple[str, str, str]]:
        """Classes of one name in two modules of a room, or of rooms of which one imports the other: the name and both modules."""
        named: dict[str, list[str]] = {}
        for module, source in sorted(self.sources.items()):
            for node in ast.parse(source).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    named.setdefault(node.name, []).append(module)
        pairs = ((name, a, b) for name, modules in sorted(named.items()) for a, b in combinations(modules, 2))
        return [(name, a, b) for name, a, b in pairs if self._meet(self.room(a), self.room(b))]

    def _meet(self, one: str, other: str) -> bool:
        return one == other or bool(self.between[one, other] or self.between[other, one])

    def lines(self, room: str) -> int:
        """Return a room's lines of code."""
        return sum(code_lines(self.sources[module]) for module in self.rooms[room])

    def table(self) -> str:
        """Return the picture as a table in Markdown, the roof first."""
        rows = ["| room | files | lines of code | imports | imported by |", "| --- | --- | --- | --- | --- |"]
        for room in (room for rooms in self.floors for room in rooms):
            down = ", ".join(f"{b} {n}" for (a, b), n in sorted(self.between.items()) if a == room)
            above = sum(n for (_, b), n in self.between.items() if b == room)
            rows.append(f"| {room} | {len(self.rooms[room])} | {self.lines(room):,} | {down} | {above} |")
        return "\n".join(rows)

    def verdict(self) -> str:
        """Return one line: files, lines, arrows up, circles."""
        code = sum(self.lines(room) for room in self.rooms)
        sizes = ", ".join(str(len(c)) for c in self.circles) or "none"
        return f"{self.folder}: {len(self.sources)} files, {code:,} lines of code, {len(self.up)} arrows up, circles of files: {sizes}"


def pictures(root: Path = ROOT, folders: Iterable[str] = FOLDERS) -> dict[str, Picture]:
    """Return the picture of each folder below `root`."""
    contracts = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    return {folder: _picture(root / folder, _layers(contracts, folder)) for folder in folders}


def _picture(folder: Path, layers: tuple[tuple[str, ...], ...]) -> Picture:
    paths = [p for p in sorted(folder.rglob("*.py")) if "__pycache__" not in p.parts]
    names = [".".join(p.relative_to(folder).with_suffix("").parts) for p in paths]
    packages = frozenset(name.removesuffix(".__init__") for name in names if name.endswith(".__init__"))
    sources = {name.removesuffix(".__init__"): p.read_text("utf-8") for name, p in zip(names, paths, strict=True)}
    return Picture(folder.name, sources, packages, layers)


def _layers(contracts: list[dict[str, object]], folder: str) -> tuple[tuple[str, ...], ...]:
    for contract in contracts:
        if contract["type"] == "layers" and contract.get("containers") == [f"millstream.{folder}"]:
            layers = contract["layers"]
            assert isinstance(layers, list)
            return tuple(tuple(room.strip(" ()") for room in layer.replace(":", "|").split("|")) for layer in layers)
    return ()


def _components(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components (Tarjan 1972), without recursion."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []
    for start in graph:
        path = [] if start in index else [(start, iter(sorted(graph[start])))]
        if path:
            index[start] = low[start] = len(index)
            stack.append(start)
        while path:
            node, targets = path[-1]
            target = next(targets, None)
            if target is None:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == index[node]:
                    cut = stack.index(node)
                    found.append(stack[cut:])
                    del stack[cut:]
            elif target not in index:
                index[target] = low[target] = len(index)
                stack.append(target)
                path.append((target, iter(sorted(graph[target]))))
            elif target in stack:
                low[node] = min(low[node], index[target])
    return found


def code_lines(source: str) -> int:
    """Return the lines that hold code: blank ones, comments and docstrings are left out."""
    texts = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
                texts.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    layout = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.ENCODING}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in layout:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - texts)


# --- the drawing ---

BOX_WIDTH, BOX_HEIGHT, GAP, MARGIN = 230, 34, 16, 150


def drawing(picture: Picture) -> str:
    """Return an SVG: the rooms from roof to ground, imports down as arcs on the right, imports up as red arcs on the left."""
    rooms = [room for floor in picture.floors for room in floor]
    top = {room: 40 + at * (BOX_HEIGHT + GAP) for at, room in enumerate(rooms)}
    up = Counter((picture.room(a), picture.room(b)) for a, b in picture.up)
    arcs = [_arc(top[a], top[b], n, down=True) for (a, b), n in sorted(picture.between.items()) if not up[a, b]]
    arcs += [_arc(top[a], top[b], n, down=False) for (a, b), n in sorted(up.items())]
    boxes = [_box(room, top[room], len(picture.rooms[room]), picture.lines(room)) for room in rooms]
    width, height = BOX_WIDTH + 2 * MARGIN, 40 + len(rooms) * (BOX_HEIGHT + GAP) + 10
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{width // 2}" y="22" text-anchor="middle" font-weight="bold">{picture.verdict()}</text>',
        *arcs,
        *boxes,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _box(room: str, y: int, files: int, lines: int) -> str:
    text = f'<text x="{MARGIN + 10}" y="{y + 21}">{room}</text>'
    size = f'<text x="{MARGIN + BOX_WIDTH - 10}" y="{y + 21}" text-anchor="end" fill="#555">{files} files, {lines:,} lines</text>'
    return f'<rect x="{MARGIN}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="4" fill="#eef3f8" stroke="#345"/>{text}{size}'


def _arc(start: int, stop: int, imports: int, *, down: bool) -> str:
    x = MARGIN + BOX_WIDTH if down else MARGIN
    reach = min(abs(stop - start) * 0.45, MARGIN * 1.25) * (1 if down else -1)
    a, b = start + BOX_HEIGHT // 2, stop + BOX_HEIGHT // 2
    colour, weight = ("#7890a8" if down else "#c22"), min(0.6 + imports**0.5 / 4, 4.0)
    path = f"M{x} {a} C{x + reach:.0f} {a} {x + reach:.0f} {b} {x} {b}"
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{weight:.1f}"><title>{imports} imports</title></path>'


def main() -> None:
    """Print the tables of all folders; with --write, draw them too."""
    parser = argparse.ArgumentParser(description="Show the rooms of each folder: files, lines of code, arrows up, circles.")
    parser.add_argument("folders", nargs="*", default=FOLDERS)
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree to look at")
    parser.add_argument("--write", type=Path, help="draw FOLDER.svg for each folder into this directory")
    parser.add_argument("--suffix", default="", help="what a picture's name ends in")
    given = parser.parse_args()
    found = pictures(given.root, given.folders)
    for picture in found.values():
        print(f"\n{picture.verdict()}\n\n{picture.table()}\n")
        print(*(f"up: {a} -> {b}" for a, b in picture.up), *(f"circle: {', '.join(c)}" for c in picture.circles), sep="\n")
        if given.write:
            given.write.mkdir(parents=True, exist_ok=True)
            (given.write / f"{picture.folder}{given.suffix}.svg").write_text(drawing(picture), "utf-8")
    files = sum(len(p.sources) for p in found.values())
    print(f"\n{files} files, {sum(p.lines(r) for p in found.values() for r in p.rooms):,} lines of code")


if __name__ == "__main__":
    main()
