"""A user's file, as mypy reads it with the client installed from a wheel."""

GOOD = """
import asyncio
import datetime as dt

from millstream.client import MillstreamError, connect, connect_async, receipt_of
from millstream.client.connection import Answer
from millstream.client.plans import source


def blocking() -> int:
    try:
        with connect("127.0.0.1:7415", token=None, tls=None) as ms:
            answer: Answer = ms.execute("SHOW STREAMS")
            names: list[str] = [str(row["name"]) for row in answer]
            accepted: int = ms.publish("s", [{"ts": dt.datetime.now(dt.UTC), "k": 1}]).accepted
            query = ms.submit("SELECT k FROM s", name="all", class_="gold", lifetime=dt.timedelta(hours=1))
            ms.submit(source("s").select("k > 3"))
            results = ms.subscribe(query, reconnect=True, from_start=True)
            for batch in results:
                receipt = receipt_of(batch)
                print(batch.num_rows, None if receipt is None else receipt.share_seen, results.resume_token)
            if results.end is not None:
                print(results.end.reason)
            with ms.publisher("s") as publisher:
                publisher.send([[1]])
                publisher.flush()
            ms.query_once("SELECT k FROM s").to_pandas()
            query.drop()
            return accepted + len(names)
    except MillstreamError as error:
        print(error.code, error.message, error.hint, error.line)
        return 0


async def with_asyncio() -> None:
    async with connect_async() as ms:
        subscription = ms.subscribe("all")
        async for batch in subscription:
            print(batch.to_pylist())
        token: str | None = subscription.resume_token
        async with ms.subscribe("all", resume_token=token) as again:
            print(again.columns[0].name)


blocking()
asyncio.run(with_asyncio())
"""

BAD = """
from millstream.client import connect

with connect() as ms:
    accepted: str = ms.publish("s", []).accepted
    ms.subscribe(7)
"""
