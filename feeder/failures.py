"""What a task failed of, found in what Spark says of it."""

from __future__ import annotations

import re

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
