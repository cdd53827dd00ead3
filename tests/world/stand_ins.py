"""What the program finds in place of the interpreter's clocks, threads and chance while a world runs.

Nothing of the program is written for this: its modules name `threading`, `time`, `uuid` and `secrets` as any others do. While a world
runs, those names, and what was bound to parameters and fields when classes were made, stand for the world's own.
"""

from __future__ import annotations

import concurrent.futures
import concurrent.futures._base as futures
import functools
import importlib
import pkgutil
import queue
import secrets
import sys
import threading
import time
import types
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.world.hub import NS_PER_S, Hub, Pool, SimpleQueue, Threading

FOLDERS = ("client", "engine", "protocol", "scheduler", "server")
LEFT_OUT = ("benchmarks", "experiments", "simulation", "commands", "once.child", "functions.child")
Undo = Callable[[], None]


@functools.cache
def load_all() -> None:
    """Load every module that the program might load while a world runs, as what is loaded later has nothing put in its place."""
    for folder in FOLDERS:
        package = importlib.import_module(f"millstream.{folder}")
        for found in pkgutil.walk_packages(package.__path__, f"millstream.{folder}."):
            if not any(f".{part}" in found.name for part in LEFT_OUT):
                importlib.import_module(found.name)


class SimTime:
    """Stands where a module has `time`."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def monotonic_ns(self) -> int:
        return self._hub.read_clock()

    def monotonic(self) -> float:
        return self._hub.read_clock() / NS_PER_S

    def time_ns(self) -> int:
        return self._hub.read_clock() + self._hub.system_offset_ns

    def time(self) -> float:
        return self.time_ns() / NS_PER_S

    perf_counter_ns = thread_time_ns = process_time_ns = monotonic_ns
    perf_counter = thread_time = process_time = monotonic

    def sleep(self, seconds: float) -> None:
        self._hub.sleep(max(1, int(seconds * NS_PER_S)))

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


class SimUuid:
    """Stands where a module has `uuid`."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def uuid4(self) -> uuid.UUID:
        return uuid.UUID(int=self._hub.draw.getrandbits(128), version=4)

    def __getattr__(self, name: str) -> Any:
        return getattr(uuid, name)


class SimSecrets:
    """Stands where a module has `secrets`."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def token_hex(self, nbytes: int = 32) -> str:
        return self._hub.draw.randbytes(nbytes).hex()

    def __getattr__(self, name: str) -> Any:
        return getattr(secrets, name)


def _table(hub: Hub) -> dict[int, Any]:
    """Return what stands in for what, by the identity of the real thing."""
    threads, clock = Threading(hub), SimTime(hub)
    table: dict[int, Any] = {
        id(threading): threads,
        id(time): clock,
        id(uuid): SimUuid(hub),
        id(secrets): SimSecrets(hub),
        id(queue.SimpleQueue): functools.partial(SimpleQueue, hub),
        id(concurrent.futures.ThreadPoolExecutor): lambda workers=8, thread_name_prefix="pool": Pool(hub, workers, thread_name_prefix),
    }
    for name in ("Lock", "RLock", "Condition", "Event", "Thread", "get_ident"):
        table[id(getattr(threading, name))] = getattr(threads, name)
    for name in ("monotonic_ns", "monotonic", "time_ns", "time", "perf_counter_ns", "perf_counter", "thread_time_ns", "sleep"):
        table[id(getattr(time, name))] = getattr(clock, name)
    return table


def _functions(module: types.ModuleType) -> Iterator[Any]:
    for value in list(vars(module).values()):
        if isinstance(value, types.FunctionType) and value.__module__ == module.__name__:
            yield value
        elif isinstance(value, type) and value.__module__ == module.__name__:
            getattr(value, "__dataclass_fields__", None)  # has a record's methods written
            for member in list(vars(value).values()):
                if isinstance(member, types.FunctionType):
                    yield member


@functools.cache
def _places() -> list[tuple[str, Any, Any, Any]]:
    """Return (kind, holder, key, value) of each place in the program where a real thing stands that a world has its own of."""
    load_all()
    known = _table(Hub(0))
    places: list[tuple[str, Any, Any, Any]] = []
    for name, module in sorted(sys.modules.items()):
        if module is futures:
            places.append(("name", vars(module), "threading", threading))
        if not name.startswith("millstream.") or any(f".{part}" in name for part in LEFT_OUT):
            continue
        places += [("name", vars(module), key, value) for key, value in list(vars(module).items()) if id(value) in known]
        for function in _functions(module):
            if function.__defaults__ and any(id(value) in known for value in function.__defaults__):
                places.append(("defaults", function, None, function.__defaults__))
            if function.__kwdefaults__ and any(id(value) in known for value in function.__kwdefaults__.values()):
                places.append(("kwdefaults", function, None, function.__kwdefaults__))
            for cell in function.__closure__ or ():
                try:
                    value = cell.cell_contents
                except ValueError:
                    continue
                if id(value) in known:
                    places.append(("cell", cell, None, value))
            written = function.__globals__
            if written is not vars(module) and written.get("__name__") == name:  # a record's methods have names of their own
                places += [("name", written, key, value) for key, value in list(written.items()) if id(value) in known]
    return places


@contextmanager
def standing_in(hub: Hub) -> Iterator[None]:
    """Have the program use a world's clocks, threads and chance."""
    places, table = _places(), _table(hub)

    def stand_in(value: Any) -> Any:
        return table.get(id(value), value)

    try:
        for kind, holder, key, value in places:
            if kind == "name":
                holder[key] = stand_in(value)
            elif kind == "cell":
                holder.cell_contents = stand_in(value)
            elif kind == "defaults":
                holder.__defaults__ = tuple(map(stand_in, value))
            else:
                holder.__kwdefaults__ = {name: stand_in(one) for name, one in value.items()}
        yield
    finally:
        for kind, holder, key, value in places:
            if kind == "name":
                holder[key] = value
            elif kind == "cell":
                holder.cell_contents = value
            elif kind == "defaults":
                holder.__defaults__ = value
            else:
                holder.__kwdefaults__ = value
