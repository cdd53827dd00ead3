"""Users' functions: each runs in a process of its own (`process.py` here, `child.py` there), so that it can be stopped."""
