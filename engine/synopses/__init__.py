"""What many windows share: panes in layers, and the operator that answers all of them. Start with `shared_aggregate.py`."""
