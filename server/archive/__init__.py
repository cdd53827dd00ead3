"""The archive: rows of journaled streams as Parquet files, each accepted row in exactly one that is committed.

Read `archiver.py` (what is done when), then `pieces.py` (from the journal's records to files), `places.py` (where files lie),
`manifest.py` (which of them count) and `history.py` (reading them again in arrival order).
"""
