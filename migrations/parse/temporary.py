"""Temporary tables: each of one session, under a name that no other session can know.

::

    SELECT * FROM orders           in a session that has a temporary table orders
         │ said_by_session()       its text with the hidden database, so that no pass beyond has to know of sessions
         ▼
    SELECT * FROM `#5f3e…#headrace`.orders

The hidden database of a session has the session's secret and the database that the table stands in for. It is in no
list, and whoever knows its name has all rights on what is in it. The catalog stores such a table under another name,
``#1.orders``, of which there are only so many: logs, archives and the recipe tell generations of a name apart.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from migrations.parse.grammar import SCHEMA
from migrations.parse.namespaces import is_deleted_from, names_in_place, tables_read
from migrations.parse.reading import Parsed, exp, parse, quote
from migrations.parse.respelling import with_executed_comments

MARK = "#"
"""What hidden names begin with. Without quotes it begins a comment."""
MAKES_TEMPORARY = re.compile(r"\b(?:CREATE|DROP)\s+TEMPORARY\b", re.IGNORECASE)
_NAME = r"(?:`(?:[^`]|``)+`|[\w$]+)"
_HEAD = re.compile(rf"({_NAME})")
_DATABASE = re.compile(rf"{_NAME}\s*\.\s*")
_FIRST = re.compile(rf"`?{SCHEMA}`?\s*\.\s*\Z", re.IGNORECASE)
_SHOWN = re.compile(
    rf"(?P<before>\s*SHOW\s+(?:CREATE\s+TABLE|(?:[A-Z]+\s+)*?(?:COLUMNS|FIELDS|INDEX|INDEXES|KEYS)\s+(?:FROM|IN))\s+)"
    rf"(?:(?P<schema>{_NAME})\s*\.\s*)?(?P<name>{_NAME})(?:\s+(?:FROM|IN)\s+(?P<of>{_NAME}))?",
    re.IGNORECASE,
)


def hidden_schema(session: str, schema: str) -> str:
    return f"{MARK}{session}{MARK}{schema.lower()}"


def is_hidden(title: str) -> bool:
    """Whether this is a temporary table's name, or that of a hidden database."""
    return title.startswith(MARK)


def plain_name(title: str) -> str:
    """The name that the table's own session has for it, for all but its first database with that before it."""
    if not is_hidden(title):
        return title
    hidden, _, name = title.partition(".")
    schema = hidden.rpartition(MARK)[2]
    return name if schema == SCHEMA else f"{schema}.{name}"


def plainly(text: str) -> str:
    """A message without hidden names."""
    return _IN_TEXT.sub(lambda found: "" if found["schema"] in (None, SCHEMA) else f"{found['schema']}.", text)


_IN_TEXT = re.compile(rf"`?{MARK}(?:[0-9a-f]{{16}}{MARK}(?P<schema>[^`.\s]+)|\d+)`?\.")


def is_temporary_definition(parsed: Parsed) -> bool:
    """CREATE TEMPORARY TABLE, or DROP TEMPORARY TABLE, which commit nothing."""
    node = parsed.expression
    if isinstance(node, exp.Drop):
        return bool(node.args.get("temporary"))
    properties = node.args.get("properties") if isinstance(node, exp.Create) else None
    return properties is not None and any(isinstance(each, exp.TemporaryProperty) for each in properties.expressions)


def said_by_session(sql: str, session: str, schema: str, known: Collection[str]) -> tuple[str, set[str]]:
    """The text with the hidden database before each name that means a temporary table of the session to it, and the
    titles of those that it makes. ``known`` are titles of those that are there, in lower case.

    :raises HeadraceError: as ``parse`` does.
    """
    known, made = set(known), set[str]()
    head = names_in_place(sql)
    if head and (named := _HEAD.match(sql, len(head))) is not None:
        hidden = hidden_schema(session, schema)
        is_own = f"{hidden}.{_unquoted(named[1]).lower()}" in known
        return (f"{head}{quote(hidden)}.{sql[len(head) :]}" if is_own else sql), made
    text = with_executed_comments(sql)[0] if "/*!" in sql or "/*H!" in sql else sql
    parts, at = [], 0
    for parsed in parse(text):
        for begin, end, hidden in _places(text, parsed, session, schema, known, made):
            parts += [text[at:begin], hidden]
            at = end
    return "".join([*parts, text[at:]]), made


def _places(
    text: str, parsed: Parsed, session: str, schema: str, known: set[str], made: set[str]
) -> list[tuple[int, int, str]]:
    """What is to be replaced by what, in order. ``known`` and ``made`` are brought up to date."""
    tree = parsed.expression
    if parsed.account is not None or parsed.policy is not None or parsed.transaction is not None:
        return []
    if parsed.sql not in text:  # RENAME TABLE, which is of other tables, as in MySQL.
        return []
    if isinstance(tree, exp.Show):
        return _of_show(text, text.find(parsed.sql), session, schema, known)
    defines, found = is_temporary_definition(parsed), []
    altered = False
    for table in _named(tree):
        start = int(table.this.meta.get("start", -1)) if table.this._meta else -1
        written = table.meta.get("schema")
        hidden = hidden_schema(session, written or schema)
        title = f"{hidden}.{table.name.rpartition('.')[2] if written else table.name}".lower()
        is_target = _is_target(tree, table)
        if is_target and isinstance(tree, exp.Create) and tree.args.get("kind") == "TABLE":
            is_own = defines
        else:
            is_own = title in known or (is_target and defines) or altered
        if not is_own or start < 0:
            continue
        altered = altered or (is_target and isinstance(tree, exp.Alter))
        begin = end = start
        if written == SCHEMA and (database := _FIRST.search(text, 0, start)) is not None:
            begin = database.start()
        elif written and (database := _DATABASE.match(text, start)) is not None:
            end = database.end()
        found.append((begin, end, f"{quote(hidden)}."))
        if is_target and isinstance(tree, exp.Drop) and tree.args.get("kind") == "TABLE":
            known.discard(title)
        elif is_target and isinstance(tree, exp.Create) and defines:
            known.add(title)
            made.add(title)
    return sorted(found)


def _of_show(text: str, start: int, session: str, schema: str, known: set[str]) -> list[tuple[int, int, str]]:
    shown = _SHOWN.match(text, max(start, 0))
    if shown is None:
        return []
    hidden = hidden_schema(session, _unquoted(shown["of"] or shown["schema"] or schema))
    if f"{hidden}.{_unquoted(shown['name']).lower()}" not in known:
        return []
    return [(shown.end("before"), shown.end(), f"{quote(hidden)}.{shown['name']}")]


def _named(tree: exp.Expr) -> Iterator[exp.Expr]:
    """The tables that a statement names and that may be temporary ones, the one first that it defines."""
    is_index = isinstance(tree, exp.Drop) and str(tree.args.get("kind")).upper() == "INDEX"
    tables = sorted(tables_read(tree), key=lambda table: not _is_target(tree, table))
    for table in tables:
        if is_deleted_from(table) or table.find_ancestor(exp.Reference) or (is_index and table.arg_key == "tables"):
            continue
        if table.name.lower() != "dual":
            yield table


def _is_target(tree: exp.Expr, table: exp.Expr) -> bool:
    if isinstance(tree, exp.Drop):
        return table.arg_key == "tables"
    made = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    return isinstance(tree, (exp.Create, exp.Alter)) and table is made


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name
