"""What can go wrong in the feeder: one family, each error a sentence that names the place and, where it can, the mend."""

from __future__ import annotations


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
