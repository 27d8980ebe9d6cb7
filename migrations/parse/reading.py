"""SQL text in, statements as trees out; an error says where it is and what was expected, and nothing else.

The rest of this room says ``from migrations.parse.reading import exp`` and knows sqlglot only by its tree. No tree
leaves here that holds anything but what ``grammar.py`` knows, and every ``?`` knows where it stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from domains.errors import LimitExceeded, SqlError, SqlSyntaxError, Unsupported
from migrations.parse.accounts import AccountStatement, Grant, account_statement
from migrations.parse.grammar import KNOWN, refuse_unknown
from migrations.parse.namespaces import bare_names, names_behind, names_in_place, with_database, with_whole_names
from migrations.parse.policies import PolicyText, policy_statement, refuse_claims
from migrations.parse.respelling import (
    SPELLED,
    lock_of,
    with_executed_comments,
    with_interval_calls,
    with_plain_values,
    with_selects_of_rows,
    without_duplicates,
    without_locks,
    without_national,
    without_priorities,
)
from migrations.parse.syntax import (
    DIALECT,
    ErrorLevel,
    ParseError,
    Parser,
    Refusal,
    Token,
    TokenError,
    TokenType,
    children,
    exp,
    nodes,
)
from migrations.parse.transactions import TransactionStatement, transaction_statement
from migrations.parse.writing import quote, same_tree, text_of, too_deep

__all__ = [
    "MAXIMUM_TEXT",
    "Parsed",
    "children",
    "deed",
    "exp",
    "faithful",
    "lock_of",
    "nodes",
    "parse",
    "parse_select",
    "place",
    "position",
    "qualified",
    "quote",
    "refuse_unfaithful",
    "same_tree",
    "text_of",
    "too_deep",
]

MAXIMUM_TEXT = 16 * 2**20
"""Characters of SQL in one request: room for bulk INSERTs, and parsing it stays within seconds and a gigabyte."""
MOST_BEFORE_VIEW = 20
"""Tokens from CREATE to VIEW: OR REPLACE, ALGORITHM, DEFINER and SQL SECURITY are 17."""
_LONG_NUMBER = re.compile(r"\d{500}")


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
    account: AccountStatement | None = None
    """A statement about accounts, of which sqlglot has no tree."""
    transaction: TransactionStatement | None = None
    """A statement about transactions."""
    policy: PolicyText | None = None
    """What CREATE POLICY and DROP POLICY say (sqlglot's tree has the table alone)."""


def parse(sql: str) -> list[Parsed]:
    """The statements of a text, in order; empty ones are left out.

    :raises SqlSyntaxError: with line and column (both from 1).
    :raises LimitExceeded: the text is too long or nests too deep.
    """
    if len(sql) > MAXIMUM_TEXT:
        raise LimitExceeded(f"SQL text of {len(sql)} characters is longer than the limit of {MAXIMUM_TEXT}")
    if "\0" in sql:
        raise _syntax_error(sql, sql.index("\0"), "unexpected NUL character")
    if "/*!" in sql or "/*H!" in sql:
        sql, unclosed = with_executed_comments(sql)
        if unclosed >= 0:
            raise _syntax_error(sql, unclosed, "comment is not closed")
    try:
        tokens = DIALECT.tokenize(sql)
    except TokenError as error:
        raise _token_error(sql, error) from None
    if _LONG_NUMBER.search(sql) is not None:
        _refuse_long_numbers(tokens)
    chunks = _split(tokens)
    return [each for chunk in chunks for each in (_renamings(sql, chunk) or [_statement(sql, chunk)])]


def _renamings(sql: str, tokens: list[Token]) -> list[Parsed]:
    """``RENAME TABLE a TO b, c TO d`` is one ALTER TABLE after the other; [] for anything else.

    Definitions that follow one another are one migration, so that two tables can have each other's names.
    """
    if tokens[0].text.upper() != "RENAME":
        return []
    # The tokenizer takes what is behind this word for one text.
    start = tokens[0].end + 1
    rest = sql[start : tokens[-1].end + 1]
    inner = DIALECT.tokenize(rest)
    if not inner or inner[0].text.upper() not in ("TABLE", "TABLES"):
        return []
    pairs: list[list[Token]] = [[]]
    for token in inner[1:]:
        if token.token_type == TokenType.COMMA:
            pairs.append([])
        else:
            pairs[-1].append(token)
    found: list[Parsed] = []
    for pair in pairs:
        at = next((at for at, token in enumerate(pair) if token.text.upper() == "TO" and at), 0)
        if not 0 < at < len(pair) - 1 or pair[at].token_type in SPELLED:
            place = (pair or inner)[-1]
            raise _syntax_error(sql, start + place.start, f'expected RENAME TABLE a TO b, found "{place.text}"')
        old, new = (rest[some[0].start : some[-1].end + 1] for some in (pair[:at], pair[at + 1 :]))
        found += parse(f"ALTER TABLE {old} RENAME TO {new}")
    return found


def qualified(sql: str, schema: str) -> str:
    """What a text says in a session whose database this is, said for all: the database stands before each name of a
    table that has none.

    :raises HeadraceError: as ``parse`` does.
    """
    head = names_in_place(sql)
    if head:
        return with_database(sql, schema, [len(head)])
    text = with_executed_comments(sql)[0] if "/*!" in sql or "/*H!" in sql else sql
    try:
        chunks = _split(DIALECT.tokenize(text))
    except TokenError as error:
        raise _token_error(text, error) from None
    places = [place for chunk in chunks for place in _bare_places(text, chunk)]
    if -1 in places:
        raise Unsupported("a name without its database here", hint=f"write {schema}. before the names")
    return with_database(text, schema, places)


def _bare_places(sql: str, tokens: list[Token]) -> Iterator[int]:
    if tokens[0].text.upper() == "RENAME":
        start = tokens[0].end + 1
        inner = DIALECT.tokenize(sql[start : tokens[-1].end + 1])
        for place in names_behind(inner, ("TABLE", "TABLES", "TO"), commas=True):
            yield start + place
        return
    parsed = _statement(sql, tokens)
    if isinstance(parsed.account, Grant):
        yield from names_behind([each for each in tokens if each.text.upper() != "TABLE"], ("ON",))
    elif parsed.policy is not None:
        yield from names_behind(tokens, ("ON",))
    elif isinstance(parsed.expression, exp.Show) and parsed.expression.name.upper() == "POLICIES":
        yield from names_behind(tokens, ("ON", "FROM"))
    elif parsed.account is None and parsed.transaction is None:
        yield from bare_names(parsed.expression)


def parse_select(sql: str) -> exp.Query:
    """The one SELECT (or UNION …) of a text.

    :raises SqlSyntaxError: it is something else, or not one statement.
    """
    statements = parse(sql)
    if len(statements) != 1 or not isinstance(statements[0].expression, exp.Query):
        raise SqlSyntaxError("expected one SELECT statement")
    return statements[0].expression


def faithful(query: exp.Query) -> str:
    """The query as a text to be kept, which reads back as this very tree.

    :raises Unsupported: it has none.
    """
    text = text_of(query)
    refuse_unfaithful(query, parse_select(text))
    return text


def refuse_unfaithful(query: exp.Query, back: exp.Query) -> None:
    """:raises Unsupported: a text that was written for a query reads back as another one."""
    if not same_tree(query, back):
        raise Unsupported("this query cannot be kept as a text", hint="CREATE EXT VIEW it, and read the view")


def position(node: exp.Expr) -> int:
    """The place where a placeholder, name or literal starts in its statement's text (−1: unknown)."""
    return int(node.meta.get("start", -1)) if node._meta else -1


def place(node: exp.Expr) -> tuple[int | None, int | None]:
    """The line and column (from 1) where a name stands, as far as sqlglot knows them."""
    for part in (node, *node.iter_expressions()):
        if part._meta and "line" in part._meta:
            meta = part._meta
            return int(meta["line"]), max(1, int(meta["col"]) - int(meta["end"]) + int(meta["start"]))
    return None, None


def makes_of_select(node: exp.Expr) -> bool:
    """Whether it is CREATE TABLE … AS SELECT."""
    return isinstance(node, exp.Create) and node.args.get("kind") == "TABLE" and bool(node.args.get("expression"))


def deed(parsed: Parsed) -> str:
    """The result of a definition in words: ``table stories created``, ``view v dropped``."""
    tree = parsed.expression
    if parsed.policy is not None:
        return f"policy {parsed.policy.name} {'created' if isinstance(tree, exp.Create) else 'dropped'}"
    verbs: dict[type[exp.Expr], str] = {exp.Create: "created", exp.Alter: "altered", exp.Drop: "dropped"}
    named = tree.this if isinstance(tree.this, exp.Index) else tree.find(exp.Table)
    name = named.name or named.text("db") if named is not None else ""
    return f"{str(tree.args.get('kind') or '').lower()} {name} {verbs[type(tree)]}"


def _refuse_long_numbers(tokens: list[Token]) -> None:
    """Python makes no integer of more than 4,300 digits, and no value has more than 65."""
    for token in tokens:
        if token.token_type == TokenType.NUMBER and _LONG_NUMBER.search(token.text) is not None:
            raise SqlError(f"the number {token.text[:20]}… has more than 65 digits")


def _split(tokens: list[Token]) -> list[list[Token]]:
    chunks: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            chunks.append([])
        else:
            chunks[-1].append(token)
    return [chunk for chunk in chunks if chunk]


def _of_policy(sql: str) -> exp.Expr:
    return _statement(sql, DIALECT.tokenize(sql), of_policy=True).expression


def _statement(sql: str, tokens: list[Token], *, of_policy: bool = False) -> Parsed:
    text = sql[tokens[0].start : tokens[-1].end + 1]
    if (account := account_statement(sql, tokens)) is not None:
        return Parsed(exp.Command(this=tokens[0].text.upper()), text, account=account)
    if (transaction := transaction_statement(sql, tokens)) is not None:
        return Parsed(exp.Transaction(), text, transaction=transaction)
    if (about := policy_statement(sql, tokens, _of_policy)) is not None:
        return Parsed(about[0], text, policy=about[1])
    external = _external(tokens)
    if external is not None:
        tokens = [token for token in tokens if token is not external]
    _refuse_foreign_tokens(sql, tokens)
    _refuse_programs(tokens)
    tokens, ignore = without_priorities(tokens)
    tokens, duplicates = without_duplicates(tokens)
    tokens, sharding = _without_sharding(sql, tokens)
    tokens = with_selects_of_rows(with_interval_calls(with_plain_values(without_national(tokens))))
    parser = Parser(error_level=ErrorLevel.IMMEDIATE, dialect=DIALECT)
    try:
        trees = parser.parse(tokens, sql)
    except Refusal as refusal:
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
    if type(tree) not in KNOWN or isinstance(tree, (exp.Alias, exp.Column, exp.Command)):
        raise Unsupported(f"the statement {tokens[0].text.upper()}")
    without_locks(tree, text)
    named = refuse_unknown(tree)
    if named or isinstance(tree, exp.Show):
        with_whole_names(tree, named)
    if not of_policy:
        refuse_claims(tree, text)
    if duplicates:
        tree.set("alternative", duplicates)
    if ignore:
        tree.set("ignore", True)
    query = sql[slice(*parser.ddl_query)] if parser.ddl_query is not None and isinstance(tree, exp.Create) else ""
    return Parsed(tree, text, external is not None, query, sharding)


_PROGRAMS = ("PROCEDURE", "FUNCTION", "TRIGGER", "EVENT", "SERVER")


def _refuse_programs(tokens: list[Token]) -> None:
    """What is made of another grammar, whose words would be called unexpected."""
    words = [token.text.upper() for token in tokens[:8] if token.token_type not in SPELLED]
    if words and words[0] == "XA":
        raise Unsupported("the statement XA", hint="a statement, and a request's rows, are applied whole or not at all")
    if words and words[0] in ("CREATE", "ALTER", "DROP"):
        # Behind OR REPLACE, DEFINER = name, AGGREGATE and the like.
        what = next((word for word in words[1:] if word in (*_PROGRAMS, "TABLE", "VIEW", "INDEX")), None)
        if what in _PROGRAMS:
            raise Unsupported(f"{words[0]} {what}", hint="tables, views and indexes are there")


_FOREIGN = ("==", "|>", "ISNULL", "NOTNULL")


def _refuse_foreign_tokens(sql: str, tokens: list[Token]) -> None:
    """Texts that leave no trace in the tree: spellings of other dialects."""
    for at, token in enumerate(tokens):
        if token.token_type not in SPELLED and token.text.upper() in _FOREIGN:
            called = at + 1 < len(tokens) and tokens[at + 1].token_type == TokenType.L_PAREN
            if not called:
                raise _syntax_error(sql, token.start, f'unexpected "{token.text}"')


def _stumbled(parser: Parser, tokens: list[Token]) -> tuple[int, str]:
    """The place that a failed parser had come to, and what stands there."""
    current = parser._curr
    if not current or current.token_type == TokenType.SENTINEL:
        return tokens[-1].end + 1, "unexpected end of the text"
    return current.start, f'unexpected "{current.text}"'


def _external(tokens: list[Token]) -> Token | None:
    """The word in ``CREATE … EXT VIEW``, the thesis's for a view that clients read."""
    words = ["" if token.token_type in SPELLED else token.text.upper() for token in tokens[:MOST_BEFORE_VIEW]]
    at = words.index("VIEW") - 1 if words[:1] == ["CREATE"] and "VIEW" in words else 0
    return tokens[at] if at > 0 and words[at] == "EXT" else None


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


def _wording(refusal: Refusal) -> str:
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
    """The start of a quote or comment that never ends, and what it is."""
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
