"""One named policy a file: its equation with the symbols explained, its source, and a few lines of code.

A ranking keeps nothing; a turn taker keeps its cursor (in the selector); none of them queues, locks or reads a clock.
"""
