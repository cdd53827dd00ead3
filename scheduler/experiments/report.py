"""Writes what experiments found: data as CSV, a verdict as JSON, plots, and the page that tells of all of them."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from millstream.scheduler.experiments.code_digest import verdict_digest
from millstream.scheduler.experiments.frame import Findings, Scale, Scenario
from millstream.scheduler.experiments.roster import home, load, names

Verdict = Mapping[str, Any]


def write_findings(scenario: Scenario, findings: Findings, scale: Scale, folder: Path, *, plot: bool = True) -> Verdict:
    """Write `data.csv`, `verdict.json` and `plot.svg` of one experiment; return the verdict."""
    folder.mkdir(parents=True, exist_ok=True)
    write_rows(findings.rows, folder / "data.csv")
    verdict = {
        "name": scenario.name,
        "source": scenario.source,
        "title": scenario.title,
        "setup": scenario.setup,
        "substitutions": list(scenario.substitutions),
        "scale": scale,
        "code": verdict_digest(home(scenario.name), scenario.cases(scale)),
        "claims": [asdict(claim) for claim in findings.claims],
    }
    (folder / "verdict.json").write_text(json.dumps(verdict, indent=1) + "\n")
    if plot and findings.panels:
        from millstream.scheduler.simulation.plots import draw

        draw(findings.panels, f"{scenario.name}: {scenario.title}", folder / "plot.svg")
    return verdict


def is_current(folder: Path, scale: Scale) -> bool:
    """Return whether the folder holds a verdict of this scale by the code as it is."""
    path = folder / "verdict.json"
    if not path.is_file():
        return False
    try:
        kept = json.loads(path.read_text())
    except ValueError:
        return False  # cut off: it is judged anew
    return bool(kept.get("scale") == scale and kept.get("code") == code_now(folder.name, scale))


@cache
def code_now(name: str, scale: Scale) -> str:
    """Return the digest of the code that would give a verdict of this experiment now; empty for an experiment that is no more."""
    return verdict_digest(home(name), load(name).cases(scale)) if name in names() else ""


def write_rows(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write rows with a heading that holds every name met, in the order met."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def verdict_lines(verdict: Verdict) -> list[str]:
    """Return the verdict as lines of text."""
    lines = [f"{verdict['name']} ({verdict['source']}, {verdict['scale']} scale): {verdict['title']}"]
    for claim in verdict["claims"]:
        word = "holds" if claim["holds"] else "DOES NOT HOLD"
        lines.append(f"  {word}: {claim['text']}")
        lines.append(f"    paper {claim['paper']}; here {claim['ours']}" + (f"; {claim['note']}" if claim["note"] else ""))
    return lines


def read_verdicts(folder: Path) -> list[Verdict]:
    """Return the verdicts in a folder, in the order of the papers."""
    found = {path.parent.name: json.loads(path.read_text()) for path in folder.glob("*/verdict.json")}
    return [found[name] for name in names() if name in found]


_HEAD = """# The papers' experiments, repeated

`millstream experiment document` writes this page from the verdicts of `millstream experiment run --all`. Except for the live rows, each
row runs the shipped scheduler in virtual time ([simulation](simulation.md)); only the executor is a cost model. A rule judges each
claim. Where a paper states the size of an effect, the direction must be right and the effect must have at least half of that size. An
order must be the same order. A number must agree within a factor of two. A claim that does not hold stays here with both numbers.

Each set-up follows the paper. What the paper does not state is listed under "Substituted", with a reason from its text. Where a paper can
be read in two ways, both were run; one is judged and the other stands beside it. A page for each paper says what to make of it:
[MavStream](papers/mavstream.md), [Aurora](papers/aurora.md), [Sharaf](papers/sharaf.md), [Golab](papers/golab.md),
[DILoS](papers/dilos.md).

What was known when:

- The rules were fixed before the first runs, save for "tenfold" and the share of tasks left in g-low and g-high, and the measure of growth
  in d-none. "Doubles" now asks for half of the effect as all rules do, so for half as much again; this was made even when 1.5 and 1.8
  were known.
- After the first verdicts, of which 118 of 176 held, each that did not hold was gone through against its paper. Readings of policies and
  set-ups that were wrong were then corrected once, for reasons of the papers. Small runs had shown the direction of most of these
  corrections before they were made: ties to the oldest tuple, source boxes and mean responses of classes, trains without a bound in
  d-none to d-steps, pruned clusters, sorts of top-k lists, Aurora's random order, c-sustained, c-traversal, s-adaptive, s-selectivity.
- Choices made since without a text that decides them: in d-steps the peaks of class 1, after a run in which one peak needed more than
  its share; in c-sustained the load, after 80 and 95% had been run; in c-train inputs that take turns, after random phases had made single
  tuples queue; in chapter 4 which of two charges for deciding is judged where, after both had been run on c-qos. Under one of
  them slope-slack is overloaded where the thesis has it at its best.
- Charge R is calibrated on the overheads of c-10000 and charge S on c-size, because the machines of the papers are not available. So the
  claims on c-10000's overheads prove nothing, and c-size under S shows only that its curves can be had.
