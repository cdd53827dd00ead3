"""What is promised and whether it is kept: predicted load (admission), the QoS monitor, and the decisions that correct what is missed.

Start with `contract.py` (what is known, what can be done), then `optimiser.py`. Everything here is a function of what it is told and
of the time it is told: no clock, no thread. `server/watch/optimiser.py` carries the decisions out.
"""
