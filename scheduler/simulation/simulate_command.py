"""The command `millstream simulate`. Nothing heavy is imported before it runs."""

from __future__ import annotations

import json
import math
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO

import click
from millstream.scheduler.names import LOADS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.scheduler.simulation.repetitions import Run, Sweep
    from millstream.scheduler.simulation.simulate import RunSettings
    from millstream.scheduler.simulation.workloads import Workload

# What the table shows; json and csv give everything.
_COLUMNS = (
    ("policy", "policy"),
    ("results", "results"),
    ("response_ms_mean", "resp ms avg"),
    ("response_ms_max", "max"),
    ("response_ms_l2", "l2"),
    ("response_ms_p50", "p50"),
    ("response_ms_p95", "p95"),
    ("response_ms_p99", "p99"),
    ("slowdown_mean", "slowdown avg"),
    ("slowdown_max", "max"),
    ("slowdown_l2", "l2"),
    ("memory_bytes_max", "memory max"),
    ("memory_bytes_mean", "avg"),
    ("utility_per_application", "utility"),
    ("throughput_per_s", "results/s"),
    ("decision_share", "deciding"),
)
# With intervals the columns are twice as wide, so there are fewer.
_WITH_INTERVALS = ("results", "response_ms_mean", "response_ms_p99", "slowdown_mean", "memory_bytes_max", "utility_per_application")


def _finite(ctx: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    if value is not None and not math.isfinite(value):  # NaN is within any bounds
        raise click.BadParameter(f"{value} is not a number")
    return value


@click.command("simulate")
@click.argument("workload", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--policy",
    "policies",
    default="round-robin,fcfs,hr,hnr",
    show_default=True,
    help="Policies, separated by commas; options of one by + (hnr:level=operator+train=10).",
)
@click.option("--seed", "seeds", default="1", show_default=True, help="Seeds of arrivals and outcomes: 1,2,3 or 1-10.")
@click.option(
    "--sweep",
    "swept",
    help="Repeat the runs for each of several values: load=0.5:0.95:0.05 (from:to:step) or load=0.5,0.9."
    " It varies load, train, decision-us or evaluation-us.",
)
@click.option(
    "--format", "form", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True, help="Form of the output."
)
@click.option("--each-run", is_flag=True, help="Give every run, not the means over the seeds.")
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw into this file (svg, pdf or png): with several seeds or a sweep the means with 95% intervals, else distributions.",
)
@click.option("--measure", "measures", help="Measures to draw, separated by commas, by the names that --format csv gives.")
@click.option("--train", help="Train of policies that name none: a count, a share of the queue, or all.")
@click.option("--utilisation", type=click.FloatRange(0, 100, min_open=True), callback=_finite, help="Scale the costs to this load.")
@click.option("--workers", type=click.IntRange(1, 1_024), help="Workers, instead of the recording's (1 for a workload).")
@click.option("--load", type=click.Choice(LOADS), help="Load manager, instead of the workload's.")
@click.option("--adapt", is_flag=True, help="Let measurements replace declared costs and selectivities.")
@click.option("--decision-us", type=click.FloatRange(0), default=0.0, callback=_finite, help="Cost of a decision in µs.")
@click.option("--evaluation-us", type=click.FloatRange(0), default=0.0, callback=_finite, help="Cost of computing a rank in µs.")
def simulate(
    workload: Path,
    policies: str,
    seeds: str,
    swept: str | None,
    form: str,
    each_run: bool,
    plot: Path | None,
    measures: str | None,
    load: str | None,
    **settings: Any,
) -> None:
    """Simulate a workload or a recording under policies.

    WORKLOAD is a TOML file of streams and queries, or a recording of a live server. The real scheduler decides; boxes with a cost and
    a selectivity stand for operators. The same seed gives the same bytes. Several seeds give means with their 95% intervals.
    """
    from millstream.scheduler.errors import SchedulerError, SimulationError
    from millstream.scheduler.simulation.plots import draw, kind_of
    from millstream.scheduler.simulation.repetitions import Sweep, every_run, mean_panels, parse_seeds, together

    try:
        chosen = parse_seeds(seeds)
        sweep = None if swept is None else Sweep.parse(swept, SWEPT)
        names = split_policies(policies)
        if plot is not None:
            kind_of(plot)
        elif measures is not None:
            raise SimulationError("--measure says what to draw, and nothing is drawn", hint="name a picture with --plot FILE")
        drawn = None if measures is None else [one.strip() for one in measures.split(",")]
        distributions = plot is not None and sweep is None and len(chosen) == 1 and measures is None
        runs = _Runs(workload, load, settings, sweep, drawn, keep=distributions)
        total = len(names) * len(chosen) * (1 if sweep is None else len(sweep.values))
        with RunProgress(total, sys.stderr) as progress:
            rows = every_run(names, chosen, sweep, progress.around(runs.run))
        keys = ["policy"] if sweep is None else ["policy", sweep.name]
        work = runs.work
        seeds_said = f"seed {chosen[0]}" if len(chosen) == 1 else f"{len(chosen)} seeds"
        click.echo(f"{work.name}: {len(work.deltas)} queries, {work.tuples} tuples, {seeds_said}", err=True)
        shown = rows if len(chosen) == 1 or each_run else together(rows, keys)
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        click.echo(shown_rows(shown, form, keys, width), nl=False)
        if form == "table" and len(names) > 1 and sweep is None:
            click.echo(best_lines(rows if len(chosen) == 1 else together(rows, keys)), nl=False, err=True)
        if plot is not None and distributions:
            _plot(work, runs.outcomes, plot)
        elif plot is not None:
            draw(mean_panels(together(rows, keys), keys, drawn), work.name, plot)
    except SchedulerError as problem:
        raise click.ClickException(str(problem)) from problem


