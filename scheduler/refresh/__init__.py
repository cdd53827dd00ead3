"""How often polled copies are read within a budget: start in `allocation.py`. No server polls by it yet."""
