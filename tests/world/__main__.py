"""Run worlds by seed: `python -m tests.world 0-99`. A failing one prints its plan, shrunk, and its history."""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial

from tests.world.runs import Verdict, run, shrink

HISTORY_LINES = 60


def seeds_of(text: str) -> list[int]:
    """Return the seeds of `7`, of `0-99`, of `1-99/4`, which is every fourth of them, or of several such with commas between."""
    found: list[int] = []
    for part in text.split(","):
        ends, _, step = part.partition("/")
        first, _, last = ends.partition("-")
        found += range(int(first), int(last or first) + 1, int(step or 1))
    return found


def is_alike(kind: str, verdict: Verdict) -> bool:
    """Whether a world has a problem that begins so."""
    return any(problem.startswith(kind) for problem in verdict.problems)


def told(verdict: Verdict) -> str:
    """Return what there is to say of a world that failed."""
    lines = [f"seed {verdict.seed}: {problem}" for problem in verdict.problems]
    lines += ["", "what was done:", *(f"  {step}" for step in verdict.plan), "", "the end of its history:"]
    lines += [f"  {line[:240]}" for line in verdict.history[-HISTORY_LINES:]]
    return "\n".join(lines)


def main() -> int:
    """Run the worlds; 1 when one failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.world", description=__doc__)
    parser.add_argument("seeds", type=seeds_of, help="such as 7, 0-99 or 0-9,46; with workers are 1-99/4")
    parser.add_argument("--length", type=int, default=60, help="steps of a plan")
    parser.add_argument("--seconds", type=int, default=40, help="simulated seconds of a plan")
    parser.add_argument("--whole", action="store_true", help="do not shrink what fails")
    parser.add_argument("--quiet", action="store_true", help="say nothing of worlds that are in order")
    args = parser.parse_args()
    failed, simulated_s, lives, deaths, began_s = [], 0.0, 0, 0, time.monotonic()
    shed_under: set[str] = set()
    for seed in args.seeds:
        verdict = run(seed, length=args.length, seconds=args.seconds)
        simulated_s += verdict.simulated_s
        lives += verdict.lives
        deaths += verdict.worker_deaths
        shed_under |= verdict.shed_under
        if verdict.ok:
            if not args.quiet:
                found = f"{verdict.shed_rows} rows shed, {verdict.gaps} results lost" if verdict.shed_rows or verdict.gaps else ""
                print(
                    f"seed {seed}: {verdict.simulated_s:.0f} s, {verdict.lives} lives, {verdict.digest[:12]} {found}".rstrip(), flush=True
                )
            continue
        failed.append(seed)
        if not args.whole:
            verdict = shrink(seed, verdict.plan, partial(is_alike, verdict.problems[0][:20]), seconds=args.seconds)
        print(told(verdict), flush=True)
    took_s = time.monotonic() - began_s
    print(
        f"{len(args.seeds)} worlds, {lives} lives of a server, {deaths} deaths of a worker,"
        f" {simulated_s / 3600:.2f} simulated hours in {took_s / 60:.1f} minutes"
        f" ({simulated_s / took_s:.0f} times as fast as time);"
        f" rows were shed under {', '.join(sorted(shed_under)) or 'no load manager'}; failed: {failed or 'none'}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
