"""Which periodic queries are evaluated together (Golab 2006): the periods in force, and the order of their re-executions.

Pure: queries and synopsis updates in, periods and tasks out. Start with `contract.py` (the words), then `periods.py` (how often each
sub-group runs), `tasks.py` (what runs next) and `catalog.py` (the six policies by name).
"""
