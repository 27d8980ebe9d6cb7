"""The one door to sqlglot: its tree (``exp``), and its MySQL parser with what is not MySQL taken out.

sqlglot reads many dialects with one parser, so much that MySQL refuses would pass: as another construct, or as nothing
at all where the tree has no place for it. Operators, clauses and words of other dialects are taken out of the parser's
tables here. What is left over and stands in the tree is for ``grammar.py``, which names it. Functions keep the names
that MySQL gives them (sqlglot rewrites them for other dialects, which would hide ``DATE_FORMAT`` behind three nodes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NoReturn, TypeVar

from sqlglot import exp
from sqlglot.dialects.mysql import MySQL
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.parsers.mysql import MySQLParser
from sqlglot.tokenizer_core import Token, TokenType
from sqlglot.trie import new_trie

from domains.errors import Unsupported

__all__ = [
    "DIALECT",
    "ErrorLevel",
    "ParseError",
    "Parser",
    "Refusal",
    "Token",
    "TokenError",
    "TokenType",
    "children",
    "copied",
    "exp",
    "nodes",
]

T = TypeVar("T")
Tree = TypeVar("Tree", bound=exp.Expr)


def _only(table: dict[TokenType, Any], *tokens: TokenType) -> dict[TokenType, Any]:
    """A table of the parser's, cut down to what MySQL has."""
    return {token: table[token] for token in tokens}


def _called(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=list(arguments))


class Refusal(ParseError):
    """A parse error that still knows its place; sqlglot backtracks over it, so it is no error of ours yet."""

    def __init__(self, message: str, start: int, found: str | None) -> None:
        super().__init__(message)
        self.message = message
        self.start = start
        self.found = found


KEPT_FUNCTIONS = ("COUNT", "SUM", "AVG", "MIN", "MAX", "COALESCE", "IFNULL")
"""Functions that sqlglot may give a node class of its own; all others stay ``exp.Anonymous`` under MySQL's name."""

KEPT_FUNCTION_PARSERS = (
    *("CAST", "CHAR", "CONVERT", "EXTRACT", "GROUP_CONCAT", "MATCH", "POSITION"),
    *("SUBSTRING", "SUBSTR", "TRIM", "VALUES"),
)
"""Functions with a syntax of their own inside the parentheses."""

ATOMS = frozenset(
    {
        *(TokenType.VAR, TokenType.IDENTIFIER, TokenType.STAR, TokenType.NUMBER, TokenType.STRING),
        *(TokenType.NULL, TokenType.TRUE, TokenType.FALSE),
    }
)
"""Tokens that begin a column or a constant."""
ENDS_OPERAND = frozenset(
    {
        *(TokenType.EQ, TokenType.AND, TokenType.IN, TokenType.COMMA, TokenType.R_PAREN, TokenType.SENTINEL),
        *(TokenType.ALIAS, TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.ORDER_BY, TokenType.LIMIT),
    }
)
"""Tokens after which the column or constant before is a whole operand: no operator that binds more closely begins so.
"""
ENDS_EXPRESSION = frozenset({TokenType.COMMA, TokenType.R_PAREN, TokenType.FROM})
"""And of that operand a whole expression, without an alias."""


