"""Columns as CREATE writes them: their types, and the checks on the time column (K3, K12)."""

from __future__ import annotations

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from millstream.engine.data import types
from millstream.engine.data.errors import InvalidDefinition, SyntaxProblem, TypeProblem, UnknownName
from millstream.engine.data.nearest import did_you_mean, near_or_listed
from millstream.engine.data.schema import Schema, TimeRule
from millstream.engine.data.types import DataType, Kind
from millstream.engine.language.cursor import TokenCursor
from millstream.engine.language.statements import Name
from millstream.protocol.values import TYPE_DEPTH_MAX
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType


def checked_zone(zone: str, where: Name | None = None) -> str:
    """Return `zone` if the time zone database has it, else raise InvalidDefinition."""
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        place = where.place if where else None
        raise InvalidDefinition(
            f"'{zone}' is not a time zone",
            hint="write an area and city such as 'Europe/Rome', or 'UTC'",
            line=place.line if place else None,
            column=place.column if place else None,
            token=zone,
        ) from None
    return zone


def checked_time_rule(rule: TimeRule, schema: Schema, name: Name | None) -> TimeRule:
    """Return the rule if it fits the schema, else raise an error that names the column and the mend."""
    if name is None:
        return rule
    position = schema.position(name.text)
    place = {"line": name.place.line, "column": name.place.column, "token": name.text}
    if position is None:
        hint = near_or_listed(name.text, schema.names, "columns")
        raise UnknownName(f"there is no column {name.text} to take the time from", hint=hint, **place)  # type: ignore[arg-type]
    problem = _problem(rule, schema.fields[position].type.kind, schema.fields[position].type.is_integer, name.text)
    if problem is not None:
        raise InvalidDefinition(problem[0], hint=problem[1], **place)  # type: ignore[arg-type]
    if rule.zone is not None:
        checked_zone(rule.zone, name)
    return rule


def _problem(rule: TimeRule, kind: Kind, is_integer: bool, name: str) -> tuple[str, str] | None:
    if is_integer:
        if rule.unit is None:
            return f"the integer column {name} needs a unit to be a time", f"write TIMESTAMP BY {name} UNIT ms (or s, us, ns)"
        if rule.unit == "ns" and not rule.unit_round:
            return "event times are whole microseconds, UNIT ns is finer", "write UNIT ns ROUND"
        if rule.zone is not None:
            return f"the integer column {name} counts from the epoch and has no zone", "leave ZONE out"
        return None
    if kind is not Kind.TIMESTAMP:
        return f"the time column {name} must be TIMESTAMP or an integer with a UNIT, not {kind.value}", f"declare {name} TIMESTAMP"
    if rule.unit is not None:
        return f"{name} is a TIMESTAMP and has no UNIT", "leave UNIT out"
    return None


TYPE_NAMES: dict[str, DataType] = {
    "BOOLEAN": types.BOOLEAN,
    "BOOL": types.BOOLEAN,
    "INT": types.INT,
    "INTEGER": types.INT,
    "SMALLINT": types.INT,
    "TINYINT": types.INT,
    "INT2": types.INT,
    "INT4": types.INT,
    "BIGINT": types.BIGINT,
    "INT8": types.BIGINT,
    "DOUBLE": types.DOUBLE,
    "DOUBLE PRECISION": types.DOUBLE,
    "FLOAT": types.DOUBLE,
    "REAL": types.DOUBLE,
    "FLOAT4": types.DOUBLE,
    "FLOAT8": types.DOUBLE,
    "TEXT": types.TEXT,
    "VARCHAR": types.TEXT,
    "STRING": types.TEXT,
    "CHAR": types.TEXT,
    "CHARACTER": types.TEXT,
    "CHARACTER VARYING": types.TEXT,
    "TIMESTAMP": types.TIMESTAMP,
    "TIMESTAMPTZ": types.TIMESTAMP,
    "DATETIME": types.TIMESTAMP,
    **dict.fromkeys(("BYTES", "BYTEA", "BLOB", "BINARY", "VARBINARY"), types.BYTES),
    "DATE": types.DATE,
    "TIME": types.TIME,
    "INTERVAL": types.INTERVAL,
    "JSON": types.JSON,
    "JSONB": types.JSON,
}
NESTED_NAMES = ("STRUCT", "ROW", "MAP", "ARRAY", "LIST")
TIMESTAMP_DIGITS_MAX = 6
PARAMETER_DIGITS_MAX = 9
DECIMAL_NAMES = ("DECIMAL", "NUMERIC")


