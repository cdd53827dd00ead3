"""The running network: queues, sources, the executor, and what splices queries in and out. Start at `network.py`."""
