"""The engine at work: the catalogue of queries, where rows enter, and who runs the orders. Start at `engine_host.py`."""
