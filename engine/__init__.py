"""The operators and their data: language, plans, trains, queues, windows, joins, the executor.

Knows: what a query means and how to compute it. Must not know: sockets, asyncio, the protocol, which policy runs, what time
it is (time is always an argument), randomness. Start reading at `data/train.py`, then `operators/contract.py`.

Imports nothing, so that `graph`, `work` and `records` of `engine.data` can be had without pyarrow.
"""
