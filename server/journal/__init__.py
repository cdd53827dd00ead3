"""What lies on disk: the journal's files and the stored catalogue. It knows bytes and columns, no queries.

Start with `records.py` (what is written), `segments.py` (the files), `journal.py` (when it is written and forced to disk); `store.py`
has the catalogue, `disk.py` the one door to the file system.
"""
