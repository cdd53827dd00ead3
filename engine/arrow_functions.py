"""The functions of `pyarrow.compute`, which is loaded when the first of them is called.

Loading it takes a tenth of the server's start, as it makes a Python function of each of Arrow's; many streams never need one.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """Return a function, and keep it here, so that this is asked once for each."""
    import pyarrow.compute

    found = getattr(pyarrow.compute, name)
    globals()[name] = found
    return found
