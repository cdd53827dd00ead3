"""The demo: a daemon, a month of flights, thirteen queries, and the proof that every answer is right.

Start reading at `show.py`, which does it all in order; `queries.py` has what is asked, `check.py` the comparison with DuckDB.
"""
