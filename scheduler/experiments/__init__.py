"""The papers' experiments: what is run, how it is judged, and the guides made from them. Nothing of the product imports this room.

`frame` is what a scenario is; `scenarios` has one file a row of the papers, and `*_runs` the functions that cases name.
"""
