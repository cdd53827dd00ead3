"""Verdicts of three experiments computed anew from the raw files of their runs, without any code of the product.

    python -m tests.support.recomputed_verdicts FOLDER

FOLDER is that of `experiment run --out`. Says for each claim whether both agree; ends with 1 where they do not. The rules are written down
here once more, from the papers: Sharaf 2007, fig. 22-24; Carney 2005, tables 4.6 and 4.7.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

Run = tuple[dict, dict]


def runs_of(folder: Path, function: str) -> list[Run]:
    """Return (parameters, result) of all runs of a function."""
    kept = [json.loads(path.read_text()) for path in sorted((folder / "runs").glob("*.json"))]
    return [(one["case"][1], one["result"]) for one in kept if one["case"][0] == function]


def tardiness(folder: Path) -> list[bool]:
    """At each load the mean over seeds under EDF-HR is at most that of EDF and that of HR (a thousandth more is the same)."""
    sums: dict[float, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for asked, found in runs_of(folder, "sharaf_runs:tardiness"):
        sums[asked["load"]][asked["policy"]].append(found["tardiness_ms_mean"])
    means = {load: {policy: sum(all_) / len(all_) for policy, all_ in by.items()} for load, by in sums.items()}
    return [by["edf-hr"] <= 1.001 * by[other] for load, by in sorted(means.items()) for other in [min("edf", "hr", key=by.__getitem__)]]


def pair(folder: Path, function: str) -> tuple[dict, dict]:
    """Return what fixed priority and slope-slack gave, both with push-through, under charge S and with trains of any length."""
    found = {
        asked["policy"].split(":")[0]: result
        for asked, result in runs_of(folder, function)
        if asked["reading"] == "S" and "train=" not in asked["policy"]
    }
    return found["fixed-priority-push-through"], found["slope-slack-push-through"]


def sustained(folder: Path) -> list[bool]:
    """By application slope-slack is above by half of the paper's .25 at least; by tuple it is below."""
    fixed, slope = pair(folder, "carney_runs:sustained")
    return [slope["qos"] >= fixed["qos"] + (0.90 - 0.65) / 2, slope["utility_per_tuple"] < fixed["utility_per_tuple"]]


def burst(folder: Path) -> list[bool]:
    """Half of the paper's .11 in QoS and of its 36 points in missed deadlines of the overload; the rest as signs."""
    fixed, slope = pair(folder, "carney_runs:fluctuating")

    def missed(one: dict, time: str) -> float:
        every = one[f"{time}_missed"] + one[f"{time}_made"]
        return one[f"{time}_missed"] / every if every else 0.0

    return [
        slope["qos"] >= fixed["qos"] + (0.81 - 0.70) / 2,
        missed(fixed, "overload") >= missed(slope, "overload") + (0.93 - 0.57) / 2,
        missed(slope, "underload") <= 1.05 * missed(fixed, "underload"),
        slope["loose_missed"] <= min(0.01 * slope["results"], fixed["loose_missed"]),
    ]


RULES = {"s-tardiness": tardiness, "c-sustained": sustained, "c-burst": burst}


def disagreements(folder: Path) -> list[str]:
    """Return a sentence for each claim of which the verdict in the folder and the one from the raw files differ."""
    found = []
    for name, rule in RULES.items():
        told = [claim["holds"] for claim in json.loads((folder / name / "verdict.json").read_text())["claims"]]
        again = rule(folder)
        if len(told) != len(again):
            found.append(f"{name}: {len(told)} claims, {len(again)} recomputed")
        found += [f"{name}, claim {i}: told {a}, recomputed {b}" for i, (a, b) in enumerate(zip(told, again, strict=False), 1) if a != b]
    return found


if __name__ == "__main__":
    differing = disagreements(Path(sys.argv[1]))
    sys.stdout.write("\n".join(differing or [f"the verdicts of {', '.join(RULES)} are the same"]) + "\n")
    sys.exit(bool(differing))
