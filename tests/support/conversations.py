"""A conversation in which every message occurs, as (speaker, message) in order; and one that puts a pair into each state."""

from __future__ import annotations

import pyarrow as pa
from millstream.protocol import messages as m
from millstream.protocol.batches import BatchEncoder, encode_schema
from millstream.protocol.messages import Message
from millstream.protocol.states import Role, State

from tests.support.pairs import Pair, joined

C, S = Role.CLIENT, Role.SERVER
SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.float64())])
BATCH = pa.record_batch([pa.array([1, 2], pa.int64()), pa.array([0.5, None], pa.float64())], schema=SCHEMA)
SCHEMA_PAYLOAD = bytes(encode_schema(SCHEMA))
BATCH_PAYLOAD = joined(BatchEncoder(SCHEMA).encode(BATCH))
COLUMNS = [["k", "BIGINT", True], ["v", "DOUBLE", True]]

CONVERSATION: list[tuple[Role, Message]] = [
    (C, m.Hello([1, 2], client_id="c1", token="secret", agent="tests")),
    (S, m.Welcome(2, server="millstream 0.1.0", server_id="s", role="writer", limits={"frame_bytes_max": 1_000_000})),
    (C, m.Statement(1, "CREATE STREAM s (k BIGINT, v DOUBLE)")),
    (S, m.Reply(1, notices=["stream s created"])),
    (C, m.Submit(2, sql="SELECT * FROM s", name="q", start_at_us=5, lifetime_us=7, options={"class": "gold"})),
    (S, m.Reply(2, columns=[["name", "TEXT", False]], values=[["q"]], info={"query": "q"})),
    (C, m.Credit(bytes=90)),
    (C, m.Submit(3, plan={"version": 1, "root": {"op": "source", "stream": "s"}})),
    (S, m.Failure("unsupported", "no such node", request=3, hint="use select", line=1, column=2, token="x")),
    (C, m.OpenChannel(4, "s")),
    (S, m.ChannelOpened(4, 1, COLUMNS, rows_credit=100, bytes_credit=100_000, durability="journal")),
    (C, m.ChannelSchema(1, SCHEMA_PAYLOAD)),
    (C, m.Train(1, 1, 2, BATCH_PAYLOAD)),
    (C, m.Rows(1, 2, [[1, 0.5], {"k": 2, "v": None}])),
    (C, m.Row(1, 3, [3, 1.5])),
    (S, m.Ack(1, 3, accepted=4, rejected_rows=1, rejected=[[2, 1, "v is NULL"]], position=41)),
    (S, m.Credit(channel=1, rows=4, bytes=1000)),
    (C, m.OpenChannel(5, "s", producer="plant-7")),
    (S, m.ChannelOpened(5, 2, COLUMNS, rows_credit=100, bytes_credit=100_000, durability="sync", last=6, position=b"\x00p6")),
    (C, m.ChannelSchema(2, SCHEMA_PAYLOAD)),
    (C, m.Rows(2, 1, [[1, 0.5]], sequence=6, position=b"\x00p6")),
    (C, m.Train(2, 2, 2, BATCH_PAYLOAD, sequence=7, position=b"p7")),
    (C, m.Rows(2, 3, [[4, None]], sequence=8)),
    (S, m.Ack(2, 3, accepted=3, position=44)),
    (C, m.Subscribe(6, "q", from_start=True, resume_token="t", rows_credit=10, bytes_credit=10_000)),
    (S, m.Subscribed(6, 1, COLUMNS, resume_token="t0", payload=SCHEMA_PAYLOAD)),
    (S, m.Result(1, 2, meta={"resume_token": "t1", "share_seen": 0.5}, payload=BATCH_PAYLOAD)),
    (S, m.Result(1, 1, values=[[1, 2.5]])),
    (C, m.Credit(subscription=1, rows=2, bytes=500)),
    (S, m.Gap(1, 17)),
    (C, m.Unsubscribe(7, 1)),
    (S, m.End(1, "unsubscribed", message="as asked", counts={"rows": 3}, resume_token="t2")),
    (S, m.Reply(7)),
    (C, m.Finish(8, "s")),
    (C, m.CancelRequest(9, 8)),
    (S, m.Failure("cancelled", "given up", request=8)),
    (S, m.Reply(9)),
    (C, m.Ping(9)),
    (S, m.Pong(9)),
    (S, m.Notice("implausible_time", "timestamps lie in 1970")),
    (C, m.CloseChannel(1)),
    (S, m.ChannelClosed(1)),
    (C, m.Goodbye("done")),
    (S, m.Goodbye()),
]


def pair_in(state: State) -> Pair:
    """Return a pair whose both ends are in `state`."""
    pair = Pair(greeted=False)
    script: dict[State, list[tuple[Role, Message]]] = {
        State.START: [],
        State.GREETING: CONVERSATION[:1],
        State.OPEN: CONVERSATION[:2],
        State.CLIENT_LEFT: [*CONVERSATION[:2], (C, m.Goodbye())],
        State.SERVER_LEFT: [*CONVERSATION[:2], (S, m.Goodbye())],
        State.CLOSED: [*CONVERSATION[:2], (C, m.Goodbye()), (S, m.Goodbye())],
    }
    for speaker, message in script[state]:
        (pair.client_says if speaker is C else pair.server_says)(message)
    assert pair.client.state is pair.server.state is state
    return pair
