"""Advice about the scheduling policy: who gives it, what it says to people, and how it is followed. For the command and for the console.

The adviser simulates, so it is no part of the client. It is found by the entry point `policies` of the group `millstream.advisors`: a
function of a recording's path that returns plain data (docs/advisor.md lists the fields). It takes minutes and all processors it is
given: call it on a thread, or in a process, of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from millstream.client.errors import MillstreamError
from millstream.client.installed import own_entry
from millstream.client.statements import policy_statement, quoted

if TYPE_CHECKING:
    from millstream.client.blocking import Client

GROUP = "millstream.advisors"
OBJECTIVES = ("p99", "slowdown", "utility", "memory")

Advice = Mapping[str, Any]
Progress = Callable[[str, int, int], None]
"""Is told what is tried, how many runs of that have ended, and of how many."""


def advise(
    recording: Path,
    *,
    objective: str = "p99",
    present: str | None = None,
    policies: Sequence[str] = (),
    minutes: float = 3.0,
    processes: int = 1,
    progress: Progress | None = None,
) -> Advice:
    """Return what to do about the load of a recording; raises MillstreamError for one that cannot be simulated."""
    place = own_entry(GROUP, "policies")
    if place is None:
        raise MillstreamError("unsupported", "this installation has no adviser", "install millstream whole")
    module, _, name = place.partition(":")
    adviser: Callable[..., Advice] = getattr(import_module(module), name)
    asked = {"objective": objective, "present": present, "policies": policies, "minutes": minutes, "processes": processes}
    try:
        return adviser(recording, clock=time.monotonic, progress=progress, **asked)
    except Exception as error:
        code, message = getattr(error, "code", None), getattr(error, "message", None)
        if isinstance(code, str) and isinstance(message, str):  # one of its family; anything else is a fault
            raise MillstreamError(code, message, getattr(error, "hint", None)) from error
        raise


def policy_in_force(client: Client) -> str:
    """Return the server's policy with its options, as `policy set` takes it."""
    found = [row["value"] for row in client.execute("SHOW SCHEDULER") if row["measure"] == "policy"]
    return str(found[0])


def follow(client: Client, advice: Advice) -> tuple[str, str] | None:
    """Switch the server to the proposed policy; return what it has now and what it had before, or None where nothing is proposed.

    Queries stay in their classes: a class is for people to name, and to give a priority.
    """
    if advice["proposed"] is None:
        return None
    before, policy = policy_in_force(client), str(advice["proposed"]["policy"])
    client.execute(policy_statement(policy))
    return policy, before


def told(advice: Advice) -> Iterator[str]:
    """Yield the lines that tell a person of an advice."""
    yield (
        f"recorded: {advice['recorded_rows']} rows in {advice['recorded_s']:.0f} s; {advice['runs']} runs of at most {advice['rows']} rows"
        + (f", no time for {advice['skipped']} more" if advice["skipped"] else "")
    )
    yield f"in force: {advice['present']}, with {advice['present_value']:.4g} ({advice['words']})"
    yield ""
    if advice["proposed"] is None:
        yield f"keep what you have: {advice['reason']}"
    else:
        yield f"proposal: {advice['proposed']['policy']}"
        yield from _gains(advice["proposed"])
        yield f"to do it: millstream policy set {quote(advice['proposed']['policy'])}"
    if advice["apart"] is not None:
        yield ""
        yield f"or set {len(advice['apart']['apart'])} queries apart, with the policy {advice['apart']['policy']}"
        yield from _gains(advice["apart"])
        yield "to do it:"
        yield from (f"  {line}" for line in apart_statements(advice["apart"]))


def apart_statements(finding: Mapping[str, Any]) -> list[str]:
    """Return the statements that set queries apart: they go on in their new class."""
    return [
        "CREATE CLASS apart PRIORITY 1;",
        *(f"ALTER QUERY {quoted(name)} SET (class = 'apart');" for name in finding["apart"]),
        f"{policy_statement(finding['policy'])};",
    ]


def _gains(finding: Mapping[str, Any]) -> Iterator[str]:
    for words, gain in (("now", finding["gain"]), ("with 20% more load", finding["gain_at_more_load"])):
        yield f"  {words}: {gain['present']:.4g} -> {gain['proposed']:.4g}, {gain['share']:+.0%} ± {gain['ci95']:.1%}"
    if finding["worse"] or finding["slower"]:
        yield "  could get worse:"
    for one in finding["worse"]:
        yield f"    {one['words']}: {one['present']:.4g} -> {one['proposed']:.4g}"
    for one in finding["slower"]:
        yield f"    query {one['query']}: 99th percentile {one['present_ms']:.4g} -> {one['proposed_ms']:.4g} ms"
