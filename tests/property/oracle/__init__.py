"""A second reading of the rules: one row at a time, over plain Python values, sharing nothing with the engine."""
