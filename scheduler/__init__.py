"""The deciding side of Millstream: which operator runs next, on how many tuples.

What it knows: counts ("40 rows, 3,200 bytes, oldest at t, before operator 7"), costs and selectivities, deadlines and weights.
What it must not know: batches, columns, sockets, the protocol. Of the other folders it sees `graph`, `work`
and `records` of `millstream.engine.data` only, plain data.

Start reading at `events` and `instructions` (the words), then `core` (the one door: events in, instructions out), then one file
of `policies`. `drivers.live` drives the core with threads, `drivers.virtual` drives the same core in virtual time.
"""
