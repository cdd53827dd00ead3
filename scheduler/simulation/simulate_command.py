"""The command `millstream simulate`. Nothing heavy is imported before it runs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from millstream.scheduler.names import LOADS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
@click.option("--seed", default=1, show_default=True, help="Seed of arrivals and outcomes.")
@click.option(
    "--format", "form", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True, help="Form of the output."
)
@click.option(
    "--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw the distributions of response times into this file (svg or png)."
)
@click.option("--train", help="Train of policies that name none: a count, a share of the queue, or all.")
@click.option("--utilisation", type=click.FloatRange(0, 100, min_open=True), callback=_finite, help="Scale the costs to this load.")
@click.option("--load", type=click.Choice(LOADS), help="Load manager, instead of the workload's.")
@click.option("--adapt", is_flag=True, help="Let measurements replace declared costs and selectivities.")
@click.option("--decision-us", type=click.FloatRange(0), default=0.0, callback=_finite, help="Cost of a decision in µs.")
@click.option("--evaluation-us", type=click.FloatRange(0), default=0.0, callback=_finite, help="Cost of computing a rank in µs.")
def simulate(
    workload: Path,
    policies: str,
    seed: int,
    form: str,
    plot: Path | None,
    train: str | None,
    utilisation: float | None,
    load: str | None,
    adapt: bool,
    decision_us: float,
    evaluation_us: float,
) -> None:
    """Simulate a workload or a recording under policies.

    WORKLOAD is a TOML file of streams and queries, or a recording of a live server. The real scheduler decides; boxes with a cost and
    a selectivity stand for operators. The same seed gives the same bytes.
    """
    from dataclasses import replace

    from millstream.scheduler.errors import SchedulerError
    from millstream.scheduler.simulation.simulate import simulate as run

    try:
        work, settings = read_input(workload, seed)
        if utilisation is not None:
            work = work.at_utilisation(utilisation)
        settings = replace(_settings(settings, train, adapt, decision_us, evaluation_us), load=load)
        outcomes = [run(work, policy, seed=seed, settings=settings) for policy in split_policies(policies)]
        rows: list[dict[str, Any]] = [{"policy": one.policy, "seed": seed, **one.summary()} for one in outcomes]
        click.echo(f"{work.name}: {len(work.deltas)} queries, {work.tuples} tuples, seed {seed}", err=True)
        click.echo(_shown(rows, form), nl=False)
        if form == "table" and len(rows) > 1:
            click.echo(best_lines(rows), nl=False, err=True)
        if plot is not None:
            _plot(work, outcomes, plot)
    except SchedulerError as problem:
        raise click.ClickException(str(problem)) from problem


def read_input(path: Path, seed: int) -> tuple[Workload, RunSettings]:
    """Read a workload or a recording, told apart by the first character; a recording says under what conditions it was decided."""
    from millstream.scheduler.simulation import recording
    from millstream.scheduler.simulation.simulate import RunSettings
    from millstream.scheduler.simulation.workload_files import read_workload

    with path.open("rb") as file:
        first = file.read(1)
    if first != b"{":
        return read_workload(path, seed), RunSettings()
    found = recording.load(path)
    return found.workload(path.stem), recorded_settings(found.about)


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
    """Split at commas; within one policy `+` stands for the comma between its options."""
    return [one.strip().replace("+", ",") for one in text.split(",") if one.strip()]


def _settings(given: RunSettings, train: str | None, adapt: bool, decision_us: float, evaluation_us: float) -> RunSettings:
    from dataclasses import replace

    from millstream.scheduler.spec import read_value
    from millstream.scheduler.trains import TrainShape

    if train is not None:
        given = replace(given, train=TrainShape.parse(read_value(train)))
    charge = replace(given.charge, decision_ns=round(decision_us * 1_000), evaluation_ns=round(evaluation_us * 1_000))
    return replace(given, charge=charge, adapt=adapt)


def _shown(rows: Sequence[Mapping[str, Any]], form: str) -> str:
    import csv
    import io
    import json

    if form == "json":
        return "".join(json.dumps(row) + "\n" for row in rows)
    text = io.StringIO()
    if form == "csv":
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue()
    columns = [*_COLUMNS, *((name, name.removeprefix("loss_share_") + " lost") for name in rows[0] if name.startswith("loss_share_"))]
    cells = [[title for _, title in columns]]
    cells += [[_cell(row[name]) for name, _ in columns] for row in rows]
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    for line in cells:
        parts = [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
        text.write("  ".join(parts).rstrip() + "\n")
    return text.getvalue()


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
