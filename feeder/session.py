"""Starts Spark, quietly and only when it is needed, and ends in order what runs on it. The only place that creates a session."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, Any

from millstream.feeder.errors import FeederError, SparkMissingError
from millstream.feeder.java import find_java

DEFAULT_MASTER = "local[*]"
CANCEL_S = 0.1  # between two cancels of what runs, while it does not end
BATCH_ROWS_MAX = 10_000  # rows of an Arrow batch: what one publish carries at most
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Instants mean the same on every machine; local times without a zone are refused unless one is named (see sources.py).
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_ROWS_MAX),
    # The first pass groups a few rows a file; the second computes its number of partitions from what the first counted.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    # With pruning a malformed line would be malformed in one pass and fine in the other.
    "spark.sql.csv.parser.columnPruning.enabled": "false",
}
# For jobs of seconds: the optimising compiler would take longer than it saves.
_BRIEF_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@contextmanager
def spark_session(master: str | None = None, *, brief: bool = False) -> Iterator[Any]:
    """Yield a Spark session on a master (default: this machine, all cores); stop it at the end, its Java process too.

    `brief` saves work at the start at the price of speed later: for data that is read in seconds. Raises JavaNotFoundError,
    SparkMissingError, or FeederError with what Spark said when it does not start. Ctrl-C ends the jobs that run on it, and then raises
    KeyboardInterrupt.
    """
    session = start_session(master or DEFAULT_MASTER, brief=brief)
    try:
        with broken_off_by_interrupt(session.sparkContext.cancelAllJobs):
            yield session
    finally:
        stop_session(session)


def start_session(master: str, *, brief: bool = False) -> Any:
    """Start a session; see `spark_session`."""
    try:
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession
    except ImportError:
        raise SparkMissingError("the feeder needs pyspark", hint="pip install 'millstream[feeder]'") from None
    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {"spark.app.name": "millstream feed", "spark.master": master, **_SETTINGS}
    if master.startswith("local"):
        # Local mode talks to itself only; a machine whose name does not resolve can still run it.
        settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    java_options = [f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}", *([_BRIEF_JAVA_OPTIONS] if brief else [])]
    settings["spark.driver.extraJavaOptions"] = " ".join(java_options)
    conf = SparkConf().setAll(list(settings.items()))
    with _stderr_aside() as said:
        try:
            if SparkContext._gateway is None:
                # In a group of its own: a signal to our group is for us, who stop in order. Java ends when its input does.
                SparkContext._ensure_initialized(gateway=launch_gateway(conf, {"process_group": 0}))
            session = SparkSession.builder.config(conf=conf).getOrCreate()
        except Exception as error:
            said.seek(0)
            last = [line.strip() for line in said.read().splitlines() if line.strip()][-1:] or [str(error).splitlines()[0]]
            raise FeederError(f"Spark did not start on {master}: {last[0]}") from error
    return session


def stop_session(session: Any) -> None:
    """Stop the session and end the Java process behind it, which otherwise lives as long as this one."""
    from pyspark import SparkContext

    session.stop()
    gateway = SparkContext._gateway
    if gateway is None:
        return
    process = gateway.proc
    gateway.shutdown()
    process.stdin.close()  # Spark's launcher ends when its input does
    process.wait()
    SparkContext._gateway = None
    SparkContext._jvm = None


@contextmanager
def quietly() -> Iterator[None]:
    """Keep back that Spark warns of the installed pandas, where only Arrow is used. Yields once."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
        yield


@contextmanager
def _stderr_aside() -> Iterator[IO[str]]:
    """Let processes started inside write their stderr to a file: Java greets with warnings that are of no use to anyone."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile("w+", errors="replace") as aside:
        os.dup2(aside.fileno(), 2)
        try:
            yield aside
        finally:
            os.dup2(kept, 2)
            os.close(kept)


@contextmanager
def broken_off_by_interrupt(cancel: Callable[[], object]) -> Iterator[None]:
    """Have SIGINT call `cancel` until the block ends, and raise KeyboardInterrupt for what it then raises. Yields once.

    A handler that speaks to Java itself, as Spark's own does, breaks into what this thread is just saying to it. So a thread cancels: again
    and again, as the next job may begin in between. A second SIGINT raises at once.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    done = threading.Event()
    cancels = threading.Thread(target=_until, args=(cancel, done), name="feeder-cancel", daemon=True)

    def handle(_: int, __: FrameType | None) -> None:
        if cancels.ident is not None:
            raise KeyboardInterrupt
        cancels.start()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    except Exception:
        if cancels.ident is not None:
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, before)
        done.set()
        if cancels.ident is not None:
            cancels.join()


def _until(call: Callable[[], object], done: threading.Event) -> None:
    while not done.is_set():
        call()
        done.wait(CANCEL_S)


@contextmanager
def stop_on_signal(stop: threading.Event) -> Iterator[None]:
    """Set `stop` at the first SIGINT or SIGTERM, raise KeyboardInterrupt at the second, while the block runs. Yields once.

    So what is under way is finished and counted; a second Ctrl-C does not wait for that. Main thread only.
    """

    def handle(_: int, __: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
