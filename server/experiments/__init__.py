"""The experiments that need the real engine: real operators, real threads, the machine's clock. Start at agreement.py.

They have the frame of the simulated ones (`scheduler/experiments/frame.py`) and are found through the entry points of the group
`millstream.experiments`.
"""
