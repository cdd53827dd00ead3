"""Which policy would serve a recorded load best: policies and their options are simulated, the best are checked, one is proposed or none.

`advisor` is the way through; `candidates` says what is tried, `loads` makes the loads that it is tried on, `judging` decides. Nothing
here reads a clock; what is random comes from a stated seed.
"""
