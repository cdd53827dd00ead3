"""Names of the settings `load`, `sharing` and `refresh`; imports nothing, so that `--help` can show them at once.

What they do is in `load/control.py`, `sharing/catalog.py` and `refresh/allocation.py`.
"""

LOADS = ("none", "common", "class", "dilos")
LOADS_DEFAULT = "none"
SHARING_OFF = "off"
SHARING_DEFAULT = "hybrid"
SHARINGS = (SHARING_OFF, "golab-none", "aggressive", "conservative", "hybrid", "hybrid-late", "hybrid-late-pending")
REFRESH_DEFAULT = "perceived"
