"""How often polled copies are read within a budget: start in `polling.py`."""
