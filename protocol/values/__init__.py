"""How values look outside: as text, as CSV, as JSON lines, and the functions of Arrow that make them so.

All folders may use it, the engine's ingest included. It knows nothing of messages or of the engine.
"""
