"""`millstream run`: the same engine in this process, in virtual time, over files. Start at `embedded.py`."""