def type_named(word: str, parameters: tuple[int, ...], token: Token | None = None) -> DataType:
    """Return the type called `word` (upper case) with its parameters; TypeProblem or SyntaxProblem with the mend."""
    line, column = (token.line, token.col) if token else (None, None)
    if word in DECIMAL_NAMES:
        if not parameters:
            raise TypeProblem(f"{word} needs its precision and scale", hint=f"write {word}(12, 2)", line=line, column=column, token=word)
        try:
            return types.decimal(parameters[0], parameters[1] if len(parameters) > 1 else 0)
        except ValueError as problem:
            raise TypeProblem(str(problem), line=line, column=column, token=word) from None
    found = TYPE_NAMES.get(word)
    if found is None:
        from millstream.engine.language.foreign_words import WordPlace
        from millstream.engine.language.refusals import hint as foreign

        hint = foreign(WordPlace.TYPE, word) or did_you_mean(word, [*TYPE_NAMES, *DECIMAL_NAMES])
        raise SyntaxProblem(f"'{word}' is not a type", hint=hint, line=line, column=column, token=word)
    unfit = _parameter_problem(word, found, parameters)
    if unfit is not None:
        raise TypeProblem(unfit, hint=f"write {found}", line=line, column=column, token=word)
    return found


def _parameter_problem(word: str, type_: DataType, parameters: tuple[int, ...]) -> str | None:
    """A text may name a length and an instant its digits of a second; columns keep whatever they get, CAST cuts and rounds."""
    if not parameters:
        return None
    if len(parameters) > 1 or type_ not in (types.TEXT, types.TIMESTAMP):
        return f"{word} has no length or precision"
    if type_ == types.TEXT:
        return None if parameters[0] > 0 else f"the length of {word} must be positive"
    return None if parameters[0] <= TIMESTAMP_DIGITS_MAX else f"{word} keeps microseconds, {TIMESTAMP_DIGITS_MAX} digits of a second"