class RunProgress:
    """A line on a terminal that says which run is under way; elsewhere nothing. It is gone when the runs have ended."""

    def __init__(self, total: int, terminal: TextIO) -> None:
        self._total, self._terminal = total, terminal
        self._begun = self._width = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._show("")

    def around(self, run: Run) -> Run:
        """Return `run`, telling of each run as it begins."""

        def told(policy: str, seed: int, value: float | None) -> Mapping[str, Any]:
            self._begun += 1
            self._show(f"run {self._begun} of {self._total}: {policy}, seed {seed}" + ("" if value is None else f", {value:g}"))
            return run(policy, seed, value)

        return told

    def _show(self, text: str) -> None:
        if self._terminal.isatty():
            line = text[:LINE_CELLS]
            self._terminal.write("\r" + line.ljust(self._width) + ("" if line else "\r"))
            self._terminal.flush()
            self._width = len(line)


LINE_CELLS = 79
HEADING_BYTES_MAX = 65_536

SWEPT = ("load", "train", "decision-us", "evaluation-us")
"""What a sweep may vary: the utilisation, and options of the command."""


class _Runs:
    """Runs the workload for a policy, a seed and a value of the sweep. `work` is the last one that was run, `outcomes` what is kept.

    The first run shows which measures there are: SimulationError where one of `drawn` is none, before the others are run.
    """

    def __init__(
        self, path: Path, load: str | None, options: Mapping[str, Any], sweep: Sweep | None, drawn: Sequence[str] | None, *, keep: bool
    ) -> None:
        self._path, self._load, self._options, self._drawn, self._keep = path, load, options, drawn or (), keep
        self._varied = "" if sweep is None else {"load": "utilisation"}.get(sweep.name, sweep.name.replace("-", "_"))
        self._read: tuple[int, tuple[Workload, RunSettings]] | None = None
        self.outcomes: list[Any] = []
        self.work: Workload

    def run(self, policy: str, seed: int, value: float | None) -> Mapping[str, Any]:
        """Return the measures of one run."""
        from dataclasses import replace

        from millstream.scheduler.simulation.repetitions import check_measures
        from millstream.scheduler.simulation.simulate import simulate as run

        options = dict(self._options)
        if value is not None:
            options[self._varied] = f"{value:g}" if self._varied == "train" else value
        if self._read is None or self._read[0] != seed:
            self._read = seed, read_input(self._path, seed)
        self.work, settings = self._read[1]
        if options["utilisation"] is not None:
            self.work = self.work.at_utilisation(options["utilisation"])
        settings = _settings(settings, options["train"], options["adapt"], options["decision_us"], options["evaluation_us"])
        workers = options["workers"] or settings.workers
        outcome = run(self.work, policy, seed=seed, settings=replace(settings, load=self._load, workers=int(workers)))
        if self._keep:
            self.outcomes.append(outcome)
        summary = outcome.summary()
        check_measures(self._drawn, summary)
        return {"policy": outcome.policy, **summary}


def read_input(path: Path, seed: int) -> tuple[Workload, RunSettings]:
    """Return a workload, or a recording, which begins with another character and says under what conditions it was decided."""
    from millstream.scheduler.simulation import recording
    from millstream.scheduler.simulation.simulate import RunSettings
    from millstream.scheduler.simulation.workload_files import read_workload

    with path.open("rb") as file:
        first = file.read(1)
    if first != b"{":
        return read_workload(path, seed), RunSettings()
    found = recording.load(path)
    return found.workload(path.stem), recorded_settings(found.about)


def recorded_policy(path: Path) -> str | None:
    """Return the policy in force at the end of a recording; None for a workload, which has none."""
    with path.open("rb") as file:
        line = file.readline(HEADING_BYTES_MAX)
    found = json.loads(line).get("policy") if line[:1] == b"{" else None
    return None if found is None else str(found)


def recorded_settings(about: Mapping[str, Any]) -> RunSettings:
    """Return the conditions that a recording's heading names; trains are then as long as live."""
    from millstream.scheduler.drivers.virtual import DecisionCost
    from millstream.scheduler.simulation.simulate import RunSettings
    from millstream.scheduler.trains import TrainShape

    if "schedule" not in about:
        return RunSettings()
    return RunSettings(
        train=TrainShape(adaptive=True),
        schedule=int(about["schedule"]),
        workers=int(about.get("workers", 1)),
        budget_ns=about.get("budget_ns"),
        charge=DecisionCost(order_ns=int(about.get("order_ns", 0))),
    )


