"""What the queries of NEXMark must answer, from DuckDB over the same rows: written from the benchmark's definitions, not from our queries.

Each answer is compared as a bag of rows. A change log counts for what stands at its end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from millstream.client.errors import MillstreamError

SIDE_ROWS = 10_000
_RANKS = "price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000"
_BIDS_FOR = "auction a JOIN bid b ON a.id = b.auction AND b.datetime >= a.datetime AND b.datetime <= a.expires"
# Sessions come by end, start and first arrival (K20): that orders auctions which expire at one moment.
_LAST_TEN = "PARTITION BY seller ORDER BY expires, last_bid, first_bid, arrival ROWS BETWEEN 9 PRECEDING AND CURRENT ROW"
_DAY = "date_trunc('day', datetime)"


def _ranked(what: str) -> str:
    return ", ".join([what, *(f"{what} FILTER (WHERE {rank})" for rank in _RANKS)])


def _window(column: str = "datetime", width_s: int = 10) -> str:
    return f"time_bucket(INTERVAL {width_s} SECOND, {column})"


ANSWERS = {
    "q0": "SELECT auction, bidder, price, datetime, extra FROM bid",
    "q1": "SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(38, 3)), datetime, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": """SELECT p.name, p.city, p.state, a.id FROM auction a, person p
        WHERE a.seller = p.id AND a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    "q4": f"SELECT category, AVG(final) FROM (SELECT a.id, a.category, MAX(b.price) final FROM {_BIDS_FOR} GROUP BY ALL) GROUP BY category",
    "q5": f"""WITH counts AS (SELECT auction, COUNT(*) num, {_window(width_s=2)} - k * INTERVAL 2 SECOND starts
            FROM bid, range(5) hops(k) GROUP BY ALL)
        SELECT auction, num, starts, starts + INTERVAL 10 SECOND FROM counts QUALIFY num = MAX(num) OVER (PARTITION BY starts)""",
    "q6": f"""WITH closed AS (SELECT a.id, a.seller, a.expires, MAX(b.price) final, MAX(b.datetime) last_bid, MIN(b.datetime) first_bid,
            MIN(GREATEST(a.arrival, b.arrival)) arrival FROM {_BIDS_FOR} GROUP BY ALL)
        SELECT seller, AVG(final) OVER ({_LAST_TEN}) FROM closed""",
    "q7": f"""SELECT auction, price, bidder, datetime, extra FROM bid
        QUALIFY price = MAX(price) OVER (PARTITION BY {_window()})""",
    "q8": f"""SELECT DISTINCT p.id, p.name, {_window("p.datetime")} FROM person p, auction a
        WHERE p.id = a.seller AND {_window("p.datetime")} = {_window("a.datetime")}""",
    "q9": f"""SELECT a.id, itemname, description, initialbid, reserve, a.datetime, expires, seller, category, a.extra,
            b.auction, b.bidder, b.price, b.datetime, b.extra
        FROM {_BIDS_FOR} QUALIFY ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.datetime, b.arrival) = 1""",
    "q10": "SELECT auction, bidder, price, datetime, extra, strftime(datetime, '%Y-%m-%d'), strftime(datetime, '%H:%M') FROM bid",
    "q11": """WITH apart AS (SELECT bidder, datetime, datetime - LAG(datetime) OVER ofPerson >= INTERVAL 10 SECOND begins
            FROM bid WINDOW ofPerson AS (PARTITION BY bidder ORDER BY datetime)),
        numbered AS (SELECT *, COUNT(*) FILTER (WHERE begins) OVER (PARTITION BY bidder ORDER BY datetime RANGE UNBOUNDED PRECEDING) number
            FROM apart)
        SELECT bidder, COUNT(*), MIN(datetime), MAX(datetime) + INTERVAL 10 SECOND FROM numbered GROUP BY bidder, number""",
    "q12": "SELECT bidder, COUNT(*) FROM bid GROUP BY bidder",
    "q13": "SELECT b.auction, b.bidder, b.price, b.datetime, s.value FROM bid b, side_input s WHERE b.auction % 10000 = s.key",
    "q14": """SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(38, 3)), CASE WHEN hour(datetime) BETWEEN 8 AND 18 THEN 'dayTime'
            WHEN hour(datetime) <= 6 OR hour(datetime) >= 20 THEN 'nightTime' ELSE 'otherTime' END,
            datetime, extra, len(regexp_extract_all(extra, 'c'))
        FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000""",
    "q15": f"""SELECT {_DAY}, {_ranked("COUNT(*)")}, {_ranked("COUNT(DISTINCT bidder)")}, {_ranked("COUNT(DISTINCT auction)")}
        FROM bid GROUP BY {_DAY}""",
    "q16": f"""SELECT channel, {_DAY}, MAX(strftime(datetime, '%H:%M')), {_ranked("COUNT(*)")}, {_ranked("COUNT(DISTINCT bidder)")},
        {_ranked("COUNT(DISTINCT auction)")} FROM bid GROUP BY channel, {_DAY}""",
    "q17": f"""SELECT auction, {_DAY}, {_ranked("COUNT(*)")}, MIN(price), MAX(price), AVG(price), SUM(price)
        FROM bid GROUP BY auction, {_DAY}""",
    "q18": """SELECT auction, bidder, price, channel, url, datetime, extra FROM bid
        QUALIFY ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY datetime DESC, arrival DESC) = 1""",
    "q19": """SELECT auction, bidder, price, channel, url, datetime, extra, place
        FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, arrival) place FROM bid)
        WHERE place <= 10""",
    "q20": """SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.datetime, b.extra,
            a.itemname, a.description, a.initialbid, a.reserve, a.datetime, a.expires, a.seller, a.category, a.extra
        FROM bid b, auction a WHERE b.auction = a.id AND a.category = 10""",
    "q21": """SELECT auction, bidder, price, channel, CASE channel WHEN 'Apple' THEN '0' WHEN 'Google' THEN '1' WHEN 'Facebook' THEN '2'
            WHEN 'Baidu' THEN '3' ELSE nullif(regexp_extract(url, 'channel_id=([0-9]*)', 1), '') END number
        FROM bid WHERE number IS NOT NULL""",
    "q22": "SELECT auction, bidder, price, channel, split_part(url, '/', 4), split_part(url, '/', 5), split_part(url, '/', 6) FROM bid",
}
# The server's clock decides on q12's windows: what must be right is the number of bids of a person over all of them.
_SUMMED = {"q12": "SELECT bidder, SUM(bid_count) FROM ours GROUP BY bidder"}