class TypeParser(TokenCursor):
    """Adds types to the cursor."""

    def column_type(self) -> DataType:
        """Take a type, perhaps a nested one."""
        token = self.current
        type_ = self._one_type()
        while True:
            if self.sees_symbol(TokenType.L_BRACKET) and self.token_at(1).token_type == TokenType.R_BRACKET:
                self.advance(2)
            elif not self.takes("ARRAY"):
                break
            type_ = types.list_of(type_)
        if types.depth_of_type(type_) > TYPE_DEPTH_MAX:
            hint = "declare the inner part as JSON"
            raise self.problem(f"types stand in one another more than {TYPE_DEPTH_MAX} deep", token, hint)
        return type_

    def cast_type(self) -> exp.Expr | None:
        """Read the target of a CAST."""
        word = self.current.text.upper() if self.current else ""
        if word not in NESTED_NAMES:
            return super().cast_type()
        type_ = self.column_type()
        node = exp.DataType(this=exp.DType.USERDEFINED, kind=str(type_))
        node.meta["type"] = type_
        return node

    def _nested_type(self, word: str) -> DataType:
        """Take what stands behind STRUCT, ROW, MAP, ARRAY or LIST, in < > or ( )."""
        closing = TokenType.GT if self.takes_symbol(TokenType.LT) else TokenType.R_PAREN
        if closing == TokenType.R_PAREN:
            self.expect_symbol(TokenType.L_PAREN, "(", f"after {word}")
        if word in ("STRUCT", "ROW"):
            type_ = self._struct_type()
        else:
            type_ = self.column_type()
            if word == "MAP":
                if type_ != types.TEXT:
                    hint = "write MAP(TEXT, …), or LIST of STRUCT(key …, value …)"
                    raise self.problem(f"the keys of a MAP are TEXT, not {type_}", self.previous, hint)
                self.expect_symbol(TokenType.COMMA, ",", "after the type of the keys")
                type_ = types.map_of(self.column_type())
            else:
                type_ = types.list_of(type_)
        self.expect_symbol(closing, ">" if closing == TokenType.GT else ")", f"at the end of {word}")
        return type_

    def _struct_type(self) -> DataType:
        parts: dict[str, DataType] = {}
        while not parts or self.takes_symbol(TokenType.COMMA):
            name = self._part_name()
            if name in parts:
                raise self.problem(f"the part {name} stands twice", self.previous, "give each part its own name")
            self.takes_symbol(TokenType.COLON)
            parts[name] = self.column_type()
        return types.struct_of(parts.items())

    def _part_name(self) -> str:
        """Take the name of a part. It may be a reserved word, as no clause can stand here: so a type that is shown can be read again."""
        if not self.sees_word():
            return self.name("name of a part", check=True).text
        token = self.current
        self.advance()
        self._validate(token.text.lower(), "name of a part", token)
        return token.text.lower()

    def _one_type(self) -> DataType:
        token = self.current
        if not token or token.token_type in (TokenType.STRING, TokenType.NUMBER, TokenType.COMMA, TokenType.R_PAREN, TokenType.IDENTIFIER):
            self.unexpected(["a type"], "after the column name")
        self.advance()
        word = " ".join(token.text.upper().split())
        if word in NESTED_NAMES:
            return self._nested_type(word)
        parameters: tuple[int, ...] = ()
        if self.takes_symbol(TokenType.L_PAREN):
            parameters = self.listed(lambda: self.integer("a type's parameter", least=0))
            self.expect_symbol(TokenType.R_PAREN, ")", "after the type's parameters")
        if word == "TIMESTAMP" and (self.takes("WITH", "TIME", "ZONE") or self.takes("WITHOUT", "TIME", "ZONE")):
            pass  # an instant, either way
        if word == "TIME":
            self.takes("WITHOUT", "TIME", "ZONE")
        return type_named(word, parameters, token)

    def known_column(self, schema: Schema, name: Name) -> int:
        """Return the position of a column, or raise UnknownName with the nearest name."""
        position = schema.position(name.text)
        if position is None:
            place = name.place
            raise UnknownName(
                f"there is no column {name.text}",
                hint=near_or_listed(name.text, schema.names, "columns"),
                line=place.line,
                column=place.column,
                token=name.text,
            )
        return position


def type_of_node(node: exp.DataType, line: int | None, column: int | None) -> DataType:
    """Return our type for the target of a CAST as sqlglot parsed it; TypeProblem where it is none."""
    token = Token(TokenType.VAR, "", line or 1, column or 1)
    if isinstance(node.this, exp.Interval):  # INTERVAL DAY, INTERVAL HOUR TO SECOND …
        message = "an INTERVAL holds microseconds and takes no unit as a type"
        raise TypeProblem(message, hint="write CAST(x AS INTERVAL)", line=line, column=column, token="INTERVAL")
    if "type" in node.meta:
        nested: DataType = node.meta["type"]
        return nested
    if node.this == exp.DType.ARRAY and node.expressions:
        return types.list_of(type_of_node(node.expressions[0], line, column))
    if node.this == exp.DType.USERDEFINED:
        return type_named(str(node.args.get("kind", "")).upper(), (), token)
    return type_named(str(node.this.value).upper(), parameters_of_node(node, line, column), token)


def parameters_of_node(node: exp.DataType, line: int | None, column: int | None) -> tuple[int, ...]:
    """Return the numbers in parentheses after a type's name; TypeProblem for anything else."""
    found = []
    for parameter in node.expressions:
        if isinstance(parameter, exp.DataTypeParam):
            text = parameter.this.sql()
            if not (text.isascii() and text.isdigit() and len(text) <= PARAMETER_DIGITS_MAX):
                message = f"{text} after {node.this.value} is no whole number"
                raise TypeProblem(message, hint="write a length or digits, as in VARCHAR(20) or DECIMAL(12, 2)", line=line, column=column)
            found.append(int(text))
    return tuple(found)
