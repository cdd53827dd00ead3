"""What outlives the process: which streams are journaled, checkpoints of what queries hold, and the way back after a crash.

Start with `journaling.py` (how rows get into the journal); `checkpoints.py` and `recovery.py` say how a restart rebuilds what queries held.
"""
