"""Queries over stored data on Spark: Spark places, shuffles and retries; inside its tasks the engine's own operators run.

Start at `cuts.py` and `cutting.py` (how a plan is cut) and `run.py` (what becomes of the parts). `script.py` reads a script, `blocks.py`
and `order.py` give stored rows the places and watermarks that `millstream run` gives them, `pieces.py` is what runs inside a task.
"""
