"""Which policies are tried, with which options: the whole table of policies, and around the best of them a grid of what they share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from millstream.scheduler.catalog import ALIASES, CATALOG, PolicyParts, build
from millstream.scheduler.errors import PolicyError
from millstream.scheduler.spec import OptionValue, PolicySpec
from millstream.scheduler.trains import TrainShape
from millstream.scheduler.units.shared_trees import STRATEGIES

INNERS = ("fcfs", "hnr", "hr")
# What a policy may be given beside what it has by default, if it knows the option.
_OWN: dict[str, tuple[OptionValue, ...]] = {"level": ("operator",), "clusters": (4, 36), "gamma": (0.25, 0.75), "inner": ("ml", *INNERS)}
_WALKS: tuple[OptionValue, ...] = ("min-latency", "min-memory")
# What any policy may be given, tried around the best.
_COMMON: tuple[tuple[str, OptionValue], ...] = (("train", 1), ("train", "all"), ("schedule", 1))


def names(asked: Sequence[str]) -> list[str]:
    """Return the policies that are to be tried, in the order of the alphabet: those asked for, else all that need no file.

    Raises PolicyError for one that there is not.
    """
    found = {ALIASES.get(name, name) for name in asked} or {name for name in CATALOG if name != "user"}
    for name in sorted(found):
        build(PolicySpec.parse(name), default_train=TrainShape())
    return sorted(found)


def grid(asked: Sequence[str], *, shares: bool, classes: bool) -> list[PolicySpec]:
    """Return these policies as they are by default, then each of them with each option of its own.

    `shares`: queries share operators, so how these are ranked matters. `classes`: there are several, which `cqc` serves in turn.
    """
    found = [spec for name in asked if name != "cqc" or classes for spec in _variants(CATALOG[name], shares=shares)]
    return sorted(dict.fromkeys(_known(found)), key=lambda spec: bool(spec.options))  # where time runs out, each has had its turn


def around(spec: PolicySpec) -> list[PolicySpec]:
    """Return a policy with each of the options that any policy has, unless it says them itself."""
    given = {name for name, _ in spec.options}
    busy = given | ({"train"} if "quantum" in given else set())
    return list(_known(spec.with_option(name, value) for name, value in _COMMON if name not in busy))


def _variants(parts: PolicyParts, *, shares: bool) -> Iterator[PolicySpec]:
    plain = PolicySpec(parts.name)
    yield plain
    for option, values in _OWN.items():
        if option in parts.options:
            yield from (plain.with_option(option, value) for value in values if value != parts.options[option])
    if parts.name == "superbox":
        yield from (plain.with_option("traversal", walk) for walk in _WALKS)
    if shares and "sharing" in parts.options:
        yield from (plain.with_option("sharing", strategy) for strategy in STRATEGIES)


def _known(specs: Iterable[PolicySpec]) -> Iterator[PolicySpec]:
    """Yield those that can be put together."""
    for spec in specs:
        try:
            build(spec, default_train=TrainShape())
        except PolicyError:  # options that do not go with one another
            continue
        yield spec