- Two claims of the papers were added when it was known that they hold: that HR, HNR and BSD are alike at a maximum selectivity of 0.1, and
  that pruning gains on clusters alone. Each fails when the reading behind it is undone.
- In d-none to d-steps, live and simulated, the load and rules of the load managers were settled after first runs, as each row says.

The table gives the scale of each row. `full` has the sizes of the papers, or says where it differs. `medium` has a part of the tuples
and loads. `reduced` only shows that a row runs. A claim that holds at less than full scale is a hint, not a proof. `make experiments`
runs everything at full scale, an hour at a time, and continues where it was stopped. Rows marked "earlier code" were run by other code
than there was when this page was last written: of their policies, or of anything else that such a run imports. Words in the code do not
count. Among what has changed since is the speed of the simulator. That altered no answer: 286 runs of all kinds, most of them small, gave
the same bytes before and after.

"""


_TOTAL = "**{} of {} claims hold.**"
_TABLE = "| experiment | source | scale | claims that hold |\n|---|---|---|---|\n"
_EARLIER = ", earlier code"
_CODE = "<!-- code {} -->"


def document(verdicts: Sequence[Verdict], plots: Mapping[str, str]) -> str:
    """Return the page. `plots` gives the place of each experiment's picture, relative to the page."""
    claims = [claim for verdict in verdicts for claim in verdict["claims"]]
    held = sum(1 for claim in claims if claim["holds"])
    parts = [_HEAD, _TOTAL.format(held, len(claims)), "\n\n", _TABLE]
    parts.extend(_row(verdict) + "\n" for verdict in verdicts)
    parts.extend(_section(verdict, plots.get(verdict["name"])) for verdict in verdicts)
    return "".join(parts)


def _row(verdict: Verdict) -> str:
    good = sum(1 for claim in verdict["claims"] if claim["holds"])
    name, scale = verdict["name"], verdict["scale"]
    mark = "" if verdict.get("code") == code_now(name, scale) else _EARLIER
    return f"| [{name}](#{name}) | {verdict['source']} | {scale}{mark} | {good} of {len(verdict['claims'])} |"


def added(page: str, verdicts: Sequence[Verdict], plots: Mapping[str, str]) -> str:
    """Return a page of `document` with the row and section of these experiments put in, or in the place of older ones.

    The row of what other code gave than is here now says so.
    """
    head, *sections = re.split(r"(?=^## )", page, flags=re.MULTILINE)
    texts = {one.split("\n", 1)[0].removeprefix("## "): one for one in sections}
    rows = {name: _marked(line, texts.get(name, "")) for line in head.split("\n") if (name := _named(line))}
    lines = [*_HEAD.rstrip("\n").split("\n"), "", _TOTAL.format(0, 0), "", *_TABLE.rstrip("\n").split("\n")]
    for verdict in verdicts:
        rows[verdict["name"]] = _row(verdict)
        texts[verdict["name"]] = _section(verdict, plots.get(verdict["name"]))
    order = [*names(), *sorted(set(rows) - set(names()))]
    lines += [rows[name] for name in order if name in rows]
    held = [tuple(map(int, found)) for found in re.findall(r"\| (\d+) of (\d+) \|$", "\n".join(lines), re.MULTILINE)]
    total = _TOTAL.format(sum(good for good, _ in held), sum(claims for _, claims in held))
    head = re.sub(r"\*\*\d+ of \d+ claims hold\.\*\*", total, "\n".join(lines))
    return "\n\n".join([head, *(texts[name].strip("\n") for name in order if name in texts)]) + "\n"


def _marked(line: str, section: str) -> str:
    """Return a row of the table, marked as earlier code's where its section names other code than there is now."""
    cells = line.split(" | ")
    scale: Any = cells[2].removesuffix(_EARLIER)
    kept = re.search(_CODE.format(r"(\w*)"), section)
    current = kept is not None and kept.group(1) == code_now(_named(line), scale)
    return " | ".join([*cells[:2], scale if current else f"{scale}{_EARLIER}", *cells[3:]])


def _named(line: str) -> str:
    """Return the experiment of a row of the table; empty for other lines."""
    found = re.match(r"\| \[([^]]+)\]\(#", line)
    return found.group(1) if found else ""


def _section(verdict: Verdict, plot: str | None) -> str:
    lines = [f"\n## {verdict['name']}\n", f"{verdict['title']} ({verdict['source']}). {verdict['setup']}\n"]
    if verdict["substitutions"]:
        lines.append("Substituted: " + "; ".join(verdict["substitutions"]) + ".\n")
    lines.append("| claim | paper | here | verdict |\n|---|---|---|---|")
    for claim in verdict["claims"]:
        word = "holds" if claim["holds"] else "**does not hold**"
        note = f" ({claim['note']})" if claim["note"] else ""
        cells = [f"{claim['text']}{note}", claim["paper"], claim["ours"], word]
        lines.append("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |")
    lines.insert(1, _CODE.format(verdict.get("code", "")) + "\n")
    if plot is not None:
        lines.append(f"\n![{verdict['title']}]({plot})")
    return "\n".join(lines) + "\n"
