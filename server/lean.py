"""Keeps pandas out of processes that have no use for it: it costs half a second and forty megabytes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType


class _NoPandas(MetaPathFinder):
    """Says that pandas is not installed."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Refuse pandas, leave everything else to others."""
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is kept out of this process", name=fullname)


def keep_pandas_out() -> None:
    """Let pyarrow find no pandas. It looks once, at its first conversion, to recognise pandas' own types, and imports it for that.

    To be called before anything is converted, by commands that never see a pandas object; afterwards pandas can be imported as usual,
    pyarrow alone does not know it.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(finder)
