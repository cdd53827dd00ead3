"""Bounded summaries of many values, behind the APPROX_ aggregates: start with `contract.py`."""
