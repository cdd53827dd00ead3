"""What g-low and g-high share: the sweep over queries and policies, and its panels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.scheduler.experiments.frame import ExperimentCase, Result, Row, Scale, mean
from millstream.scheduler.simulation.plots import Line, Panel

Results = Callable[[ExperimentCase], Result]

POLICIES = ("golab-none", "conservative", "aggressive", "hybrid", "hybrid-late", "hybrid-late-pending")
QUERIES: dict[Scale, tuple[int, ...]] = {"reduced": (40, 160), "medium": (40, 80, 160, 240), "full": (40, 80, 160, 240)}
SEEDS: dict[Scale, tuple[int, ...]] = {"reduced": (1,), "medium": (1, 2), "full": (1, 2, 3, 4, 5)}
SECONDS: dict[Scale, int] = {"reduced": 100, "medium": 200, "full": 200}
SUBSTITUTED = (
    "the packet headers: random values, as in the paper. Only the number of different values in an interval matters; eight groups over "
    "its six keys, because top-k and quantiles over source and destination are separate",
    "the machine: the cost of an entry of a synopsis is set, for both experiments, so that golab-none with 40 queries at 1,500 tuples a "
    "second loaded one processor to about 1.2 in the mean of the seeds, before the sorts of top-k lists were charged",
)
AGGRESSIVE_NOTE = (
    "a group that is one task runs all its queries whenever it runs, late or not, so in overload it shares as much as late-pending; and "
    "in this cost model the answers of queries that were not due cost little compared with the scan; in the paper's prototype they seem "
    "to cost more"
)


class GolabSweep:
    """The cases of one data rate. `values_factor`: how many more different values than at the low rate."""

    def __init__(self, rate: float, values_factor: float) -> None:
        self.rate, self.values_factor = rate, values_factor

    def case(self, scale: Scale, policy: str, queries: int, seed: int) -> ExperimentCase:
        """Return one run."""
        parameters = {
            "policy": policy,
            "queries": queries,
            "rate": self.rate,
            "values_factor": self.values_factor,
            "seed": seed,
            "seconds": SECONDS[scale],
        }
        return ExperimentCase("golab_runs:run", parameters)

    def cases(self, scale: Scale) -> Sequence[ExperimentCase]:
        """Return all runs."""
        return [self.case(scale, p, n, seed) for p in POLICIES for n in QUERIES[scale] for seed in SEEDS[scale]]

    def values(self, scale: Scale, results: Results, policy: str, measure: str) -> list[float]:
        """Return a measure for each number of queries, averaged over the seeds."""
        return [mean([float(results(self.case(scale, policy, n, s))[measure]) for s in SEEDS[scale]]) for n in QUERIES[scale]]

    def by_seed(self, scale: Scale, results: Results, one: str, other: str, measure: str) -> str:
        """Return the ratio of two policies' means over the numbers of queries, seed by seed."""

        def of(policy: str, seed: int) -> float:
            return mean([float(results(self.case(scale, policy, n, seed))[measure]) for n in QUERIES[scale]])

        return " / ".join(f"{of(one, seed) / max(1e-9, of(other, seed)):.2f}" for seed in SEEDS[scale])

    def loads(self, scale: Scale, results: Results) -> str:
        """Return the load of golab-none with the fewest queries, seed by seed: the seeds draw other workloads."""
        found = [float(results(self.case(scale, "golab-none", QUERIES[scale][0], seed))["load"]) for seed in SEEDS[scale]]
        return " / ".join(f"{one:.2f}" for one in found)

    def rows(self, scale: Scale, results: Results) -> list[Row]:
        """Return the table of the experiment."""
        measures = ("throughput", "latency", "tasks")
        rows: list[Row] = []
        for policy in POLICIES:
            found = {m: self.values(scale, results, policy, m) for m in measures}
            rows += [{"policy": policy, "queries": n, **{m: found[m][i] for m in measures}} for i, n in enumerate(QUERIES[scale])]
        return rows

    def panels(self, scale: Scale, results: Results) -> list[Panel]:
        """Return throughput and latency against the number of queries."""
        shown = (("throughput", "queries re-executed a second", False), ("latency", "updates beyond SLIDE", True))
        return [
            Panel(
                f"{measure} at {self.rate:g} tuples/s",
                "queries",
                label,
                [Line(p, QUERIES[scale], self.values(scale, results, p, measure)) for p in POLICIES],
                y_log=logarithmic,
            )
            for measure, label, logarithmic in shown
        ]
