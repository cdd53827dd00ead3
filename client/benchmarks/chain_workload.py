"""Six operators in a row: select, project, select, map, select, project. Rows, query and the same by hand in NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

NAME = "chain_in"
STREAM = f"CREATE STREAM {NAME} (ts TIMESTAMP, key BIGINT, a BIGINT, b BIGINT, price DOUBLE, tag TEXT) TIMESTAMP BY ts"
THRESHOLD = 22.0  # the 20th percentile of price * 1.1
_KEPT = [["ts", "ts"], ["key", "key"], ["b", "b"], ["price", "price"], ["tag", "tag"]]
_RAISED = [["price", "price * 1.1"] if name == "price" else [name, name] for name, _ in _KEPT]
# A plan and not a SELECT, whose projections the planner would merge: there are to be six operators.
PLAN: dict[str, Any] = {
    "version": 1,
    "root": {
        "op": "project",
        "columns": [["ts", "ts"], ["key", "key"], ["price", "price"]],
        "input": {
            "op": "select",
            "condition": f"price > {THRESHOLD}",
            "input": {
                "op": "project",
                "columns": _RAISED,
                "input": {
                    "op": "select",
                    "condition": "b <= 80",
                    "input": {
                        "op": "project",
                        "columns": _KEPT,
                        "input": {"op": "select", "condition": "a <= 80", "input": {"op": "source", "stream": NAME}},
                    },
                },
            },
        },
    },
}
STEP_US = 20
START_US = 1_700_000_000_000_000
SEED = 1


def trains(rows: int, train: int, *, first: int = 0) -> list[pa.RecordBatch]:
    """Return rows `first` to `first + rows` in record batches of `train` rows; event time moves 20 µs a row."""
    import numpy as np
    import pyarrow as pa

    random = np.random.default_rng(SEED)
    names = pa.array([f"tag{i:02d}" for i in range(50)])
    columns = {
        "ts": pa.array(START_US + STEP_US * (first + np.arange(rows, dtype=np.int64))).view(pa.timestamp("us", "UTC")),
        "key": pa.array(random.integers(0, 1_000, rows)),
        "a": pa.array(random.integers(0, 100, rows)),
        "b": pa.array(random.integers(0, 100, rows)),
        "price": pa.array(random.random(rows) * 100.0),
        "tag": names.take(pa.array(random.integers(0, len(names), rows))),
    }
    whole = pa.record_batch(columns)
    # Each train is memory of its own, as it would be when it comes over a socket.
    return [pa.record_batch([pa.concat_arrays([c]) for c in whole.slice(at, train)], whole.schema) for at in range(0, rows, train)]


def views(batch: pa.RecordBatch) -> list[Any]:
    """Return ts, key, a, b and price of one train as NumPy arrays over the same memory."""
    import pyarrow as pa

    return [batch.column(0).view(pa.int64()).to_numpy(), *(batch.column(i).to_numpy() for i in (1, 2, 3, 4))]


def reference(trains_of_views: list[list[Any]]) -> list[tuple[Any, ...]]:
    """Return (ts, key, price) for each train: one mask, one gather for the price, one for the rest."""
    import numpy as np

    answers = []
    for ts, key, a, b, price in trains_of_views:
        kept = np.flatnonzero((a <= 80) & (b <= 80))
        raised = price[kept] * 1.1
        passed = raised > THRESHOLD
        kept = kept[passed]
        answers.append((ts[kept], key[kept], raised[passed]))
    return answers
