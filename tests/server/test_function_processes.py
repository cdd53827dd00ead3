"""A user's function in its process: it reaches nothing that it should not, it is ended whole, and no answer of it is believed."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from millstream.engine.expressions.user_functions import FunctionFailed
from millstream.engine.language.parse import parse_statement
from millstream.engine.language.statements import CreateFunction
from millstream.server.functions import frames
from millstream.server.functions.process import Confinement, FunctionProcess
from millstream.server.functions.processes import descendants
from millstream.server.functions.sandbox import MACHINES

Make = Callable[..., FunctionProcess]
linux = pytest.mark.skipif(sys.platform != "linux", reason="what confines a function is Linux's")


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[FunctionProcess] = []

    def make_one(source: str, result: str = "TEXT", **how: Any) -> FunctionProcess:
        statement = parse_statement(f"CREATE FUNCTION f(n BIGINT) RETURNS {result} FROM '{tmp_path}/here/f.py' TIME LIMIT 5 SECONDS")
        assert isinstance(statement, CreateFunction)
        made.append(FunctionProcess(statement.definition, source, Confinement(**how)))
        made[-1].start()
        return made[-1]

    yield make_one
    for function in made:
        function.close()


def ask(function: FunctionProcess, *values: int) -> list[Any]:
    answer: list[Any] = function([pa.array(values, pa.int64())]).values.to_pylist()
    return answer


REACHES = {
    "import socket; socket.socket()": "Operation not permitted",
    "import socket; socket.socket(socket.AF_UNIX)": "Operation not permitted",
    "os.fork()": "Operation not permitted",
    "import subprocess; subprocess.run(['true'])": "Operation not permitted",
    "os.execv('/bin/true', ['true'])": "Operation not permitted|Permission denied",
    "os.kill(os.getppid(), 0)": "Operation not permitted",
    "os.kill(-1, 0)": "Operation not permitted",
    "open(f'/proc/{os.getppid()}/environ').read()": "Permission denied",
    "open(f'/proc/{os.getppid()}/mem', 'rb').read(1)": "Permission denied",
    "open('/etc/passwd').read()": "Permission denied",
    "os.listdir('SECRETS')": "Permission denied",
    "open('SECRETS/catalogue').read()": "Permission denied",
    "open('HERE/new', 'w')": "Permission denied",
    "os.truncate('HERE/data', 0)": "Permission denied",
    "os.remove('HERE/data')": "Permission denied",
    "import resource; resource.setrlimit(resource.RLIMIT_CPU, (-1, -1))": "not allowed|not permitted",
    "bytearray(2**30)": "MemoryError",
}


@linux
def test_a_function_reaches_neither_network_nor_files_nor_other_processes_nor_more_memory(make: Make, tmp_path: Path) -> None:
    if os.uname().machine not in MACHINES:
        pytest.skip("no numbers for this machine")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "catalogue").write_text("rows", "utf-8")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "data").write_text("model", "utf-8")
    deeds = [d.replace("SECRETS", str(tmp_path / "secrets")).replace("HERE", str(tmp_path / "here")) for d in REACHES]
    source = f"import os\nDEEDS = {deeds!r}\ndef f(n):\n    exec(DEEDS[int(n[0])])\n    return ['done'] * len(n)\n"
    function = make(source, memory_bytes_max=2**29)
    if function.missing:
        pytest.skip(f"this system lacks {', '.join(function.missing)}")
    for number, (deed, words) in enumerate(REACHES.items()):
        with pytest.raises(FunctionFailed, match=words):
            pytest.fail(f"{deed} gave {ask(function, number)}")
    assert (tmp_path / "here" / "data").read_text("utf-8") == "model"
    assert function.starts == 1


def test_a_function_reads_beside_its_file_and_knows_nothing_of_the_servers_environment(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLSTREAM_ADMIN_TOKEN", "secret")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "data").write_text("model", "utf-8")
    beside = f"open('{tmp_path}/here/data').read()"
    function = make(f"import os\ndef f(n):\n    return [{beside}, ' '.join(os.environ)]\n")
    found, names = ask(function, 1, 2)
    assert found == "model"
    assert "MILLSTREAM" not in names


def test_what_is_hidden_is_not_read_because_a_function_stands_beside_it(tmp_path: Path) -> None:
    for hidden, file in (("data", "f.py"), ("data", "data/f.py"), (".", "data/f.py")):
        assert Confinement(hidden=(str(tmp_path / hidden),)).readable(str(tmp_path / file)) == []
    assert Confinement(hidden=(str(tmp_path / "data"),)).readable(str(tmp_path / "functions/f.py")) == [str(tmp_path / "functions")]
    assert Confinement().readable("/f.py") == []


@linux
@pytest.mark.parametrize("way", ["close", "overrun"])
def test_a_function_is_ended_with_all_that_it_started_also_in_sessions_of_their_own(make: Make, way: str) -> None:
    source = """
