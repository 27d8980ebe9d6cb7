"""How large a text is in each way that makes reading it long, found out before it is read.

A parser makes objects of everything, at some 5 µs a byte, and a text of a megabyte may keep it busy for minutes. This
looks at brackets, commas, operators and a few words only, at a hundredth of that, and stops at the first limit that is
passed. What it takes for a list may be none (a wrong text): then the parser says what is wrong, after a bounded time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from domains.errors import LimitExceeded


@dataclass(frozen=True, slots=True)
class SqlLimits:
    """Each is a setting."""

    max_sql_size: int = 2_000_000
    """The most characters of SQL: twice as much as mysqldump, and PyMySQL's executemany, write into one INSERT."""
    max_statements: int = 1_000
    max_list_items: int = 10_000
    max_select_columns: int = 1_000
    max_joins: int = 60
    """Joins that a SELECT has, with those of its subqueries: as in MySQL, where 61 tables may be joined. Planning takes
    time that grows with the square of it: some 2 s for so many."""
    max_subquery_rows: int = 100_000
    """Rows that ``IN (SELECT …)`` of a write gives, compiled as constants of it."""
    max_nesting: int = 32
    """The parser is recursive, and meets Python's limit at 34 levels of calls, or 54 of subqueries."""


@dataclass(slots=True)
class TextSize:
    statements: int = 0
    first: str = ""
    """The first word, in capitals."""
    selects: bool = False


_PARTS = re.compile(
    r"""'[^'\\]*(?:\\.[^'\\]*)*'?|"[^"\\]*(?:\\.[^"\\]*)*"?|`[^`]*`?
    |--(?=\s|$)[^\n]*|\#[^\n]*|/\*(?!!).*?(?:\*/|\Z)
    |[(),;]|[-+*/%<>=|&^!~]+|[A-Za-z_$][\w$]*""",
    re.DOTALL | re.VERBOSE,
)
_LIST, _SELECT, _ROWS, _TABLES = range(4)
_BEGINS = {
    "SELECT": _SELECT,
    "VALUES": _ROWS,
    "FROM": _TABLES,
    **dict.fromkeys(("WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "SET", "ON"), _LIST),
}
_OPERATORS = frozenset(("AND", "OR", "XOR", "NOT", "UNION", "EXCEPT", "INTERSECT", "JOIN", "WHEN", "LIKE", "IS", "DIV"))
_SETS = frozenset(("UNION", "EXCEPT", "INTERSECT"))
_TABLES_FOLLOW = frozenset(("FROM", "JOIN", ",", "("))
_COMMENTS = ("--", "#", "/*")


def check_length(sql: str, limits: SqlLimits) -> None:
    """:raises LimitExceeded: of a text that is not even to be looked at."""
    size = len(sql) if sql.isascii() else len(sql.encode("utf-8", "surrogatepass"))
    if size > limits.max_sql_size:
        raise _passed("the SQL text", "max_sql_size", f"{limits.max_sql_size} bytes", "send several")


def measure(sql: str, limits: SqlLimits) -> TextSize:
    """:raises LimitExceeded: with the limit's name."""
    found = TextSize()
    lists = {
        _LIST: limits.max_list_items,
        _SELECT: limits.max_select_columns,
        _ROWS: len(sql),
        _TABLES: limits.max_list_items,
    }
    kinds, items, operators, joins = [_LIST], [1], [0], [0]
    begun, before = False, ""
    for part in _PARTS.finditer(sql):
        text = part[0]
        first = text[0]
        if first == ",":
            items[-1] += 1
            if items[-1] > lists[kinds[-1]]:
                raise _too_many(kinds[-1], limits)
            joins[-1] += kinds[-1] == _TABLES
        elif first == "(":
            if len(items) > limits.max_nesting:
                raise _passed("brackets nest", "max_nesting", f"{limits.max_nesting} levels", "split it into views")
            kinds.append(_TABLES if kinds[-1] == _TABLES and before in _TABLES_FOLLOW else _LIST)
            items.append(1)
            operators.append(0)
            joins.append(0)
        elif first == ")":
            if len(items) > 1:
                kinds.pop(), items.pop(), operators.pop()
                joins[-2:] = [sum(joins[-2:])]
        elif first == ";":
            kinds, items, operators, joins = [_LIST], [1], [0], [0]
            begun = False
        elif text.startswith(_COMMENTS):
            continue
        elif first.isalpha() or first in "_$":
            word = text.upper()
            if not begun:
                begun = True
                found.statements += 1
                found.first = found.first or word
                if found.statements > limits.max_statements:
                    raise _passed("the text", "max_statements", f"{limits.max_statements} statements", "send several")
            if word in _BEGINS:
                kinds[-1], items[-1] = _BEGINS[word], 1
                if word == "SELECT":
                    found.selects = True
                    joins[-1] = 0
            elif word in _OPERATORS:
                operators[-1] += 1
                joins[-1] = 0 if word in _SETS else joins[-1] + (word == "JOIN")
        elif first not in "'\"`":
            operators[-1] += 1
        before = text.upper()
        if joins[-1] > limits.max_joins:
            raise _passed("a SELECT", "max_joins", f"{limits.max_joins} joins", "split it into views")
        if operators[-1] > limits.max_list_items:
            raise _too_many(_LIST, limits)
    return found


def _too_many(kind: int, limits: SqlLimits) -> LimitExceeded:
    if kind == _SELECT:
        columns = f"{limits.max_select_columns} columns"
        return _passed("a SELECT", "max_select_columns", columns, "select fewer")
    items = f"{limits.max_list_items} items or operators"
    return _passed("a list", "max_list_items", items, "send them in several statements, or as keys of a look-up")


def too_many_rows(rows: int, most: int) -> LimitExceeded:
    what = f"a subquery of a write gives {rows} rows, which"
    return _passed(what, "max_subquery_rows", f"{most} rows", "write by a join, or in several statements")


def _passed(what: str, name: str, limit: str, hint: str) -> LimitExceeded:
    verb = "deeper than" if what.endswith("nest") else "exceeds"
    return LimitExceeded(f'{what} {verb} "{name}", {limit}', hint=f"{hint}, or start the server with a greater {name}")
