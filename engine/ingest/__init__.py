"""What comes from outside to columns of a stream's schema, row by row accepted or refused with a reason (K8).

Start with `coerce.py` (batches and rows from the wire), then `readers.py` (files).
"""
