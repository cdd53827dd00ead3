"""The nearest known name to one that was mistyped: one rule for every guess ("did you mean …?").

A guess is made only within reach of a slip of the hand: the edit distance (letters put in, left out, replaced, or two neighbours
swapped) is at most a third of the longer name, and three in a long one. What is further off is another word, and a guess at it misleads.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nsmallest

WORD_LENGTH_MAX = 128  # longer ones are no slip of the hand
COMPARED_MAX = 512  # names that a mistyped one is compared with: all functions of the language, and a tenth of a second
SLIPS_MAX = 3
LISTED_MAX = 12
SHOWN_RELATIONS = "SHOW STREAMS and SHOW TABLES list them"
SHOWN_QUERIES = "SHOW QUERIES lists them"


def suggest(word: str, known: Iterable[str], compared_max: int = COMPARED_MAX) -> str | None:
    """Return the known name that `word` most resembles, or None when none is near. Case does not count.

    Of many names those are compared that begin alike, `compared_max` at most. Of a name in several words the first may stand for all.
    """
    if len(word) > WORD_LENGTH_MAX:
        return None
    wanted = word.lower()
    candidates = {name.lower(): name for name in known}
    names = sorted(candidates)
    if len(names) > compared_max:
        names = nsmallest(compared_max, names, key=lambda name: (-_alike(name, wanted), abs(len(name) - len(wanted))))
    slips, _, found = min(((_slips(wanted, name), -_alike(name, wanted), name) for name in names), default=(None, 0, ""))
    return None if slips is None or slips > SLIPS_MAX else candidates[found]


def did_you_mean(word: str, known: Iterable[str], compared_max: int = COMPARED_MAX) -> str | None:
    """Return "did you mean X?" for the nearest known name; None where none is near, or the word is one. `compared_max` as for `suggest`."""
    near = suggest(word, known, compared_max)
    return None if near is None or near == word else f"did you mean {near}?"


def near_or_listed(word: str, known: Iterable[str], nouns: str) -> str | None:
    """Return the nearest known name, else which there are: "the columns are a, b". None where there is none at all."""
    names = list(dict.fromkeys(known))
    return did_you_mean(word, names) or listed(names, nouns)


def listed(known: Iterable[str], nouns: str) -> str | None:
    """Return which names there are, the first of many; None where there is none."""
    names = list(dict.fromkeys(known))
    return f"the {nouns} are {', '.join(names[:LISTED_MAX])}{', …' if len(names) > LISTED_MAX else ''}" if names else None


def _alike(name: str, other: str) -> int:
    """Return how many characters two names begin with alike."""
    for at, (mine, theirs) in enumerate(zip(name, other, strict=False)):
        if mine != theirs:
            return at
    return min(len(name), len(other))


def _slips(word: str, name: str) -> int:
    """Return the distance of two names, more than SLIPS_MAX when it is out of reach."""
    first = name.partition(" ")[0]
    if first != name and first == word:
        return 1
    return min(_within_reach(word, name), _within_reach(word, first) + 1 if first != name else SLIPS_MAX + 1)


def _within_reach(word: str, name: str) -> int:
    found = slips(word, name, min((max(len(word), len(name)) + 1) // 3, SLIPS_MAX))
    return SLIPS_MAX + 1 if found is None else found


def slips(one: str, other: str, most: int) -> int | None:
    """Return how many letters must be put in, left out, replaced or swapped with their neighbour to turn one name into the other.

    Each letter takes part in one such step (optimal string alignment). None when it takes more than `most`, which is known early: the
    time grows with the shorter length times `most`.
    """
    if abs(len(one) - len(other)) > most:
        return None
    far = most + 1
    before: list[int] = []
    last = [j if j <= most else far for j in range(len(other) + 1)]
    for i, mine in enumerate(one, 1):
        row = [far] * (len(other) + 1)
        row[0] = min(i, far)
        for j in range(max(1, i - most), min(len(other), i + most) + 1):
            theirs = other[j - 1]
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (mine != theirs))
            if i > 1 and j > 1 and mine == other[j - 2] and one[i - 2] == theirs:
                cost = min(cost, before[j - 2] + 1)
            row[j] = cost
        if min(row) > most:
            return None
        before, last = last, row
    return last[-1] if last[-1] <= most else None
