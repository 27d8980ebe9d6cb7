"""The one door to sqlglot: SQL text in, statements as sqlglot trees out.

Everything else in this room says ``from migrations.parse import exp`` and knows sqlglot only by its tree. Three things
are ours: functions keep the names that MySQL gives them (sqlglot rewrites them for other dialects, which would hide
``DATE_FORMAT`` behind three nodes), every ``?`` knows where it stands, and an error says where it is and what was
expected, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from sqlglot import exp
from sqlglot.dialects.mysql import MySQL
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.parsers.mysql import MySQLParser
from sqlglot.tokenizer_core import Token, TokenType
from sqlglot.trie import new_trie

from domains.errors import LimitExceeded, SqlSyntaxError

__all__ = ["MAXIMUM_TEXT", "Parsed", "exp", "parse", "parse_select", "place", "position", "quote", "text_of"]

MAXIMUM_TEXT = 16 * 2**20
"""Characters of SQL in one request: room for bulk INSERTs, and parsing it stays within seconds and a gigabyte."""


@dataclass(frozen=True, slots=True)
class ShardingClause:
    """``SHARD BY (column) [SHARDS n]``; 0 shards: as many as the deployment has."""

    column: str
    shards: int


@dataclass(frozen=True, slots=True)
class Parsed:
    """One statement. ``sql`` is its own text, without the ``;`` and what stands around it."""

    expression: exp.Expr
    sql: str
    external: bool = False
    """``CREATE EXT VIEW``: the view is to be read from outside (sqlglot's tree has no place for it)."""
    query: str = ""
    """The text of the SELECT in ``CREATE VIEW … AS SELECT …`` (sqlglot's tree does not say where it stands)."""
    sharding: ShardingClause | None = None
    """``CREATE TABLE … SHARD BY …`` (sqlglot's tree has no place for it either)."""


class _Refusal(ParseError):
    """A parse error that still knows its place; sqlglot backtracks over it, so it is no error of ours yet."""

    def __init__(self, message: str, start: int, found: str | None) -> None:
        super().__init__(message)
        self.message = message
        self.start = start
        self.found = found


KEPT_FUNCTIONS = ("COUNT", "SUM", "AVG", "MIN", "MAX", "COALESCE", "IFNULL")
"""Functions that sqlglot may give a node class of its own; all others stay ``exp.Anonymous`` under MySQL's name."""

KEPT_FUNCTION_PARSERS = (
    *("CAST", "CONVERT", "EXTRACT", "GROUP_CONCAT", "MATCH", "POSITION"),
    *("SUBSTRING", "SUBSTR", "TRIM", "VALUES", "JSON_TABLE"),
)
"""Functions with a syntax of their own inside the parentheses."""

ATOMS = frozenset(
    {
        *(TokenType.VAR, TokenType.IDENTIFIER, TokenType.STAR, TokenType.NUMBER, TokenType.STRING),
        *(TokenType.NULL, TokenType.TRUE, TokenType.FALSE),
    }
)
"""What a column or a constant begins with."""
ENDS_OPERAND = frozenset(
    {
        *(TokenType.EQ, TokenType.AND, TokenType.IN, TokenType.COMMA, TokenType.R_PAREN, TokenType.SENTINEL),
        *(TokenType.ALIAS, TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.ORDER_BY, TokenType.LIMIT),
    }
)
"""What makes of the column or constant before it a whole operand: no operator that binds more closely begins so."""
ENDS_EXPRESSION = frozenset({TokenType.COMMA, TokenType.R_PAREN, TokenType.FROM})
"""And of that operand a whole expression, without an alias."""


class _Parser(MySQLParser):
    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {name: MySQLParser.FUNCTIONS[name] for name in KEPT_FUNCTIONS}
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        name: MySQLParser.FUNCTION_PARSERS[name] for name in KEPT_FUNCTION_PARSERS
    }
    PLACEHOLDER_PARSERS: ClassVar[Any] = {
        **MySQLParser.PLACEHOLDER_PARSERS,
        TokenType.PLACEHOLDER: lambda self: self.expression(exp.Placeholder(), self._prev),
        TokenType.COLON: lambda self: self._named_placeholder(),
    }

    SHOW_PARSERS: ClassVar[Any] = {
        **MySQLParser.SHOW_PARSERS,
        "VIEWS": lambda self: self.expression(exp.Show(this="VIEWS")),
    }
    SHOW_TRIE: ClassVar[Any] = new_trie(key.split(" ") for key in SHOW_PARSERS)

    STATEMENT_PARSERS: ClassVar[Any] = {
        **MySQLParser.STATEMENT_PARSERS,
        TokenType.REPLACE: lambda self: self._parse_replace(),
    }

    ddl_query: tuple[int, int] | None = None
    """Where the SELECT of a CREATE starts in the text, and where it ends."""

    def _parse_ddl_select(self) -> exp.Expr | None:
        start = self._curr.start if self._curr else 0
        query: exp.Expr | None = super()._parse_ddl_select()
        self.ddl_query = (start, self._prev.end + 1) if query is not None else None
        return query

    def _parse_expression(self) -> exp.Expr | None:
        """sqlglot goes down fifteen levels of operators to find that one column stands between two commas."""
        atom = self._atom_before(ENDS_EXPRESSION)
        return super()._parse_expression() if atom is None else atom

    def _parse_bitwise(self) -> exp.Expr | None:
        """The same for the sides of a comparison."""
        atom = self._atom_before(ENDS_OPERAND)
        return super()._parse_bitwise() if atom is None else atom

    def _atom_before(self, ends: frozenset[TokenType]) -> exp.Expr | None:
        """The column (``a`` or ``t.a``) or constant that stands here, where one of these follows it."""
        if self._curr.token_type not in ATOMS:
            return None
        after = self._next.token_type
        if after == TokenType.DOT:
            at = self._index + 3
            after = self._tokens[at].token_type if at < self._tokens_size else TokenType.SENTINEL
        return self._parse_atom() if after in ends else None

    def _parse_interval_span(self, this: exp.Expr, parse_function_unit: bool = True) -> exp.Interval:
        """sqlglot makes a text of every amount, and ``1.5`` DAY are two days, but ``'1.5'`` DAY is one."""
        interval: exp.Interval = super()._parse_interval_span(this, parse_function_unit)
        if this.is_number and not this.is_int:
            interval.set("this", this)
        return interval

    def _parse_replace(self) -> exp.Expr:
        """``REPLACE INTO …`` is an ``exp.Insert`` whose ``alternative`` is ``REPLACE``."""
        insert: exp.Expr = self._parse_insert()
        insert.set("alternative", "REPLACE")
        return insert

    def _named_placeholder(self) -> exp.Expr | None:
        if not self._match_set(self.COLON_PLACEHOLDER_TOKENS):
            return None
        return self.expression(exp.Placeholder(this=self._prev.text), self._prev)

    def raise_error(self, message: str, token: Token | None = None) -> None:
        current = self._curr or None
        place = token or current or self._prev or None
        if place is None:
            raise _Refusal(message, 0, None)
        at_end = token is None and current is None
        raise _Refusal(message, place.end + 1 if at_end else place.start, None if at_end else place.text)

    def _parse_as_command(self, start: Token) -> NoReturn:
        """Where sqlglot would shrug and keep the text, we say which word it stumbled over."""
        self.raise_error("Unexpected token")
        raise AssertionError("raise_error raises")

    def _warn_unsupported(self) -> None:
        """sqlglot logs here; whoever gets the ``exp.Command`` answers for it."""


