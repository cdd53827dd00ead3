"""The command `millstream experiment`. Nothing heavy is imported before it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.scheduler.experiments.frame import ExperimentCase, Scale, Scenario


@click.group("experiment")
def experiment() -> None:
    """List and run the experiments.

    Each repeats a figure or table of a paper on the shipped scheduler and gives a verdict on what the paper claims.
    """


@experiment.command("list")
def list_experiments() -> None:
    """List the experiments with their sources."""
    from millstream.scheduler.experiments.roster import load, names

    for name in names():
        scenario = load(name)
        click.echo(f"{name:15} {scenario.source:36} {scenario.title}")


@experiment.command("run")
@click.argument("names", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Run every experiment.")
@click.option(
    "--scale", type=click.Choice(["reduced", "medium", "full"]), default="reduced", show_default=True, help="Size of the experiments."
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("experiments"),
    show_default=True,
    help="Folder for data, plots and verdicts; runs kept there are not repeated.",
)
@click.option("--processes", default=2, show_default=True, type=click.IntRange(1), help="Number of runs at a time.")
@click.option("--no-plot", is_flag=True, help="Draw nothing.")
@click.option("--policy", "policies", help="Run these policies too, written as for simulate; judge nothing.")
@click.option(
    "--workload",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Run the policies and loads of the experiments on this workload or recording; judge nothing.",
)
@click.option("--seed", "seeds", help="Seeds for --policy and --workload: 1,2,3 or 1-10. Several give means with 95% intervals.")
def run_experiments(
    names: Sequence[str],
    everything: bool,
    scale: str,
    out: Path,
    processes: int,
    no_plot: bool,
    policies: str | None,
    workload: Path | None,
    seeds: str | None,
) -> None:
    """Run experiments by NAME, or all of them.

    Exits with 0 whether claims hold or not: a claim that does not hold is a finding. Interrupted, it goes on where it stopped when it is
    started again; with --all, live experiments that this code has run are not repeated. With --policy, --workload or --seed the experiment
    lends its frame: the tables own.csv and own-runs.csv and the pictures own.svg and own.pdf go into its folder.
    """
    from millstream.scheduler.errors import SchedulerError
    from millstream.scheduler.experiments.report import is_current, verdict_lines, write_findings
    from millstream.scheduler.experiments.roster import load
    from millstream.scheduler.experiments.roster import names as known
    from millstream.scheduler.experiments.runner import ResultStore, run_cases

    if not names and not everything:
        raise click.UsageError("name an experiment or give --all; `millstream experiment list` shows them")
    size: Scale = scale  # type: ignore[assignment]
    try:
        scenarios = [load(name) for name in (known() if everything else names)]
        if policies is not None or workload is not None or seeds is not None:
            for scenario in scenarios:
                _run_own(scenario, size, policies, workload, seeds, out, processes, plot=not no_plot)
            return
        store = ResultStore(out / "runs")
        # One after the other, each with its verdict: what is interrupted leaves all that is done, and goes on from there.
        for scenario in scenarios:
            cases = scenario.cases(size)
            if everything and all(case.live for case in cases) and is_current(out / scenario.name, size):
                click.echo(f"{scenario.name}: kept", err=True)
                continue
            run_cases(cases, store, processes=processes, progress=_progress)
            findings = scenario.judge(size, store.result)
            verdict = write_findings(scenario, findings, size, out / scenario.name, plot=not no_plot)
            click.echo("\n".join(verdict_lines(verdict)))
    except SchedulerError as problem:
        raise click.ClickException(str(problem)) from problem


def _run_own(
    scenario: Scenario,
    size: Scale,
    policies: str | None,
    workload: Path | None,
    seeds: str | None,
    out: Path,
    processes: int,
    *,
    plot: bool,
) -> None:
    from millstream.scheduler.experiments.own import OwnRequest, run_own, write_own
    from millstream.scheduler.simulation.repetitions import parse_seeds
    from millstream.scheduler.simulation.simulate_command import shown_rows, split_policies

    asked = OwnRequest(split_policies(policies or ""), parse_seeds(seeds or "1"), workload)
    findings = run_own(scenario, size, asked, processes=processes, progress=_progress)
    title = f"{scenario.name}: {scenario.title}" if workload is None else f"{workload.stem}, in the frame of {scenario.name}"
    write_own(findings, title, out / scenario.name, plot=plot)
    rows = findings.runs if len(asked.seeds) == 1 else findings.means
    click.echo(shown_rows(rows, "table", findings.keys), nl=False)
    click.echo(f"{out / scenario.name}: own.csv, own-runs.csv{', own.svg, own.pdf' if plot else ''}", err=True)


def _progress(done: int, total: int, case: ExperimentCase) -> None:
    told = " ".join(f"{name}={value}" for name, value in case.parameters.items() if name != "path")
    click.echo(f"{done}/{total} {case.function.partition(':')[0]} {told[:160]}", err=True)


@experiment.command("document")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--page", type=click.Path(dir_okay=False, path_type=Path), default=Path("docs/experiments.md"), show_default=True)
@click.option("--add", is_flag=True, help="Keep the page, and add or replace only the experiments of FOLDER.")
def document_experiments(folder: Path, page: Path, add: bool) -> None:
    """Write the page on the experiments from the verdicts in FOLDER, with the plots beside it."""
    import shutil

    from millstream.scheduler.experiments.report import added, document, read_verdicts

    verdicts = read_verdicts(folder)
    if not verdicts:
        raise click.ClickException(f"no verdict in '{folder}'; run `millstream experiment run --all --out {folder}` first")
    pictures = page.parent / page.stem
    plots = {}
    for verdict in verdicts:
        drawn = folder / verdict["name"] / "plot.svg"
        if drawn.is_file():
            pictures.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(drawn, pictures / f"{verdict['name']}.svg")
            plots[verdict["name"]] = f"{page.stem}/{verdict['name']}.svg"
    page.write_text(added(page.read_text("utf-8"), verdicts, plots) if add else document(verdicts, plots), "utf-8")
    click.echo(f"{page}: {len(verdicts)} experiments")


@experiment.command("guide")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=Path("docs/policies"))
@click.option("--policy", "policies", help="Draw only these, separated by commas. The grey band then spans only these.")
def draw_guide(folder: Path, policies: str | None) -> None:
    """Draw a small picture of every policy into FOLDER: the measure it is for, over the load."""
    from millstream.scheduler.errors import SchedulerError
    from millstream.scheduler.experiments.guide import MEASURES, draw_all, known_policies, run_all

    chosen = known_policies() if policies is None else policies.split(",")
    unknown = [one for one in chosen if one not in MEASURES]
    if unknown:
        raise click.ClickException(f"there is no picture of {', '.join(unknown)}")
    try:
        drawn = list(draw_all(run_all(chosen, lambda policy: click.echo(policy, err=True)), folder))
    except SchedulerError as problem:
        raise click.ClickException(str(problem)) from problem
    click.echo(f"{folder}: {len(drawn)} pictures")


@experiment.command("overload-guide")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=Path("docs/overload"))
def draw_overload_guide(folder: Path) -> None:
    """Draw a picture of every load manager into FOLDER: response times and drops of three classes through an overload."""
    from millstream.scheduler.errors import SchedulerError
    from millstream.scheduler.experiments.guide import draw_modes, run_modes

    try:
        drawn = list(draw_modes(run_modes(lambda name: click.echo(name, err=True)), folder))
    except SchedulerError as problem:
        raise click.ClickException(str(problem)) from problem
    click.echo(f"{folder}: {len(drawn)} pictures")