import os, time
def f(n):
    if n[0] == 0:
        time.sleep(60)
    read, write = os.pipe()
    if not os.fork():
        os.setsid()
        for _ in range(3):
            if not os.fork():
                os.setsid()
                os.write(write, b"%d " % os.getpid())
                time.sleep(60)
        os._exit(0)
    os.wait()
    found = b""
    while found.count(b" ") < 3:
        found += os.read(read, 100)
    return [found.decode()]
"""
    statement = parse_statement("CREATE FUNCTION f(n BIGINT) RETURNS TEXT FROM 'f.py' TIME LIMIT 2 SECONDS")
    assert isinstance(statement, CreateFunction)
    function = FunctionProcess(statement.definition, source, Confinement(confined=False))
    function.start()
    assert function._process is not None
    parent = function._process.pid
    started = [int(pid) for pid in ask(function, 1)[0].split()]
    assert sorted(descendants(parent)) == sorted(started)
    handles = [os.pidfd_open(pid) for pid in (parent, *started)]
    if way == "overrun":
        with pytest.raises(FunctionFailed, match="took longer"):
            ask(function, 0)
    function.close()
    for handle in handles:
        assert select.select([handle], [], [], 30.0)[0], "a process outlived its function"
        os.close(handle)


@linux
def test_processor_time_between_calls_ends_a_function(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.server.functions.process.CPU_SPARE_S", 1)
    monkeypatch.setattr("os.cpu_count", lambda: 0)  # the call's own time then allows nothing more
    source = """
import threading
def spin():
    while True:
        pass
def f(n):
    threading.Thread(target=spin, daemon=True).start()
    return [str(v) for v in n.tolist()]
"""
    function = make(source)
    assert ask(function, 1) == ["1"]
    assert function._process is not None
    assert function._process.wait(60) < 0, "the system ended it"
    assert ask(function, 2) == ["2"]
    assert (function.failed_calls, function.starts) == (0, 2)


LIES = {
    "b'garbage'": "not an Arrow message",
    "b''": "not an Arrow message",
    "right(['a'])[:-8]": "body|truncated|Expected|buffer",
    "right(['a'])[:40]": "not an Arrow|leads outside|Expected|metadata",
    "right(['a', 'b', 'c'])": "3 rows",
    "bytes(pa.record_batch([pa.array([1.5])], names=['answer']).serialize())": "Expected|no column|buffer|validat|Ran out",
    "bytes(pa.schema([('answer', pa.string())]).serialize())": "not a record batch",
    "squeezed(['a' * 100])": "compressed",
    "right(['abcdef']).replace(b'abcdef', b'\\xff\\xfe\\xff\\xfe\\xff\\xfe')": "UTF",
    "far(['abcd'])": "ffset|buffer|validat|too short",
}


def test_no_answer_is_believed(make: Make) -> None:
    source = f"""
import struct, sys
import pyarrow as pa
child = sys.modules["__main__"]
LIES = {list(LIES)!r}
honest = child._written
def right(values):
    return bytes(pa.record_batch([pa.array(values, pa.string())], names=["answer"]).serialize())
def squeezed(values):
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("answer", pa.string())]), options=options) as writer:
        writer.write_batch(pa.record_batch([pa.array(values)], names=["answer"]))
    stream = bytes(sink.getvalue())
    return stream[stream.index(b"\\xff\\xff\\xff\\xff", 4):]
def far(values):
    return right(values).replace(struct.pack("<ii", 0, 4), struct.pack("<ii", 0, 2**30))
def f(n):
    lie = int(n[0])
    child._written = honest if lie < 0 else lambda arrays, schema: eval(LIES[lie])
    return ["true"]
"""
    function = make(source)
    for number, (lie, words) in enumerate(LIES.items()):
        with pytest.raises(FunctionFailed, match=rf"(?s)not a column.*({words})"):
            pytest.fail(f"{lie} was believed: {ask(function, number)}")
        assert ask(function, -1) == ["true"]
    assert (function.failed_calls, function.starts) == (len(LIES), 1 + len(LIES))


def test_what_it_says_of_failed_rows_is_not_believed(make: Make) -> None:
    source = """
