"""What a client of release 0.1.0 does with a server, as a script of its own: `python -S conversation.py ADDRESS ARCHIVE PACKAGES…`.

It prints one JSON object. `-S` keeps today's installed packages out; PACKAGES are the folders with msgpack and pyarrow.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def main(address: str, archive: str, *packages: str) -> None:
    """Say hello, create, publish, submit, subscribe, resume; print what came of each."""
    sys.path[:0] = [archive]
    sys.path += packages
    import pyarrow as pa
    from millstream.client import connect
    from millstream.client.errors import MillstreamError
    from millstream.protocol.version import VERSIONS

    told: dict[str, Any] = {"versions": list(VERSIONS)}
    with connect(address) as client:
        told["version"] = client._client.version
        told["created"] = list(client.execute("CREATE STREAM s (ts BIGINT, v BIGINT) TIMESTAMP BY ts UNIT s").notices)
        query = client.submit("SELECT v FROM s WHERE v > 0", name="positive")
        told["query"] = query.name
        subscription = client.subscribe("positive")
        ack = client.publish("s", [{"ts": 1, "v": 1}, {"ts": 2, "v": -1}, {"ts": 3, "v": 3}, {"ts": 4, "v": "no number"}])
        told["ack"] = [ack.accepted, ack.rejected_rows, [r.index for r in ack.rejected]]
        told["results"] = rows_of(subscription, 2)
        token = subscription.resume_token
        try:
            client.execute("SELECT nothing FROM nowhere")
        except MillstreamError as error:
            told["error"] = error.code
    with connect(address) as client:
        client.publish("s", pa.table({"ts": [5], "v": [5]}))
        resumed = client.subscribe("positive", resume_token=token)
        told["resumed"] = rows_of(resumed, 1)
    print(json.dumps(told))


def rows_of(subscription: Any, count: int) -> list[dict[str, Any]]:
    """Take rows until there are `count`."""
    rows: list[dict[str, Any]] = []
    while len(rows) < count:
        rows += subscription.next_item(timeout=20).to_pylist()
    return rows


if __name__ == "__main__":
    main(*sys.argv[1:])
