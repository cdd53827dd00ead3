"""FETCH: an answer once and at once, from rows that the server holds.

Read `held.py` (what is held) and `server/embedded/private_engine.py`, then `fetches.py`, `worker.py` and `child.py`: the queue, the
process beside the server, and what runs in it.
"""
