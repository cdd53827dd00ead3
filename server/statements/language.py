"""All that statements need: the parser, the planner behind the executors, and the executors.

The server loads it in one go when it listens already (`Application.load_language`), so whoever needs a part of it imports this module
where that is used, not at the head of a file: a third of the start goes into it.
"""

from __future__ import annotations

from millstream.engine.language.parse import parse_placed, parse_statement, placed_in_script
from millstream.server.statements import EXECUTORS
from millstream.server.statements.aside import preparing_of
from millstream.server.statements.fetch import prepare as prepare_fetch
from millstream.server.statements.selects import Submission, submit
from millstream.server.statements.selects import restore as restore_query

__all__ = [
    "EXECUTORS",
    "Submission",
    "parse_placed",
    "parse_statement",
    "placed_in_script",
    "prepare_fetch",
    "preparing_of",
    "restore_query",
    "submit",
]
