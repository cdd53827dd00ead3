"""What is refused for its size: texts, before anything reads them; tokens, before the parser does; expressions, before the binder does.

`limits.py` has the bounds and their reasons. Each check takes a time that grows with the text and no faster.
"""

from __future__ import annotations

import re
from itertools import islice

from millstream.engine.data.errors import SyntaxProblem
from millstream.engine.language.limits import (
    EXPRESSION_DEPTH_MAX,
    INSERT_TOKENS_MAX,
    NESTING_MAX,
    NUMBER_LENGTH_MAX,
    SCRIPT_LENGTH_MAX,
    TOKENS_MAX,
)
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

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
            for part in node.iter_expressions():
                flat = isinstance(node, exp.Paren) or (isinstance(node, _FLAT) and part is node.this and isinstance(part, _FLAT))
                (level if flat else below).append(part)
        level = below
        if not level:
            return
    token = next((n for n in level if "line" in n.meta), None)
    place = (None, None) if token is None else (token.meta["line"], token.meta["col"])
    raise SyntaxProblem(
        f"operators stand more than {EXPRESSION_DEPTH_MAX} deep on one another",
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
