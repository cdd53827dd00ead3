"""The names of the setting `sharing`; imports nothing, so that `--help` can show them at once. What they do is in `catalog.py`."""

OFF = "off"
DEFAULT = "hybrid"
NAMES = (OFF, "golab-none", "aggressive", "conservative", "hybrid", "hybrid-late", "hybrid-late-pending")
