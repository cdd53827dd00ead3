"""Data on its way in: Arrow, plain values, CSV, JSON lines and files become columns of a stream, each bad row refused alone (K8).

Start with `coerce.py` (batches and rows from the wire), then `readers.py` (files).
"""
