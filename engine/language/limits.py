"""How much one statement may ask for. A statement is bounded in work, not only in bytes: at these bounds the worst takes about a tenth of
a second of a processor, and whoever else waits for a statement waits no longer than that.

Text and tokens bound the parser, nesting its stack. `WORK_MAX` bounds the planner, which can be made to do much with few words (a star over
a star, a table named twice in a table named twice): it counts what it looks at (`data/effort.py`). The depths bound the stack of all that
goes through a plan later: the compilers of expressions, sharing, EXPLAIN, and the operators themselves, which so never fail for want of it.

What is refused for its size is refused early: texts before anything reads them, tokens before the parser does, expressions before the
binder does. Each check takes a time that grows with the text and no faster.
"""

from __future__ import annotations

import re
from itertools import islice

from millstream.engine.data.errors import SyntaxProblem
from millstream.engine.language.dialect import operands
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

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

PATTERN_ROWS_MAX = 1_000
"""Places for rows of one pattern of MATCH_RECOGNIZE, each as often as its quantifiers say: all of them may wait for the same row."""

VARIABLES_MAX = 60
"""Variables of one pattern: which of them a row can be is kept in 64 bits."""

KEYS_MAX = 100
"""Columns of a GROUP BY, DISTINCT, PARTITION BY or equality of a join: an operator numbers the values of each beside those before it."""


# Whatever is not closed reaches to the end, so that no character is looked at twice.
_WORDS = re.compile(r"""'[^']*'?|"[^"]*"?|--[^\n]*|/\*.*?(?:\*/|\Z)|[^\W\d]\w*|\d\w*(?:\.\w*)?|[<>=!|:~*&-]{1,2}|\S""", re.DOTALL)
_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END}
_SIGNS = {TokenType.NOT, TokenType.DASH, TokenType.PLUS}
_FLAT = (exp.And, exp.Or, exp.DPipe, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor)


def check_text(text: str, length_max: int) -> None:
    """Refuse a text that is too long, or, unless it is a script, one of too many words: a rough count, as the tokenizer takes its time."""
    if len(text) > length_max:
        raise SyntaxProblem(f"the text has {len(text)} characters", hint=f"at most {length_max} are read at once")
    if len(text) < 2 * INSERT_TOKENS_MAX:  # a word has a character at least
        return
    if length_max < SCRIPT_LENGTH_MAX and next(islice(_WORDS.finditer(text), 2 * INSERT_TOKENS_MAX, None), None) is not None:
        raise _too_many_tokens(INSERT_TOKENS_MAX)


def check_tokens(chunk: list[Token]) -> None:
    """Refuse a statement that the parser would need too long or too deep a stack for."""
    tokens_max = INSERT_TOKENS_MAX if chunk[0].text.upper() == "INSERT" else TOKENS_MAX
    if len(chunk) > tokens_max:
        raise _too_many_tokens(tokens_max, chunk[tokens_max])
    depth = signs = 0
    opened: list[int] = []  # what each that is not closed adds: itself, and the signs before it
    for token in chunk:
        kind = token.token_type
        if kind == TokenType.NUMBER and len(token.text) > NUMBER_LENGTH_MAX:
            message = f"a number of {len(token.text)} digits is more than any type holds"
            raise SyntaxProblem(message, hint=f"at most {NUMBER_LENGTH_MAX} are read", line=token.line, column=token.col)
        if kind in _SIGNS:
            signs += 1
        elif kind in _OPENING:
            opened.append(signs + 1)
            depth, signs = depth + signs + 1, 0
        else:
            signs = 0
            if kind in _CLOSING and opened:
                depth -= opened.pop()
        if depth + signs > NESTING_MAX:
            raise SyntaxProblem(
                f"parentheses, CASE and signs are nested more than {NESTING_MAX} deep",
                hint="compute the inner part in a derived table",
                line=token.line,
                column=token.col,
                token=token.text,
            )


def check_depth(root: exp.Expr) -> None:
    """Refuse an expression whose operators stand too deep on one another; operands of a chain stand beside one another."""
    level = [root]
    for _ in range(EXPRESSION_DEPTH_MAX):
        below: list[exp.Expr] = []
        while level:
            node = level.pop()
            for part in operands(node):
                flat = isinstance(node, exp.Paren) or (isinstance(node, _FLAT) and part is node.this and isinstance(part, _FLAT))
                (level if flat else below).append(part)
        level = below
        if not level:
            return
    token = next((n for n in level if "line" in n.meta), None)
    place = (None, None) if token is None else (token.meta["line"], token.meta["col"])
    raise SyntaxProblem(
        f"operators are nested more than {EXPRESSION_DEPTH_MAX} deep",
        hint="compute the inner part in a derived table",
        line=place[0],
        column=place[1],
    )


def _too_many_tokens(tokens_max: int, token: Token | None = None) -> SyntaxProblem:
    return SyntaxProblem(
        f"the statement has more than {tokens_max} words and symbols",
        hint="split it, or publish rows instead of inserting them",
        line=None if token is None else token.line,
        column=None if token is None else token.col,
    )