class Parser(MySQLParser):
    SIGNED_TO_UNSIGNED_TYPE_TOKEN: ClassVar[Any] = {
        **MySQLParser.SIGNED_TO_UNSIGNED_TYPE_TOKEN,
        TokenType.FLOAT: TokenType.UDOUBLE,
    }
    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {name: MySQLParser.FUNCTIONS[name] for name in KEPT_FUNCTIONS}
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        **{name: MySQLParser.FUNCTION_PARSERS[name] for name in KEPT_FUNCTION_PARSERS},
        "JSON_TABLE": lambda self: self._json_table(),
        "JSON_VALUE": lambda self: self._json_value(),
    }
    RANGE_PARSERS: ClassVar[Any] = _only(
        MySQLParser.RANGE_PARSERS,
        *(TokenType.BETWEEN, TokenType.IN, TokenType.IS, TokenType.LIKE, TokenType.RLIKE, TokenType.MEMBER_OF),
    )
    COLUMN_OPERATORS: ClassVar[Any] = {
        **_only(MySQLParser.COLUMN_OPERATORS, TokenType.DOT),
        TokenType.ARROW: lambda self, this, path: _called("JSON_EXTRACT", this, path),
        TokenType.DARROW: lambda self, this, path: _called("JSON_UNQUOTE", _called("JSON_EXTRACT", this, path)),
    }
    UNARY_PARSERS: ClassVar[Any] = _only(
        MySQLParser.UNARY_PARSERS, TokenType.PLUS, TokenType.DASH, TokenType.NOT, TokenType.TILDE
    )
    FACTOR: ClassVar[Any] = _only(MySQLParser.FACTOR, TokenType.STAR, TokenType.SLASH, TokenType.DIV, TokenType.MOD)
    QUERY_MODIFIER_PARSERS: ClassVar[Any] = _only(
        MySQLParser.QUERY_MODIFIER_PARSERS,
        *(TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.ORDER_BY, TokenType.LIMIT, TokenType.OFFSET),
        *(TokenType.WINDOW, TokenType.FOR, TokenType.LOCK),
    )
    QUERY_MODIFIER_TOKENS: ClassVar[Any] = set(QUERY_MODIFIER_PARSERS)
    LAMBDAS: ClassVar[Any] = {}
    PLACEHOLDER_PARSERS: ClassVar[Any] = {
        **MySQLParser.PLACEHOLDER_PARSERS,
        TokenType.PLACEHOLDER: lambda self: self.expression(exp.Placeholder(), self._prev),
        TokenType.COLON: lambda self: self._named_placeholder(),
    }

    ADD_CONSTRAINT_KEYWORDS: ClassVar[Any] = {*MySQLParser.ADD_CONSTRAINT_KEYWORDS, "CHECK"}

    SHOW_PARSERS: ClassVar[Any] = {
        **MySQLParser.SHOW_PARSERS,
        **dict.fromkeys(("COLUMNS", "FIELDS"), lambda self: self._show_columns(full=False)),
        **dict.fromkeys(("FULL COLUMNS", "FULL FIELDS"), lambda self: self._show_columns(full=True)),
        **{each: lambda self, each=each: self._parse_show_mysql(each) for each in ("VIEWS", "QUERIES")},
        **{each: lambda self: self._parse_show_mysql("INDEX", target="FROM") for each in ("INDEX", "INDEXES", "KEYS")},
        **{f"CREATE {each}": lambda self: self._show_create_database() for each in ("DATABASE", "SCHEMA")},
        **{f"LOCAL {each}": MySQLParser.SHOW_PARSERS[f"SESSION {each}"] for each in ("VARIABLES", "STATUS")},
    }
    SHOW_TRIE: ClassVar[Any] = new_trie(key.split(" ") for key in SHOW_PARSERS)

    STATEMENT_PARSERS: ClassVar[Any] = {
        **MySQLParser.STATEMENT_PARSERS,
        TokenType.REPLACE: lambda self: self._parse_replace(),
    }

    def _parse_delete(self) -> exp.Delete:
        """RETURNING comes last in MariaDB, behind LIMIT."""
        tree: exp.Delete = super()._parse_delete()
        returning = self._parse_returning()
        if returning is not None:
            tree.set("returning", returning)
        return tree

    ddl_query: tuple[int, int] | None = None
    """The start and the end in the text of a CREATE's SELECT."""

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

    def _parse_set_item_assignment(self, kind: str | None = None) -> exp.Expr | None:
        """sqlglot takes the comma behind ``SET @a = (SELECT …)`` for a join's."""
        if self._curr.token_type != TokenType.PARAMETER:
            return super()._parse_set_item_assignment(kind)
        variable = self._parse_column()
        if not self._match_texts(self.SET_ASSIGNMENT_DELIMITERS):
            self.raise_error("Expected =")
        value = self._parse_expression()
        self._expect(value, "an expression")
        return self.expression(exp.SetItem(this=exp.EQ(this=variable, expression=value)))

    def _parse_function_call(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        """sqlglot takes EXISTS, ANY and ALL for functions where a query begins with ``(``, or with TABLE."""
        kind = self.SUBQUERY_PREDICATES.get(self._curr.token_type)
        if kind is not None and self._next.token_type == TokenType.L_PAREN:
            start = self._index
            inside = self._tokens[start + 2].token_type if start + 2 < self._tokens_size else TokenType.SENTINEL
            if inside in (TokenType.L_PAREN, TokenType.TABLE):
                self._advance()
                operand = self._parse_paren()
                if isinstance(operand, exp.Subquery):
                    return self.expression(kind(this=operand.this))
                self._retreat(start)
        called: exp.Expr | None = super()._parse_function_call(*args, **kwargs)
        return called

    def _parse_csv(self, parse_method: Callable[[], T | None], sep: TokenType = TokenType.COMMA) -> list[T]:
        """sqlglot reads over a comma behind which nothing stands; in ALTER TABLE it counts on that."""
        items = [parse_method()]
        while self._match(sep):
            items.append(parse_method())
            if items[-1] is None and self._tokens[0].token_type != TokenType.ALTER:
                self.raise_error("Required keyword")
        return [item for item in items if item is not None]

    def _parse_select_query(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        """sqlglot makes ``SELECT *`` of a bare FROM."""
        if self._curr.token_type == TokenType.FROM:
            self.raise_error("Expecting SELECT")
        query: exp.Expr | None = super()._parse_select_query(*args, **kwargs)
        return query

    def _parse_ordered(self, parse_method: Callable[[], exp.Expr | None] | None = None) -> exp.Ordered | None:
        """The tree does not tell whether NULLS FIRST was written, or is the order without it."""
        ordered: exp.Ordered | None = super()._parse_ordered(parse_method)
        words = [token.text.upper() for token in self._tokens[max(0, self._index - 2) : self._index]]
        if ordered is not None and words in (["NULLS", "FIRST"], ["NULLS", "LAST"]):
            raise Unsupported("NULLS FIRST and NULLS LAST", hint="ORDER BY x IS NULL, x")
        return ordered

    def _parse_interval_span(self, this: exp.Expr, parse_function_unit: bool = True) -> exp.Interval:
        """sqlglot makes a text of every amount, and ``1.5`` DAY are two days, but ``'1.5'`` DAY is one."""
        before = self._index
        interval: exp.Interval = super()._parse_interval_span(this, parse_function_unit)
        if self._index == before:  # sqlglot takes a unit out of the text: INTERVAL '1 day'.
            self.raise_error("Expecting a unit")
        if this.is_number and not this.is_int:
            interval.set("this", this)
        return interval

    def _parse_describe(self) -> exp.Describe:
        """``DESCRIBE t c`` and ``DESCRIBE t 'pattern'``, which sqlglot does not know."""
        described: exp.Describe = super()._parse_describe()
        if isinstance(described.this, exp.Table):
            column = self._parse_string() or self._parse_id_var(any_token=False)
            described.set("like", exp.Literal.string(column.name) if isinstance(column, exp.Identifier) else column)
        return described

    def _parse_show_mysql(self, *args: Any, **kwargs: Any) -> exp.Show:
        """sqlglot reads over a LIKE behind which no pattern stands."""
        start = self._index
        shown: exp.Show = super()._parse_show_mysql(*args, **kwargs)
        chosen = (t for t in self._tokens[start : self._index] if t.token_type in (TokenType.LIKE, TokenType.WHERE))
        if next(chosen, self._prev).token_type == TokenType.LIKE and shown.args.get("like") is None:
            self.raise_error("Expecting a pattern")
        return shown

    def _show_create_database(self) -> exp.Show:
        self._match_text_seq("IF", "NOT", "EXISTS")
        return self._parse_show_mysql("CREATE DATABASE", target=True)

    def _show_columns(self, full: bool) -> exp.Show:
        if not self._match_set((TokenType.FROM, TokenType.IN)):
            self.raise_error("Expecting FROM")
        return self._parse_show_mysql("COLUMNS", target=True, full=full)

    def _parse_replace(self) -> exp.Expr:
        """``REPLACE INTO …`` is an ``exp.Insert`` whose ``alternative`` is ``REPLACE``."""
        insert: exp.Expr = self._parse_insert()
        insert.set("alternative", "REPLACE")
        return insert

    def _json_value(self) -> exp.Expr:
        """A plain call where nothing follows the path."""
        arguments = self._parse_csv(self._parse_assignment)
        type = None
        if self._match_text_seq("RETURNING"):
            type = self._parse_types(check_func=False, schema=False, allow_identifiers=False)
            self._expect(type, "a type")
        conditions = self._json_conditions()
        if type is None and conditions is None:
            return _called("JSON_VALUE", *arguments)
        self._expect(len(arguments) == 2, "a document and a path")
        return exp.JSONValue(this=arguments[0], path=arguments[1], returning=type, on_condition=conditions)

    def _parse_lateral(self) -> exp.Lateral | None:
        """JSON_TABLE as well, which may read what stands before it in FROM. sqlglot's own reading of it knows few of
        its columns' clauses."""
        if self._curr.text.upper() != "JSON_TABLE" or self._next.token_type != TokenType.L_PAREN:
            lateral: exp.Lateral | None = super()._parse_lateral()
            return lateral
        self._advance(2)
        document = self._parse_assignment()
        self._expect(self._match(TokenType.COMMA), ",")
        path, columns = self._json_path(), self._json_columns()
        self._match_r_paren()
        table = exp.JSONTable(this=document, path=path, schema=columns)
        return exp.Lateral(this=table, alias=self._parse_table_alias())

    def _parse_alter_table_rename(self) -> Any:
        """sqlglot knows no other word than TO before a table's name."""
        if self._match_set((TokenType.ALIAS, TokenType.EQ)):
            return self.expression(exp.AlterRename(this=self._parse_table(schema=True)))
        return super()._parse_alter_table_rename()  # type: ignore[no-untyped-call]

    def _parse_generated_as_identity(self) -> Any:
        """sqlglot takes ``GENERATED ALWAYS AS (a + 1)`` for an identity where VIRTUAL is left out."""
        found: exp.Expr = super()._parse_generated_as_identity()
        value = found.args.get("expression")
        if isinstance(found, exp.GeneratedAsIdentityColumnConstraint) and value is not None:
            return self.expression(exp.ComputedColumnConstraint(this=value, persisted=False))
        return found

    def _expect(self, found: object, what: str) -> None:
        if not found:
            self.raise_error(f"Expecting {what}")

    def _json_path(self) -> exp.Expr | None:
        path: exp.Expr | None = self._parse_string()
        self._expect(path, "a path in quotes")
        return path

    def _json_columns(self) -> exp.JSONSchema:
        self._expect(self._match_text_seq("COLUMNS"), "COLUMNS")
        self._match_l_paren()
        columns = self._parse_csv(self._json_column)
        self._expect(columns, "a column")
        self._match_r_paren()
        return exp.JSONSchema(expressions=columns)

    def _json_column(self) -> exp.JSONColumnDef | None:
        if self._match_text_seq("NESTED"):
            self._match_text_seq("PATH")
            return exp.JSONColumnDef(path=self._json_path(), nested_schema=self._json_columns())
        name = self._parse_id_var()
        if name is None:
            return None
        if self._match_text_seq("FOR", "ORDINALITY"):
            return exp.JSONColumnDef(this=name, ordinality=True)
        type = self._parse_types(check_func=False, schema=False, allow_identifiers=False)
        self._expect(type, "a type")
        exists = self._match_text_seq("EXISTS")
        self._expect(self._match_text_seq("PATH"), "PATH")
        column = exp.JSONColumnDef(this=name, kind=type, path=self._json_path())
        if exists:
            column.set("exists", True)
        else:
            column.set("on_condition", self._json_conditions())
        return column

    def _json_conditions(self) -> exp.OnCondition | None:
        """``NULL | ERROR | DEFAULT value``, ``ON EMPTY`` and ``ON ERROR``, each once."""
        found: dict[str, exp.Expr | None] = {}
        while self._curr and self._curr.text.upper() in ("NULL", "ERROR", "DEFAULT"):
            word = self._curr.text.upper()
            self._advance()
            value = {"NULL": exp.null, "ERROR": lambda: exp.var("ERROR"), "DEFAULT": self._parse_unary}[word]()
            self._expect(value, "a value")
            self._expect(self._match_text_seq("ON"), "ON")
            on = self._curr.text.lower()
            if on not in ("empty", "error") or on in found:
                self.raise_error("Expecting EMPTY or ERROR")
            self._advance()
            found[on] = value
        return exp.OnCondition(**found) if found else None

    def _json_table(self) -> NoReturn:
        raise Unsupported("JSON_TABLE outside of FROM", hint="(SELECT … FROM JSON_TABLE(…) AS t)")

    def _named_placeholder(self) -> exp.Expr | None:
        if not self._match_set(self.COLON_PLACEHOLDER_TOKENS):
            return None
        return self.expression(exp.Placeholder(this=self._prev.text), self._prev)

    def raise_error(self, message: str, token: Token | None = None) -> None:
        current = self._curr or None
        place = token or current or self._prev or None
        if place is None:
            raise Refusal(message, 0, None)
        at_end = token is None and current is None
        raise Refusal(message, place.end + 1 if at_end else place.start, None if at_end else place.text)

    def _parse_as_command(self, start: Token) -> NoReturn:
        """Name the word that the parser stumbled over, where sqlglot would keep the text as it is."""
        self.raise_error("Unexpected token")
        raise AssertionError("raise_error raises")

    def _warn_unsupported(self) -> None:
        """sqlglot logs here; whoever gets the ``exp.Command`` answers for it."""


class _Dialect(MySQL):
    class Tokenizer(MySQL.Tokenizer):
        COMMANDS = MySQL.Tokenizer.COMMANDS - {TokenType.REPLACE}
        """The tokens of statements that stay opaque; REPLACE is parsed."""


DIALECT = _Dialect()


def copied(tree: Tree) -> Tree:
    """A copy of a tree, to be changed. sqlglot's own takes three times as long, most of it for places in the text."""
    root = type(tree)()
    pending: list[tuple[exp.Expr, exp.Expr]] = [(tree, root)]
    for node, copy in pending:  # It grows meanwhile.
        if node._meta:
            copy._meta = node._meta.copy()
        if node.comments:
            copy.comments = node.comments.copy()
        args = copy.args
        for key, value in node.args.items():
            if isinstance(value, exp.Expr):
                args[key] = _begun(value, copy, key, None, pending)
            elif type(value) is list:
                args[key] = [
                    _begun(each, copy, key, at, pending) if isinstance(each, exp.Expr) else each
                    for at, each in enumerate(value)
                ]
            else:
                args[key] = value
    return root


def _begun(
    node: exp.Expr, parent: exp.Expr, key: str, index: int | None, pending: list[tuple[exp.Expr, exp.Expr]]
) -> exp.Expr:
    copy = type(node)()
    copy.parent, copy.arg_key, copy.index = parent, key, index
    pending.append((node, copy))
    return copy


# Walks over sqlglot's trees, without the identifiers: half of all nodes, below which is nothing.
#
# A new view's tree is gone through again and again, in search of parameters, aggregates, tables and hints. With
# sqlglot's own walks planning takes a tenth more.

_PLAIN = frozenset({str, bool, int, type(None), exp.Identifier})
"""Classes of most values in a tree's ``args``, where there is nothing to go down to: told faster than by isinstance."""


def children(node: exp.Expr) -> list[exp.Expr]:
    """The nodes directly below, in the order of the text."""
    found: list[exp.Expr] = []
    for value in node.args.values():
        if type(value) in _PLAIN:
            continue
        if type(value) is list:
            found += [each for each in value if type(each) not in _PLAIN and isinstance(each, exp.Expr)]
        elif isinstance(value, exp.Expr):
            found.append(value)
    return found


def nodes(tree: exp.Expr) -> Iterator[exp.Expr]:
    """All of a tree, the nearer ones first."""
    found = [tree]
    for node in found:  # It grows meanwhile.
        found += children(node)
        yield node
