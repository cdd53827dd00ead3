"""What a run depends on beside its case: the modules of ours that its function imports, directly or over others, as they are.

Nearly everything imports the catalogue of policies, and so all policies. So of the policies only those that a run is of count: the one
that its case names, or those that its module says (`RUN_POLICIES`). A run that says neither depends on all. Comments, docstrings and
layout do not count: what is digested is a module's syntax tree.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from millstream.scheduler.catalog import CATALOG, build
from millstream.scheduler.experiments.frame import ExperimentCase
from millstream.scheduler.spec import PolicySpec
from millstream.scheduler.trains import TrainShape

_OURS = "millstream."
_CATALOG = "millstream.scheduler.catalog"
_DIGITS = 32


def run_digest(case: ExperimentCase) -> str:
    """Return a digest of the code that the result of a case comes from."""
    return _digest_of(case.module, _policies_of(case))


def verdict_digest(module: str, cases: Iterable[ExperimentCase]) -> str:
    """Return a digest of what a verdict comes from: the runs of its cases, and how the scenario in `module` lists and judges them."""
    runs = sorted({run_digest(case) for case in cases})
    return _joined([*runs, _digest_of(module, ())])


def _policies_of(case: ExperimentCase) -> tuple[str, ...] | None:
    """Return the policies that a run is of, None where that is not known."""
    said: tuple[str, ...] | None = getattr(import_module(case.module), "RUN_POLICIES", None)
    named = case.parameters.get("policy")
    if said is not None or not isinstance(named, str):
        return said
    return (named,) if named.split(":", maxsplit=1)[0] in CATALOG else None


@cache
def _digest_of(module: str, policies: tuple[str, ...] | None) -> str:
    return _joined([f"{name} {_syntax_of(name)}" for name in sorted(modules_of(module, policies))])


def modules_of(module: str, policies: tuple[str, ...] | None) -> set[str]:
    """Return the modules that count: what this one imports, directly or over others, and of the catalogue only these policies.

    With None for `policies`, all of the catalogue.
    """
    waiting = [module]
    if policies is not None:
        waiting += [name for policy in policies for name in _made_of(policy)]
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            if name != _CATALOG or policies is None:
                waiting += _imports(name)
    return found


def _made_of(policy: str) -> set[str]:
    """Return the modules of the parts that a policy is built from."""
    built = build(PolicySpec.parse(policy), default_train=TrainShape())
    found: set[str] = set()
    _collect(built, found, set())
    return found - {_CATALOG}


def _collect(part: Any, found: set[str], seen: set[int]) -> None:
    if id(part) in seen:
        return
    seen.add(id(part))
    if isinstance(part, partial):
        for one in (part.func, *part.args, *part.keywords.values()):
            _collect(one, found, seen)
        return
    for one in (part, type(part)):
        name = getattr(one, "__module__", None)
        if isinstance(name, str) and name.startswith(_OURS):
            found.add(name)
    if type(part).__module__.startswith(_OURS):
        for value in vars(part).values() if hasattr(part, "__dict__") else (getattr(part, name) for name in type(part).__slots__):
            _collect(value, found, seen)


@cache
def _text(module: str) -> str:
    spec = find_spec(module)
    assert spec is not None, module
    return Path(spec.origin).read_text("utf-8") if spec.origin is not None else ""  # a folder without a file of its own


def syntax(text: str) -> str:
    """Return a digest of a module's syntax tree, without its docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [one for one in node.body if not _is_text(one)]
    return _joined([ast.dump(tree)])


@cache
def _syntax_of(module: str) -> str:
    return syntax(_text(module))


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


@cache
def _imports(module: str) -> tuple[str, ...]:
    """Return the modules of ours that a module imports when it runs, inside functions too."""
    found: dict[str, None] = {}
    for node in _executed(ast.parse(_text(module))):
        if isinstance(node, ast.Import):
            found.update(dict.fromkeys(one.name for one in node.names))
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith(_OURS):
            found[node.module] = None
            for one in node.names:
                name = f"{node.module}.{one.name}"
                if _is_module(name):
                    found[name] = None
    return tuple(name for name in found if name.startswith(_OURS))


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            continue
        yield child
        yield from _executed(child)


@cache
def _is_module(name: str) -> bool:
    parent = find_spec(name.rpartition(".")[0])
    return parent is not None and parent.submodule_search_locations is not None and find_spec(name) is not None


def _joined(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:_DIGITS]