class _Dialect(MySQL):
    class Tokenizer(MySQL.Tokenizer):
        COMMANDS = MySQL.Tokenizer.COMMANDS - {TokenType.REPLACE}
        """Without REPLACE, whose statement would else be one opaque string."""


_DIALECT = _Dialect()


def parse(sql: str) -> list[Parsed]:
    """The statements of a text, in order; empty ones are left out.

    :raises SqlSyntaxError: with line and column (both from 1).
    :raises LimitExceeded: the text is too long or nests too deep.
    """
    if len(sql) > MAXIMUM_TEXT:
        raise LimitExceeded(f"SQL text of {len(sql)} characters is longer than the limit of {MAXIMUM_TEXT}")
    if "\0" in sql:
        raise _syntax_error(sql, sql.index("\0"), "unexpected NUL character")
    try:
        tokens = _DIALECT.tokenize(sql)
    except TokenError as error:
        raise _token_error(sql, error) from None
    return [_statement(sql, chunk) for chunk in _split(tokens)]


def parse_select(sql: str) -> exp.Query:
    """The one SELECT (or UNION …) of a text.

    :raises SqlSyntaxError: it is something else, or not one statement.
    """
    statements = parse(sql)
    if len(statements) != 1 or not isinstance(statements[0].expression, exp.Query):
        raise SqlSyntaxError("expected one SELECT statement")
    return statements[0].expression


