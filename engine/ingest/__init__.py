"""Data on its way in: Arrow, msgpack rows, CSV and JSON lines become columns of a stream, each bad row refused alone (K8).

Start reading at `coerce.py`; `readers.py` opens files.
"""