# Measure, words for it, 1 when less is better and -1 when more is.
_BEST = (
    ("response_ms_mean", "average response time", 1),
    ("response_ms_p99", "99th percentile of it", 1),
    ("slowdown_mean", "average slowdown", 1),
    ("slowdown_max", "worst slowdown", 1),
    ("memory_bytes_max", "memory", 1),
    ("utility_per_application", "utility", -1),
)


def best_lines(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return which policy served best, a line a measure; policies within a hundredth of the best share the place."""
    lines = ["", "best served by"]
    for name, words, sign in _BEST:
        best = min(sign * row[name] for row in rows)
        good = [row["policy"] for row in rows if sign * row[name] <= best + 0.01 * abs(best)]
        lines.append(f"  {words + ':':26}{'all alike' if len(good) == len(rows) else ', '.join(good)} ({_cell(sign * best)})")
    return "\n".join(lines) + "\n"


def split_policies(text: str) -> list[str]:
    """Return the policies between commas; within one `+` stands for the comma between its options."""
    return [one.strip().replace("+", ",") for one in text.split(",") if one.strip()]


def _settings(given: RunSettings, train: str | None, adapt: bool, decision_us: float, evaluation_us: float) -> RunSettings:
    from dataclasses import replace

    from millstream.scheduler.spec import read_value
    from millstream.scheduler.trains import TrainShape

    if train is not None:
        given = replace(given, train=TrainShape.parse(read_value(train)))
    charge = replace(given.charge, decision_ns=round(decision_us * 1_000), evaluation_ns=round(evaluation_us * 1_000))
    return replace(given, charge=charge, adapt=adapt)


def shown_rows(rows: Sequence[Mapping[str, Any]], form: str, keys: Sequence[str], width: int | None = None) -> str:
    """Return rows as a table, CSV or JSON lines; `keys` are the first columns of the table, `width` the characters that a line may have."""
    import csv
    import io

    from millstream.scheduler.simulation.repetitions import SUFFIX

    if form == "json":
        return "".join(json.dumps(row) + "\n" for row in rows)
    text = io.StringIO()
    if form == "csv":
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue()
    losses = [name for name in rows[0] if name.startswith("loss_share_") and not name.endswith(SUFFIX)]
    shown = _COLUMNS[1:] if "seeds" not in rows[0] else [one for one in _COLUMNS[1:] if one[0] in _WITH_INTERVALS]
    shown = [one for one in shown if one[0] in rows[0]]
    columns = [*((key, key) for key in keys), *shown, *((name, name.removeprefix("loss_share_") + " lost") for name in losses)]
    cells = [[title for _, title in columns]]
    cells += [[_cell(row[name]) + _half_width(row.get(name + SUFFIX)) for name, _ in columns] for row in rows]
    return "\n".join("".join(f"{line}\n" for line in block) for block in blocks_of(cells, len(keys), width))


def blocks_of(cells: Sequence[Sequence[str]], keys: int, width: int | None) -> list[list[str]]:
    """Return the lines of a table, in several blocks if it is wider than `width` characters; each has the first `keys` columns."""
    widths = [max(len(line[index]) for line in cells) for index in range(len(cells[0]))]
    first = list(range(keys))
    blocks = [list(first)]
    for index in range(keys, len(widths)):
        wide = sum(widths[one] for one in [*blocks[-1], index]) + 2 * len(blocks[-1])
        if width is not None and wide > width and len(blocks[-1]) > keys:
            blocks.append(list(first))
        blocks[-1].append(index)
    return [
        ["  ".join(line[one].rjust(widths[one]) if one else line[0].ljust(widths[0]) for one in block).rstrip() for line in cells]
        for block in blocks
    ]


def _half_width(value: float | None) -> str:
    if value is None:
        return ""
    return f" ±{value:.2g}" if value < 100 else f" ±{value:.0f}"


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    if float(value).is_integer() and abs(value) < 1e9:
        return f"{int(value)}"
    return f"{value:.4g}"


def _plot(work: Workload, outcomes: Sequence[Any], path: Path) -> None:
    import numpy as np
    from millstream.scheduler.simulation.plots import Line, Panel, draw

    shares = np.linspace(0.0, 100.0, 201)
    made = [one for one in outcomes if len(one.query)]
    response = [Line(one.policy, shares.tolist(), np.percentile(one.response_ns / 1e6, shares).tolist()) for one in made]
    slowdown = [Line(one.policy, shares.tolist(), np.percentile(one.slowdown, shares).tolist()) for one in made]
    memory = [Line(one.policy, (one.sample_ns / 1e9).tolist(), one.sample_bytes.tolist()) for one in outcomes]
    panels = [
        Panel("Response time", "share of results, %", "ms", response, kind="step", y_log=True),
        Panel("Slowdown", "share of results, %", "times the ideal", slowdown, kind="step", y_log=True),
        Panel("Memory in queues", "time, s", "bytes", memory, kind="step"),
    ]
    draw(panels, work.name, path)
