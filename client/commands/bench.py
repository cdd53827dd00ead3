"""`millstream bench`: run benchmarks, each checking its answer, and say what moved since figures were last recorded.

Benchmarks are found in the entry point group `millstream.benchmarks`, so that no folder needs to import another's. A name that no benchmark
has stands for all that begin with it: `chain` is `chain-engine` and `chain-tcp`. Several run in a process each, so that none inherits
another's memory. One that makes its events itself has a function `write` beside it in its module: it takes parts,
`--seed` and `--write`, and `--events` if it counts them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from millstream.client.benchmarks.kit import Kit

GROUP = "millstream.benchmarks"
ALL = "all"
_ONE = "from millstream.client.cli import main; main()"


@click.command()
@click.argument("name", required=False)
@click.argument("parts", nargs=-1)
@click.option("--quick", is_flag=True, help="Run for seconds instead of minutes. The checks are the same, but the figures mean little.")
@click.option("--format", "format_", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("--list", "list_", is_flag=True, help="List the benchmarks.")
@click.option(
    "--compare", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Earlier figures. The output says what has changed."
)
@click.option("--record", type=click.Path(path_type=Path, dir_okay=False), help="Where to record the figures.")
@click.option("--events", type=click.IntRange(1), help="Events to make, for nexmark.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Seed of the events, for nexmark and linear-road.")
@click.option("--write", type=click.Path(path_type=Path, file_okay=False), help="Only write the events of nexmark or linear-road here.")
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Where to draw the growth curves (needs matplotlib).")
def command(
    name: str | None,
    parts: tuple[str, ...],
    quick: bool,
    format_: str,
    list_: bool,
    compare: Path | None,
    record: Path | None,
    events: int | None,
    seed: int,
    write: Path | None,
    plot: Path | None,
) -> None:
    """Run the benchmark NAME, or all. A fast wrong answer fails.

    PARTS choose among the queries of nexmark (bench nexmark q5 q7), or say how many expressways linear-road has (bench linear-road 2).
    """
    found = _benchmarks()
    if list_ or name is None:
        for entry in found:
            click.echo(f"{entry.name:<16}{_summary(entry)}")
        return
    chosen = chosen_of(name, found)
    if not chosen:
        raise click.UsageError(f"there is no benchmark {name}; there are {', '.join(e.name for e in found)}")
    made = Chosen(quick, parts, events, seed)
    if parts or events is not None or write is not None:
        writers = [_writer(entry) for entry in chosen]
        if None in writers:
            raise click.UsageError(f"{name} has no parts and makes no events; nexmark does")
        if write is not None:
            assert writers[0] is not None
            click.echo(writers[0](made.kit(), write))
            return
    lines = _run(chosen, made, format_, compare, record)
    if plot is not None:
        from millstream.client.benchmarks.figures import draw

        draw(lines, plot)


def chosen_of(name: str, found: Sequence[EntryPoint]) -> list[EntryPoint]:
    """Return the benchmarks that a name stands for. One that has the name stands alone: its process asks for it by that name."""
    exact = [entry for entry in found if entry.name == name]
    return exact or [entry for entry in found if name == ALL or entry.name.startswith(f"{name}-")]


def _benchmarks() -> list[EntryPoint]:
    return sorted(entry_points(group=GROUP), key=lambda entry: entry.name)


def _summary(entry: EntryPoint) -> str:
    return (entry.load().__doc__ or "").strip().partition("\n")[0]


@dataclass(frozen=True, slots=True)
class Chosen:
    """What was asked for: how large, which parts, which events."""

    quick: bool
    parts: tuple[str, ...]
    events: int | None
    seed: int

    def kit(self) -> Kit:
        """Return what a benchmark in this process is handed."""
        from millstream.client.benchmarks.kit import Kit

        return Kit(self.quick, self.parts, self.events, self.seed)

    def arguments(self) -> list[str]:
        """Return the same as arguments of a process."""
        events = [] if self.events is None else ["--events", str(self.events)]
        return [*self.parts, *(["--quick"] if self.quick else []), *events, "--seed", str(self.seed)]


def _writer(entry: EntryPoint) -> Callable[[Kit, Path], str] | None:
    """Return what writes the events of a benchmark; None for one that makes none."""
    return getattr(sys.modules[entry.load().__module__], "write", None)


def _run(chosen: list[EntryPoint], made: Chosen, format_: str, compare: Path | None, record: Path | None) -> list[dict[str, Any]]:
    from millstream.client.benchmarks import figures

    before = figures.read_record(compare) if compare is not None else {}
    lines: list[dict[str, Any]] = []
    failed: list[str] = []
    for entry in chosen:
        try:
            for line in _lines(entry, made) if len(chosen) == 1 else _lines_of_a_process(entry, made):
                lines.append(line)
                if format_ == "json":
                    click.echo(figures.as_json(line))
        except click.ClickException as error:
            if len(chosen) == 1:
                raise
            failed.append(f"{entry.name}: {error.message}")
    if format_ == "table":
        _show_tables(lines)
    for line in lines:
        for sentence in figures.moved(line, before.get(figures.identity(line), {})):
            click.echo(f"moved: {line['name']}: {sentence}", err=True)
    if record is not None:
        figures.write_record(record, lines)
    if failed:
        raise click.ClickException("; ".join(failed))
    return lines


def _show_tables(lines: list[dict[str, Any]]) -> None:
    """Show a table for each benchmark: they have different columns."""
    from millstream.client.benchmarks import figures

    families: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        families.setdefault(str(line["name"]).partition("-")[0], []).append(line)
    click.echo("\n\n".join(figures.as_table(family) for family in families.values()))


def _lines(entry: EntryPoint, made: Chosen) -> Iterator[dict[str, Any]]:
    yield from entry.load()(made.kit())


def _lines_of_a_process(entry: EntryPoint, made: Chosen) -> Iterator[dict[str, Any]]:
    arguments = ["bench", entry.name, *made.arguments(), "--format", "json"]
    process = subprocess.Popen([sys.executable, "-c", _ONE, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        for text in process.stdout:
            yield json.loads(text)
        message = process.stderr.read()
    if process.returncode:
        raise click.ClickException(message.strip().removeprefix("error: ") or f"exit code {process.returncode}")
