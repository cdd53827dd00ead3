"""State as bytes: what operators hold, written so that another process, machine or release can read it.

Start with `forms.py` (which classes a state is made of, and how these change), then `encoding.py`, which says how the bytes lie.
"""