def position(node: exp.Expr) -> int:
    """Where a placeholder, name or literal starts in its statement's text (−1: unknown)."""
    return int(node.meta.get("start", -1)) if node._meta else -1


def place(node: exp.Expr) -> tuple[int | None, int | None]:
    """The line and column (from 1) where a name stands, as far as sqlglot knows them."""
    for part in (node, *node.iter_expressions()):
        if part._meta and "line" in part._meta:
            meta = part._meta
            return int(meta["line"]), max(1, int(meta["col"]) - int(meta["end"]) + int(meta["start"]))
    return None, None


def text_of(node: exp.Expr) -> str:
    """An expression as MySQL would print it: the name of a column that has none."""
    try:
        return node.sql(dialect=_DIALECT, comments=False)
    except RecursionError:  # Printing goes deeper than parsing.
        raise too_deep() from None


def too_deep() -> LimitExceeded:
    """What a text may parse to can still be deeper than what is made of it, by functions that call themselves."""
    return LimitExceeded("the statement nests too deep", hint="split it into several views")


def quote(name: str) -> str:
    """A name as MySQL reads it back, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def _split(tokens: list[Token]) -> list[list[Token]]:
    chunks: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            chunks.append([])
        else:
            chunks[-1].append(token)
    return [chunk for chunk in chunks if chunk]


def _statement(sql: str, tokens: list[Token]) -> Parsed:
    text = sql[tokens[0].start : tokens[-1].end + 1]
    external = _is_external(tokens)
    if external:
        tokens = [token for token in tokens if token is not tokens[1]]
    tokens, sharding = _without_sharding(sql, tokens)
    tokens = _with_plain_values(tokens)
    parser = _Parser(error_level=ErrorLevel.IMMEDIATE, dialect=_DIALECT)
    try:
        trees = parser.parse(tokens, sql)
    except _Refusal as refusal:
        raise _syntax_error(sql, refusal.start, _wording(refusal)) from None
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        raise SqlSyntaxError(
            _expectation(str(first.get("description", error))), line=first.get("line"), column=first.get("col")
        ) from None
    except RecursionError:
        raise too_deep() from None
    except (LookupError, TypeError, AttributeError):
        # sqlglot trips over some texts that are no SQL (SHOW TABLE); how far it came is where they go wrong.
        raise _syntax_error(sql, *_stumbled(parser, tokens)) from None
    tree = trees[0] if len(trees) == 1 else None
    if tree is None:
        raise _syntax_error(sql, tokens[0].start, f'unexpected "{tokens[0].text}"')
    query = sql[slice(*parser.ddl_query)] if parser.ddl_query is not None and isinstance(tree, exp.Create) else ""
    return Parsed(tree, text, external, query, sharding)


def _stumbled(parser: _Parser, tokens: list[Token]) -> tuple[int, str]:
    """Where a parser that failed had come to, and what stands there."""
    current = parser._curr
    if not current or current.token_type == TokenType.SENTINEL:
        return tokens[-1].end + 1, "unexpected end of the text"
    return current.start, f'unexpected "{current.text}"'


def _with_plain_values(tokens: list[Token]) -> list[Token]:
    """``VALUES(c)`` behind ON DUPLICATE KEY UPDATE is a function; sqlglot would read ``(VALUES(c) + 1)`` as rows."""
    starts = [i for i, token in enumerate(tokens) if token.text.upper() == "DUPLICATE"]
    if not starts or not any(token.token_type == TokenType.VALUES for token in tokens[starts[-1] :]):
        return tokens

    def plain(token: Token) -> Token:
        if token.token_type != TokenType.VALUES:
            return token
        return Token(TokenType.VAR, token.text, token.line, token.col, token.start, token.end, token.comments)

    return [*tokens[: starts[-1]], *(plain(token) for token in tokens[starts[-1] :])]


def _is_external(tokens: list[Token]) -> bool:
    """``CREATE EXT VIEW``, the thesis's word for a view that clients read."""
    if len(tokens) < 3 or tokens[0].token_type != TokenType.CREATE:
        return False
    return tokens[1].text.upper() == "EXT" and tokens[2].token_type == TokenType.VIEW


