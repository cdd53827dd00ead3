"""The aggregate functions, one file each: what types they take, the state they keep, the answer. `table.py` lists them.

Start at `contract.py`. Whoever holds states (panes, cells, sessions) holds those described here, so an aggregate is written once.
"""
