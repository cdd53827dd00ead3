"""NEXMark on Flink SQL, by way of PyFlink: run by an interpreter that has `apache-flink`, not by ours (`nexmark.py` starts it).

Arguments: a folder of person.csv, auction.csv, bid.csv and side_input.csv, one of the same with few events, the number of runs, the
parallelism, and the names of queries. Results go into a sink that drops them. Prints a JSON object a line: name, run, and the seconds of
the clock (`wall_s`) and of Flink's process (`cpu_s`) for the whole folder less those for the few events: what start, planning and
compiling the plan take is in both. `read_…` are the streams alone, read and dropped.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

RANKS = ("TRUE", "price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000")
COLUMNS = {
    "person": "id BIGINT, name STRING, email STRING, creditCard STRING, city STRING, state STRING, `dateTime` TIMESTAMP(3), extra STRING",
    "auction": "id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, `dateTime` TIMESTAMP(3), "
    "expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra STRING",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `dateTime` TIMESTAMP(3), extra STRING",
}
WATERMARK = "WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND"


def queries() -> dict[str, str]:
    """Return the queries of the file beside this one by name, and reading each stream."""
    ranks = [f"COUNT({what}) FILTER (WHERE {rank})" for what in ("auction", "DISTINCT bidder", "DISTINCT auction") for rank in RANKS]
    named = ", ".join(f"{rank} AS n{number}" for number, rank in enumerate(ranks))
    text = Path(__file__).with_name("flink.sql").read_text("utf-8").replace("{ranks}", named)
    found = re.findall(r"-- name: (\w+)\n(.*?);\n", text, re.DOTALL)
    return {**{f"read_{stream}": f"SELECT * FROM {stream}" for stream in COLUMNS}, **dict(found)}


def environment(folder: Path, parallelism: int) -> Any:
    """Return an environment with the streams of a folder as tables."""
    from pyflink.table import EnvironmentSettings, TableEnvironment

    made = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    made.get_config().set("parallelism.default", str(parallelism))
    tables = {stream: (stream, f"{columns}, {WATERMARK}") for stream, columns in COLUMNS.items()}
    tables["bid_now"] = "bid", f"{COLUMNS['bid']}, arrived AS PROCTIME()"
    tables["side_input"] = "side_input", "`key` BIGINT, val STRING"
    for name, (file, columns) in tables.items():
        place = f"'connector' = 'filesystem', 'path' = 'file://{folder / file}.csv', 'format' = 'csv'"
        made.execute_sql(f"CREATE TABLE {name} ({columns}) WITH ({place})")
    return made


def java_pid() -> int:
    """Return the process in which Flink runs: the child of this one."""
    children = Path("/proc/self/task").glob("*/children")
    found = [int(pid) for file in children for pid in file.read_text().split()]
    (pid,) = (pid for pid in found if b"java" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0", 1)[0])
    return pid


def cpu_s(pid: int) -> float:
    """Return the processor time of a process, all threads, as the kernel's scheduler counts it."""
    return time.clock_gettime((~pid << 3) | 2)


def timed(folder: Path, text: str, parallelism: int, pid: int) -> tuple[float, float]:
    """Run a query over a folder to its end; return the seconds of the clock and of the process."""
    from pyflink.table import TableDescriptor

    table = environment(folder, parallelism).sql_query(text)
    began, used = time.perf_counter(), cpu_s(pid)
    table.execute_insert(TableDescriptor.for_connector("blackhole").build()).wait()
    return time.perf_counter() - began, cpu_s(pid) - used


def main() -> None:
    """See the module's text."""
    folder, few = Path(sys.argv[1]), Path(sys.argv[2])
    runs, parallelism, names = int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:]
    from pyflink.java_gateway import get_gateway

    get_gateway()
    pid, texts = java_pid(), queries()
    timed(folder, texts["read_bid"], parallelism, pid)  # what the virtual machine compiles the first time is not what is measured
    failed = 0
    for run in range(runs):
        for name in names:
            try:
                start = timed(few, texts[name], parallelism, pid)
                whole = timed(folder, texts[name], parallelism, pid)
            except Exception as problem:  # Py4J's and Flink's have no common base; the other queries go on
                print(f"{name}: {problem}", file=sys.stderr)
                failed += 1
                continue
            print(json.dumps({"name": name, "run": run, "wall_s": whole[0] - start[0], "cpu_s": whole[1] - start[1]}), flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
