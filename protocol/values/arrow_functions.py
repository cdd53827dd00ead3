"""The functions of `pyarrow.compute`, each made when it is first asked for.

Loading that module takes a tenth of the start of `run`, as it makes a Python function of each of Arrow's three hundred, with its signature
and its text of help. Here a function of Arrow is called as it is there: its arguments first, what is behind them are options. What
`pyarrow.compute` writes in Python itself is taken from it. The methods of arrays that compute something (`cast`, `take`, `filter`,
`fill_null`, `is_valid` …) load it, too: what every start meets calls the functions instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def __getattr__(name: str) -> Any:
    """Return a function, and keep it here, so that this is asked once for each."""
    found = globals()[name] = _registered(name) or _written_in_python(name)
    return found


def _registered(name: str) -> Callable[..., Any] | None:
    """Return a function of Arrow's registry by its name in `pyarrow.compute`: `and` and `or` have a line behind them there."""
    from pyarrow import _compute as compute

    try:
        function = compute.get_function(name.rstrip("_"))
    except KeyError:
        return None
    arity, options_class = function.arity, function._doc.options_class
    options_of = getattr(compute, options_class) if options_class else None

    def call(*arguments: Any, **options: Any) -> Any:
        given = len(arguments) if arity is Ellipsis else arity
        if len(arguments) > given or options:
            if options_of is None:
                raise TypeError(f"{name} takes {given} arguments and no options")
            return function.call(arguments[:given], options_of(*arguments[given:], **options))
        return function.call(arguments)

    return call


def _written_in_python(name: str) -> Any:
    import pyarrow.compute

    return getattr(pyarrow.compute, name)