def _without_sharding(sql: str, tokens: list[Token]) -> tuple[list[Token], ShardingClause | None]:
    """``SHARD BY (column) [SHARDS n]``, ours, after the columns of a CREATE TABLE and among its options."""
    words = [token.text.upper() for token in tokens]
    if words[0] != "CREATE" or "TABLE" not in words[1:3]:
        return tokens, None
    at = next((i for i in range(len(tokens) - 1) if words[i : i + 2] == ["SHARD", "BY"]), None)
    if at is None:
        return tokens, None
    if len(tokens) < at + 5 or words[at + 2] != "(" or words[at + 4] != ")":
        raise _syntax_error(sql, tokens[at].start, "expected SHARD BY (column)")
    if len(tokens) == at + 5 or words[at + 5] != "SHARDS":
        return [*tokens[:at], *tokens[at + 5 :]], ShardingClause(tokens[at + 3].text, 0)
    if len(tokens) == at + 6 or not words[at + 6].isdecimal() or int(words[at + 6]) < 1:
        raise _syntax_error(sql, tokens[at + 5].start, "expected SHARDS and a number from 1")
    return [*tokens[:at], *tokens[at + 7 :]], ShardingClause(tokens[at + 3].text, int(words[at + 6]))


def _syntax_error(sql: str, start: int, message: str) -> SqlSyntaxError:
    before = sql[:start]
    return SqlSyntaxError(message, line=before.count("\n") + 1, column=start - (before.rfind("\n") + 1) + 1)


def _wording(refusal: _Refusal) -> str:
    expected = _expectation(refusal.message)
    if refusal.found is None:
        return f"{expected}, but the text ends" if expected.startswith("expected") else "unexpected end of the text"
    found = refusal.found if len(refusal.found) <= 40 else refusal.found[:37] + "…"
    return f'{expected}, found "{found}"' if expected.startswith("expected") else f'unexpected "{found}"'


def _expectation(message: str) -> str:
    """sqlglot's description in our words: ``Expecting )`` → ``expected ")"``."""
    if message.startswith("Required keyword"):
        return "expected an expression"
    for prefix in ("Expecting ", "Expected "):
        if message.startswith(prefix):
            wanted = message.removeprefix(prefix).partition(" but got")[0].strip()
            return f'expected "{wanted}"' if len(wanted) <= 2 else f"expected {wanted}"
    return "unexpected token"


def _token_error(sql: str, error: TokenError) -> SqlSyntaxError:
    """The tokenizer only fails where something was opened and never closed, so its place is the last opening."""
    opened = _unclosed(sql)
    if opened is None:
        reason = str(error.__cause__ or error).split("\n", 1)[0]
        return SqlSyntaxError(f"the text cannot be read as SQL: {reason[:80]}")
    start, what = opened
    return _syntax_error(sql, start, f"{what} is not closed")


def _unclosed(sql: str) -> tuple[int, str] | None:
    """Where the quote or comment starts that never ends, and what it is."""
    at, size = 0, len(sql)
    while at < size:
        character = sql[at]
        start = at
        if character in "'\"`":
            at += 1
            while at < size and sql[at] != character:
                at += 2 if sql[at] == "\\" and character != "`" else 1
            if at >= size:
                return start, "identifier" if character == "`" else "string"
        elif sql.startswith("/*", at):
            end = sql.find("*/", at + 2)
            if end < 0:
                return start, "comment"
            at = end + 1
        elif character == "#" or sql.startswith("-- ", at):
            end = sql.find("\n", at)
            at = size if end < 0 else end
        at += 1
    return None
