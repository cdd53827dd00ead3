"""Names of the settings `load` and `sharing`; imports nothing, so that `--help` can show them at once.

What they do is in `load/catalog.py` and `sharing/catalog.py`.
"""

LOADS = ("none", "common", "class", "dilos")
LOADS_DEFAULT = "none"
SHARING_OFF = "off"
SHARING_DEFAULT = "hybrid"
SHARINGS = (SHARING_OFF, "golab-none", "aggressive", "conservative", "hybrid", "hybrid-late", "hybrid-late-pending")
