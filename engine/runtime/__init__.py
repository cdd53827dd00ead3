"""The running network: the executor, the memory it may take, and what splices queries in and out. Start at `network.py`."""
