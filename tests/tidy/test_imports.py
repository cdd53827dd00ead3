"""What import-linter cannot see: bare names of our folders, and what a fresh process really loads."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute
import pytest
from millstream.protocol.values import arrow_functions as pc
from sqlglot.dialects.dialect import Dialect
from sqlglot.expressions import Expr
from sqlglot.generator import Generator
from sqlglot.parser import Parser
from sqlglot.tokens import Tokenizer

from tests.support.tree import PACKAGES, files, imports, modules, parse


def test_our_folders_are_imported_as_millstream_never_by_their_bare_names() -> None:
    bare = [f"{path}:{line} {name}" for path in files(".py") for line, name in imports(path) if name.split(".")[0] in PACKAGES]
    assert bare == []


def test_product_code_imports_neither_tests_nor_relatives_nor_everything() -> None:
    wrong = [
        f"{path}:{line} {name}"
        for path in modules()
        for line, name in imports(path)
        if name.split(".")[0] == "tests" or name.startswith(".") or name.endswith(".*")
    ]
    assert wrong == []


def test_only_the_feeder_names_spark() -> None:
    named = {path.parts[0] for path in modules() for _, name in imports(path) if name.split(".")[0] in {"pyspark", "py4j"}}
    assert named <= {"feeder"}


def test_one_file_names_private_members_of_sqlglot() -> None:
    language = [path for path in modules() if path.parts[:2] == ("engine", "language")]
    readers = [path for path in modules() if any(name.split(".")[0] == "sqlglot" for _, name in imports(path))]
    private = private_members_of_sqlglot()
    named = {path: private & names_of(parse(path)) for path in dict.fromkeys(language + readers)}
    assert {path.as_posix(): sorted(names) for path, names in named.items() if names}.keys() == {"engine/language/dialect.py"}


FIRST = "server/durability/first_checkpoints.py"
WORKERS = ("server/workers/desk.py", "server/workers/pool.py", "server/workers/process.py")
"""What a server tells a process that it has started itself; what comes back is never pickled."""


def test_pickle_is_left_where_nothing_persists_and_where_0_1_0_is_read() -> None:
    named = {path.as_posix() for path in modules() if any(name.split(".")[0] == "pickle" for _, name in imports(path))}
    assert named == {
        "server/once/child.py",
        "server/once/transport.py",
        "server/once/worker.py",
        "server/durability/first_checkpoints.py",
        *WORKERS,
    }


def test_a_private_member_is_found_however_it_is_named() -> None:
    texts = (
        "parser._match(kind)",
        "self._curr = None",
        "class P(Parser):\n    def _parse_select(self): ...",
        "class P(Parser):\n    _curr = 1",
        "vars(Parser)['_curr']",
    )
    assert [text for text in texts if not private_members_of_sqlglot() & names_of(ast.parse(text))] == []
    assert private_members_of_sqlglot() & names_of(ast.parse("_chunks(self.current.text)")) == set()


def private_members_of_sqlglot() -> set[str]:
    """Return the private names of the classes of sqlglot that the product meets."""
    names = {name for kind in (Parser, Tokenizer, Generator, Dialect, Expr) for name in dir(kind)}
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def names_of(tree: ast.Module) -> set[str]:
    """Return what a file names of objects: attributes, members that its classes define, and its strings."""
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names |= {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    for member in (member for kind in ast.walk(tree) if isinstance(kind, ast.ClassDef) for member in kind.body):
        if isinstance(member, ast.FunctionDef):
            names.add(member.name)
        else:
            names |= {node.id for node in ast.walk(member) if isinstance(node, ast.Name)}
    return names


def test_the_engine_uses_threading_for_locks_only() -> None:
    used = {
        f"{path}: threading.{node.attr}"
        for path in modules()
        if path.parts[0] == "engine"
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "threading"
    }
    assert {use for use in used if not use.endswith((".Lock", ".RLock"))} == set()
    from_imports = [
        f"{path}" for path in modules() if path.parts[0] == "engine" for _, name in imports(path) if name.startswith("threading.")
    ]
    assert from_imports == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("millstream.scheduler", ["pyarrow", "pandas", "asyncio", "pyspark", "sqlglot"]),
        ("millstream.engine.data.graph", ["pyarrow", "numpy"]),
        ("millstream.engine.data.work", ["pyarrow", "numpy"]),
        ("millstream.server.live", ["pyarrow.compute", "pandas", "matplotlib", "rich", "millstream.scheduler.simulation"]),
        ("millstream.feeder.job", ["pyspark", "py4j"]),
        ("millstream.feeder.command", ["pyspark", "py4j"]),
    ],
)
def test_importing_one_part_does_not_load(module: str, forbidden: list[str]) -> None:
    assert sorted(set(forbidden) & loaded_by(f"import {module}")) == []


@pytest.mark.slow
def test_no_scheduler_module_loads_arrow_or_an_event_loop() -> None:
    names = [".".join(("millstream", *path.with_suffix("").parts)) for path in modules() if path.parts[0] == "scheduler"]
    code = "; ".join(f"import {name.removesuffix('.__init__')}" for name in names if not name.endswith("__main__"))
    assert sorted({"pyarrow", "pandas", "asyncio", "pyspark", "sqlglot"} & loaded_by(code)) == []


SERVE = """
import asyncio
from millstream.client import cli
from millstream.server.serve_command import command
from millstream.server.lean import keep_pandas_out
keep_pandas_out()
from millstream.server.config import Config
from millstream.server.live import LiveServer
async def serve():
    server = LiveServer(Config(port=0))
    await server.start()
    at_start = list(sys.modules)
    await server.settle()
    assert {"sqlglot", "millstream.engine.plan.plan", "millstream.server.statements.selects"} <= set(sys.modules)
    await server.stop()
    return at_start
