"""How much one statement may ask for. A statement is bounded in work, not only in bytes: at these bounds the worst takes about a tenth of
a second of a processor, and whoever else waits for a statement waits no longer than that.

Text and tokens bound the parser, nesting its stack. `WORK_MAX` bounds the planner, which can be made to do much with few words (a star over
a star, a table named twice in a table named twice): it counts what it looks at (`data/effort.py`). The depths bound the stack of all that
goes through a plan later: the compilers of expressions, sharing, EXPLAIN, and the operators themselves, which so never fail for want of it.
"""

from __future__ import annotations

SCRIPT_LENGTH_MAX = 1 << 20
"""Characters of a file of statements. It is its owner's own, read where nobody waits."""

STATEMENT_LENGTH_MAX = 1 << 17
"""Characters of one statement: the tokenizer needs up to 0.6 us for each (nested comments)."""

TOKENS_MAX = 5_000
"""Words and symbols of one statement: tokenizer and parser need about 10 us for each, the planner as much again."""

INSERT_TOKENS_MAX = 10_000
"""The same for INSERT, whose values need no planner. Many rows are better published."""

NUMBER_LENGTH_MAX = 400
"""Digits of a number: no type holds more, and reading them takes a time that grows with their square."""

NESTING_MAX = 32
"""Parentheses, brackets, CASEs and signs before one another: the parser takes up to 24 of Python's 1,000 calls for each."""

EXPRESSION_DEPTH_MAX = 64
"""Operators of an expression that stand on one another. A chain (`a + b + c`, `a OR b OR c`) of any length is one of them."""

WORK_MAX = 100_000
"""Steps that the planner takes for one statement. One is a look at an expression, a column or a part of the plan, and takes about 1 us."""

TOKEN_STEPS = 10
"""What a word or symbol of a plan object's expressions counts of these steps."""

JOINED_MAX = 32
"""Streams, tables and derived tables of one FROM: the plan of a join is looked through once for each that follows."""

PLAN_DEPTH_MAX = 100
"""Operators of a plan that follow one another, and parts of one expression that stand on one another once types have met."""

PLAN_NODES_MAX = 1_000
"""Operators of a plan: each is looked at whenever a query comes or goes."""

KEYS_MAX = 100
"""Columns of a GROUP BY, DISTINCT, PARTITION BY or equality of a join: an operator numbers the values of each beside those before it."""
