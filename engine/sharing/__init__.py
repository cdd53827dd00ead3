"""Sharing of work among similar queries: which running operators a new query may use, and how.

Knows plans and running operators; carries nothing out. Start with `registry.py` (what runs and can be used), then `containment.py` (when
two recipes are the same, and when one filter or projection holds another), and `merge.py`, which puts a plan on top of what runs. The
shared window aggregate is an operator of its own: `synopses/shared_aggregate.py`.
"""
