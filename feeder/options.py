"""Turns the words of the command line into a plan. No Spark here; the daemon is asked for the streams' columns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.client.errors import MillstreamError
from millstream.client.inputs import time_format
from millstream.feeder.arrivals import ArrivalRule, Kind
from millstream.feeder.errors import RateError, SourceError
from millstream.feeder.job import FeedPlan
from millstream.feeder.rates import Profile, constant, parse_profile, parse_rate
from millstream.feeder.shaping import Mapped
from millstream.feeder.sources import ReadOptions
from millstream.feeder.targets import describe


@dataclass(frozen=True, slots=True)
class Into:
    """A stream and the condition (Spark SQL over the files' columns) of the rows it takes; None: all."""

    stream: str
    condition: str | None = None


def parse_into(texts: Sequence[str], *, split: bool) -> list[Into]:
    """Read `STREAM` or `STREAM WHERE condition`, each stream once."""
    found = []
    for text in texts:
        match = re.fullmatch(r"\s*(\S+)(?:\s+WHERE\s+(.+))?\s*", text, re.IGNORECASE | re.DOTALL)
        if match is None:
            raise SourceError(f"cannot read --into {text!r}", hint="write STREAM or 'STREAM WHERE condition'")
        found.append(Into(match.group(1), match.group(2)))
    names = [into.stream for into in found]
    if len(set(names)) < len(names):
        raise SourceError(f"--into names {next(n for n in names if names.count(n) > 1)} twice", hint="join the conditions with OR")
    if split and (len(found) > 1 or found[0].condition is not None):
        raise SourceError("--split-by goes with one --into STREAM without a condition")
    return found


def parse_map(texts: Sequence[str]) -> dict[str, str]:
    """Read `COLUMN=EXPRESSION` pairs."""
    pairs = [text.partition("=") for text in texts]
    for (name, equals, expression), text in zip(pairs, texts, strict=True):
        if not (name.strip() and equals and expression.strip()):
            raise SourceError(f"cannot read --map {text!r}", hint="write COLUMN=EXPRESSION")
    return {name.strip(): expression.strip() for name, _, expression in pairs}


def parse_time_formats(texts: Sequence[str]) -> dict[str | None, Any]:
    """Read `[COLUMN=]FORMAT`: the format of each column that is named, and of all others under None."""
    try:
        return dict(time_format(text) for text in texts)
    except MillstreamError as error:
        raise SourceError(error.message) from None


def arrival_rule(options: Mapping[str, Any]) -> ArrivalRule:
    """Choose how arrivals are timed: what was asked for, else Poisson when there is a rate, else as fast as possible."""
    profile = _profile(options["rate"], options["profile"])
    kind: Kind = options["kind"] or ("max" if profile is None else "poisson")
    if kind in {"max", "original"} and profile is not None:
        raise RateError(f"--{kind} does not go with a rate", hint="leave --rate and --profile out, or ask for --poisson or --fixed")
    if kind != "original" and options["speed"] != 1.0:
        raise RateError("--speed goes with --original")
    if kind in {"max", "original"} and options["burst"] != 1:
        raise RateError("--burst goes with --poisson or --fixed")
    return ArrivalRule(kind, profile, options["seed"], options["burst"], options["speed"])


def _profile(rate: str | None, profile: str | None) -> Profile | None:
    if rate is not None and profile is not None:
        raise RateError("give --rate or --profile, not both")
    if rate is not None:
        return constant(parse_rate(rate))
    return None if profile is None else parse_profile(profile)


def feed_plan(client: Any, options: Mapping[str, Any], into: Sequence[Into], rule: ArrivalRule) -> FeedPlan:
    """Return the plan; with a split column its targets are still to be found."""
    if not options["in_order"] and not options["publishers"]:
        raise SourceError("--any-order goes with --publishers")
    targets = () if options["split_by"] is not None else tuple(describe(client, item.stream) for item in into)
    zones = {target.zone for target in targets if target.zone is not None}
    zone = options["zone"] or (zones.pop() if len(zones) == 1 else None)
    return FeedPlan(
        paths=tuple(options["paths"]),
        targets=targets,
        rule=rule,
        read=ReadOptions(options["file_format"], options["null"], options["delimiter"], options["one_line"]),
        mapped=Mapped(parse_map(options["mapped"]), zone, parse_time_formats(options["time_formats"])),
        conditions=tuple(item.condition for item in into),
        split_by=options["split_by"],
        publishers=options["publishers"] or 0,
    )