def side_input() -> pa.RecordBatch:
    """Return the rows of q13's table."""
    return pa.record_batch({"key": list(range(SIDE_ROWS)), "value": [f"value {key * 7919 % SIDE_ROWS}" for key in range(SIDE_ROWS)]})


class Answers:
    """The right answers over the rows of the three streams, which arrive a batch after the other."""

    def __init__(self, arriving: Iterable[tuple[str, pa.RecordBatch]]) -> None:
        try:
            import duckdb
        except ImportError:
            raise MillstreamError("unsupported", "bench nexmark needs duckdb, which is not installed", "pip install duckdb") from None

        self._duckdb: Any = duckdb.connect()
        self._duckdb.execute("SET TimeZone = 'UTC'; SET preserve_insertion_order = true")
        batches: dict[str, list[pa.RecordBatch]] = {}
        arrived = 0
        for name, batch in arriving:
            numbers = pa.array(range(arrived, arrived + batch.num_rows), pa.int64())
            columns = [*(_naive(column) for column in batch.columns), numbers]
            batches.setdefault(name, []).append(pa.record_batch(columns, names=[*batch.schema.names, "arrival"]))
            arrived += batch.num_rows
        for name, parts in batches.items():
            self._duckdb.register(name, pa.Table.from_batches(parts))
        self._duckdb.register("side_input", side_input())

    def wrong(self, name: str, ours: pa.Table) -> str | None:
        """Return what is wrong with our rows of a query; None if nothing is."""
        plain = pa.table([_naive(column) for column in ours.columns], names=ours.column_names)
        is_log = "op" in plain.column_names
        self._duckdb.register("ours", plain)
        found = _SUMMED.get(name, "FROM ours")
        if is_log:
            found = "SELECT * EXCLUDE op FROM ours WHERE op = '+' EXCEPT ALL SELECT * EXCLUDE op FROM ours WHERE op = '-'"
        self._duckdb.execute(f"CREATE OR REPLACE TEMP TABLE found AS {found}")
        self._duckdb.execute(f"CREATE OR REPLACE TEMP TABLE expected AS {ANSWERS[name]}")
        missing = self._only_in("expected", "found")
        extra = self._only_in("found", "expected")
        if not missing and not extra:
            return None
        count = self._duckdb.execute("SELECT (SELECT COUNT(*) FROM found), (SELECT COUNT(*) FROM expected)").fetchall()[0]
        return f"{name} has {count[0]} rows instead of {count[1]}; missing {missing[:3]}, not expected {extra[:3]}"

    def _only_in(self, one: str, other: str) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self._duckdb.execute(f"(FROM {one}) EXCEPT ALL (FROM {other}) LIMIT 4").fetchall()
        return rows


def _naive(column: Any) -> Any:
    """Return instants without their zone, which is UTC throughout: DuckDB's calendar of zones is an extension of it."""
    return column.cast(pa.timestamp("us")) if pa.types.is_timestamp(column.type) else column
