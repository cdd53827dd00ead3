"""The embedded engine: network and scheduling core in the caller's thread, in virtual time, without catalogue, journal or sockets.

`virtual_runtime.py` drives the core; `private_engine.py` answers one query over given rows. It stands below the server's other rooms and
uses none of them, so that a FETCH, `millstream run` and the tasks of Spark may all use it.
"""
