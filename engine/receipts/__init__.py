"""What part of its input an answer saw, where load is shed: begin with `tally.py`, then `keepers.py`."""
