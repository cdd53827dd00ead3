"""The input log of streams and tables that say DURABILITY journal or sync, and the way back after a crash.

Start with `records.py` (what is written), `segments.py` (the files), `journal.py` (when it is written and forced to disk),
`checkpoints.py` and `recovery.py` (how a restart rebuilds what queries held).
"""