import sys
child = sys.modules["__main__"]
LIES = [b"", b"[]]", b"[[1]]", b'[["x", [2]]]', b'[["x", [-1]]]', b'[["x", [1e400]]]', b'[["x", null]]', b"[" * 50_000, b'{"a": 1}']
def f(n):
    if n[0] < len(LIES):
        told = LIES[n[0]]
        child._answered = lambda function, schema, payload: (child.PARTLY, child.NUMBER.pack(len(told)) + told)
    if n[0] == len(LIES):
        child._answered = lambda function, schema, payload: (child.PARTLY, child.NUMBER.pack(2**63) + b"x")
    if n[0] == len(LIES) + 1:
        child._answered = lambda function, schema, payload: (child.PARTLY, b"x")
    return ["true"]
"""
    function = make(source)
    for lie in range(11):
        assert ask(function, lie) == ["true"]  # the lie is told from the next call on
        with pytest.raises(FunctionFailed, match="not a column"):
            ask(function, 99)
        assert ask(function, 99) == ["true"]


def test_an_answer_to_no_question_and_one_without_end_cost_their_call_alone(make: Make) -> None:
    source = """
import struct, sys
child = sys.modules["__main__"]
def f(n):
    main = sys._getframe(3).f_locals
    if n[0] == 1:
        child._answer(main["answers"], child.DONE + main["number"], b"")
    if n[0] == 2:
        child._answer(main["answers"], child.FAILED + main["number"], b"x" * 100_000)
    if n[0] == 3:
        child._answer(main["answers"], child.DONE, b"")
    if n[0] == 4:
        main["answers"].write(struct.pack("<Q", 2**62))
    if n[0] == 5:
        raise ValueError("y" * 100_000)
    return ["true"]
"""
    function = make(source)
    lies = {1: "not a column", 2: "xxx", 3: "where its answers go", 4: "its process|where its answers go", 5: "ValueError"}
    for number, words in lies.items():
        with pytest.raises(FunctionFailed, match=words) as caught:
            ask(function, number)
        assert len(str(caught.value)) < 2_000
        if number == 2:  # what it says beside is not taken for the answer to the next call
            with pytest.raises(FunctionFailed, match="where its answers go"):
                ask(function, 0)
        assert ask(function, 0) == ["true"]


def test_a_frame_is_never_longer_than_its_bound() -> None:
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.write(write, frames.HEADER.pack(frames.FRAME_BYTES_MAX + 1))
    with pytest.raises(frames.PeerGone):
        frames.read_frame(read, frames.within(60))
    os.close(read)
    os.close(write)


STOPS_AND_WAITS = """
import os, signal, sys, threading, time
from millstream.server.functions.processes import spawn
made = []
asked = threading.Thread(target=lambda: made.append(spawn(lambda lifeline: (sys.executable, "-I", "-c", CHILD, str(lifeline)))))
asked.start(); asked.join()
process, _ = made[0]
os.set_blocking(process.stdout.fileno(), True)
assert process.stdout.read(1) == b"+"
os.kill(process.pid, signal.SIGSTOP)
os.waitpid(process.pid, os.WUNTRACED)
print(process.pid, flush=True)
time.sleep(60)
"""
CHILD = """
import sys, time
from millstream.server.functions.child import die_with_the_server
die_with_the_server(int(sys.argv[1]))
sys.stdout.write("+"); sys.stdout.flush()
time.sleep(60)
"""


@linux
def test_a_process_that_was_stopped_ends_with_a_server_that_is_killed() -> None:
    source = f"CHILD = {CHILD!r}\n{STOPS_AND_WAITS}"
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        stopped = int(parent.stdout.readline())
        handle = os.pidfd_open(stopped)
        assert not select.select([handle], [], [], 0.2)[0], "it must outlive the thread that asked for it"
        parent.send_signal(signal.SIGKILL)
        ended = select.select([handle], [], [], 30.0)[0]
        os.close(handle)
        if not ended:
            os.kill(stopped, signal.SIGKILL)
    assert ended, "it is stopped for ever"


KILLS_AND_LEAVES = """
import sys, threading, time
from millstream.server.functions import processes
begun = threading.Event()
def slow_look(pid):
    begun.set()
    time.sleep(0.5)  # in which a server that does not wait for it is gone
    return []
processes.descendants = slow_look
process, lifeline = processes.spawn(lambda lifeline: (sys.executable, "-I", "-c", "import time; time.sleep(60)"))
threading.Thread(target=processes.end, args=(process, lifeline), daemon=True).start()
begun.wait()
print(process.pid, flush=True)
"""


@linux
def test_a_server_that_ends_while_it_kills_a_process_leaves_none_that_is_stopped() -> None:
    with subprocess.Popen([sys.executable, "-c", KILLS_AND_LEAVES], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        killed = int(server.stdout.readline())
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(killed)
            try:
                assert server.wait(30.0) == 0
                ended = select.select([handle], [], [], 5.0)[0]
                if not ended:
                    os.kill(killed, signal.SIGKILL)
                assert ended, "it is stopped for ever"
            finally:
                os.close(handle)
