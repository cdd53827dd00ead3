"""Sources and sinks: rows from other software into streams, results of queries into other software (docs/connect.md).

Start with `command.py` (`millstream connect`), then `supervisor.py`, which runs what CREATE SOURCE and CREATE SINK ask for; `contract.py`
is what a connector has to do. Everything here is a client of the server, in a process of its own.
"""
