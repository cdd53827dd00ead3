"""FETCH: an answer once and at once, from rows that the server holds. Read `held.py` (what is held), then `answering.py`."""
