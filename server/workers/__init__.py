"""Workers: processes that have the operators of queries, and what goes to and fro between them and the server.

The server keeps what lies between operators (logs, cursors, tickets, accounts), a worker the operators' logic and state. Start reading at
`pool.py`; `child.py` is the process itself.
"""
