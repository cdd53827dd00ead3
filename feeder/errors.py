"""What can go wrong in the feeder: one family, each error a sentence that names the place and, where it can, the mend.

What a task of Spark's failed of is found in what Spark says of it.
"""

from __future__ import annotations

import re


class FeederError(Exception):
    """Base of all errors of this folder. `hint` says what to do about it, empty when nothing is known to help."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class JavaNotFoundError(FeederError):
    """No Java of the release that Spark needs."""


class SparkMissingError(FeederError):
    """The package pyspark is not installed."""


class SourceError(FeederError):
    """Stored data that cannot be found, read, or brought to the stream's schema."""


class RateError(FeederError):
    """A rate, profile or arrival rule that cannot be read or does not fit the data."""


class StateError(FeederError):
    """A state file that cannot be read or belongs to another run."""


_OURS = re.compile(r"^(?:\w+\.)*millstream(?:\.\w+)+: (.*)$", re.MULTILINE)
_LAST = re.compile(r"^\s*(?:\w+\.)*(\w*(?:Error|Exception)): (.*)$", re.MULTILINE)


def what_failed(error: BaseException) -> str | None:
    """Return the sentence of the error that a task raised, None when `error` does not come from Spark."""
    if type(error).__module__.partition(".")[0] not in ("py4j", "pyspark"):
        return None
    text = str(error)
    ours = _OURS.search(text)
    if ours is not None:
        return ours[1]
    traceback = text.partition("Traceback (most recent call last):")[2].partition("\n\n")[0]
    found = _LAST.findall(traceback)
    if found:
        return f"a task failed: {found[-1][0]}: {found[-1][1]}"
    return f"Spark failed: {text.strip().splitlines()[0]}"