modules = asyncio.run(serve())
"""
RUN = """
from millstream.client import cli
assert cli.run(["run", {script!r}, "--format", "csv"]) == 0
"""
SCRIPT = """
CREATE STREAM s (ts BIGINT, k BIGINT) TIMESTAMP BY ts UNIT us;
SELECT k + 1 AS more FROM s;
INSERT INTO s VALUES (1, 2), (2, 3);
"""
OVER_CSV = """
CREATE STREAM t (ts TIMESTAMP, name TEXT, v DOUBLE) TIMESTAMP BY ts;
SELECT name, COUNT(*) AS n, AVG(v) AS mean, window_end FROM t [RANGE 10 SECONDS SLIDE 5 SECONDS] GROUP BY name;
"""
CSV = "ts,name,v\n2024-01-01T00:00:01Z,a,1.5\n2024-01-01T00:00:02.5Z,b,2\n"


@pytest.mark.slow
def test_a_server_that_begins_to_listen_has_loaded_neither_the_language_nor_what_only_some_servers_need() -> None:
    loaded = loaded_by(SERVE)
    not_needed = {"sqlglot", "prometheus_client", "importlib.metadata", "http.server", "rich", "pandas", "pyarrow.compute", "matplotlib"}
    assert not_needed & loaded == set()
    assert sum(ours(loaded).values()) <= 300, ours(loaded)


@pytest.mark.slow
def test_a_script_that_is_run_loads_no_server_and_only_the_operators_it_has(tmp_path: Path) -> None:
    script = tmp_path / "script.sql"
    script.write_text(SCRIPT)
    loaded = loaded_by(RUN.format(script=str(script)))
    not_needed = {"asyncio", "http", "prometheus_client", "ssl", "structlog", "uvloop", "millstream.protocol.messages", "pandas", "rich"}
    assert (not_needed | DEAR) & loaded == set()
    assert sum(ours(loaded).values()) <= 345, ours(loaded)


DEAR = {"pyarrow.compute", "numpy.ma"}  # together a tenth of the start of a script


@pytest.mark.slow
@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_window_over_a_csv_file_loads_no_function_of_arrow_that_it_does_not_call(tmp_path: Path, form: str) -> None:
    (tmp_path / "script.sql").write_text(OVER_CSV)
    (tmp_path / "rows.csv").write_text(CSV)
    arguments = ["run", str(tmp_path / "script.sql"), "--input", f"t={tmp_path / 'rows.csv'}", "--format", form]
    loaded = loaded_by(f"from millstream.client import cli\nassert cli.run({arguments!r}) == 0")
    assert loaded & DEAR == set()


def test_arrows_functions_are_called_as_pyarrow_has_them() -> None:
    words = pa.array(["a,b", None, "", "c"])
    numbers = pa.array([3, 1, None, 2])
    assert pc.and_(pa.array([True, False]), True).to_pylist() == [True, False]
    assert pc.replace_substring(words, ",", ";", max_replacements=1).to_pylist() == ["a;b", None, "", "c"]
    assert pc.binary_join_element_wise(words, "x", "-").to_pylist() == ["a,b-x", None, "-x", "c-x"]
    assert pc.coalesce(numbers, 0).to_pylist() == [3, 1, 0, 2]
    assert pc.cast(numbers, pa.string()).to_pylist() == ["3", "1", None, "2"]
    assert pc.rank(numbers, tiebreaker="dense").to_pylist() == [3, 1, 4, 2]
    assert pc.sum(numbers).as_py() == 6
    assert pc.fill_null(numbers, 7).to_pylist() == [3, 1, 7, 2]  # one that is written in Python
    with pytest.raises(pa.ArrowInvalid):
        pc.cast(pa.array(["x"]), pa.int64())
    with pytest.raises(TypeError, match="takes 1 arguments and no options"):
        pc.invert(pa.array([True]), 1)
    with pytest.raises(AttributeError):
        _ = pc.no_such_function


def test_every_function_of_arrow_that_is_asked_for_answers_as_in_pyarrow() -> None:
    asked = {name for path in modules() for name in attributes_of(path, "arrow_functions")}
    assert len(asked) > 40
    assert sorted(name for name in asked if not hasattr(pyarrow.compute, name)) == []
    written = {name for name in asked if pc._registered(name) is None}
    assert written <= {"fill_null", "index"}, written


def attributes_of(path: Path, module: str) -> set[str]:
    """Return the attributes of an imported module that a file reads."""
    tree = parse(path)
    names = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name == module
    }
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names
    }


def ours(loaded: set[str]) -> dict[str, int]:
    """Return how many modules of each of our folders are loaded."""
    return dict(Counter(name.split(".")[1] for name in loaded if name.startswith("millstream.")))


def loaded_by(code: str) -> set[str]:
    """Return the names of the modules that a fresh interpreter holds after running `code`, which may print."""
    script = f"import sys\nmodules = sys.modules\n{code}\nprint(*modules)"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(answer.stdout.splitlines()[-1].split())
