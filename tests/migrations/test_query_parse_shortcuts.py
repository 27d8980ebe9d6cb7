"""The parser's short ways, and the walks over its trees: to the same as sqlglot's own."""

from __future__ import annotations

from random import Random
from re import findall
from typing import Any

import pytest

from domains.errors import HeadraceError
from migrations.parse.reading import children, exp, nodes, parse, parse_select
from migrations.parse.syntax import Parser
from tests.migrations.query_cases import read_cases

QUERIES = [case.sql for name in ("queries.txt", "queries_in_order.txt") for case in read_cases(name)]
ODD = (
    "SELECT @@ FROM stories",
    "SELECT binary, id FROM stories",
    "SELECT id /* one */, title /* two */ FROM stories WHERE id /* three */ = 1 /* four */ AND author = ?",
    "SELECT _utf8'a', 'a' 'b', -id, id - 1 AS less, CURRENT_DATE, stories.*, a.b.c FROM stories",
    "SELECT id FROM stories WHERE title SOUNDS LIKE 'a' XOR id = 1 AND id << 1 = 2 AND (id IS NULL) = 0",
    "SELECT id limit, title offset FROM stories LIMIT 1",
    "SELECT title COLLATE utf8_bin FROM stories WHERE title COLLATE utf8_bin = 'a'",
    "SELECT id, FROM stories",
    "SELECT id FROM stories WHERE stories.",
)
INSERTED = (
    *(",", "(", ")", ".", "*", "=", "-", "<<", ":=", "/*c*/", "'x'", "1"),
    *("AS", "NOT", "AND", "IN", "FROM", "LIMIT", "IS NULL", "BETWEEN", "BINARY", "COLLATE", "INTERVAL"),
)


def mutated(texts: list[str], seed: int) -> list[str]:
    """The same texts with a word too much, too few, or another one: most are none, and are to be refused alike."""
    random = Random(seed)
    made = []
    for text in texts:
        words = findall(r"\w+|\s+|[^\w\s]", text)
        at = random.randrange(len(words))
        words[at : at + random.randrange(2)] = random.choice(
            [[], [f" {random.choice(INSERTED)} "], [random.choice(words)]]
        )
        made.append("".join(words))
    return made


def shown(value: Any) -> Any:
    """All of a tree, with its comments and places."""
    if isinstance(value, exp.Expr):
        arguments = [(name, shown(each)) for name, each in value.args.items() if each]
        return type(value), arguments, value.comments, value._meta
    return [shown(each) for each in value] if isinstance(value, list) else value


def outcome(sql: str) -> Any:
    try:
        return [(shown(parsed.expression), parsed.sql, parsed.query) for parsed in parse(sql)]
    except HeadraceError as error:
        return type(error), str(error)


def test_the_short_ways_parse_what_the_long_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    seed = 1
    texts = [*QUERIES, *ODD, *mutated([*QUERIES, *ODD], seed)]
    texts += [f"CREATE VIEW v AS {sql}" for sql in QUERIES]
    short = [outcome(sql) for sql in texts]
    monkeypatch.setattr(Parser, "_atom_before", lambda self, ends: None)
    for sql, found in zip(texts, short, strict=True):
        assert found == outcome(sql), (seed, sql)


@pytest.mark.parametrize("sql", QUERIES[::7])
def test_walks_leave_out_identifiers_alone(sql: str) -> None:
    tree = parse_select(sql)
    found = [node for node in tree.bfs() if not isinstance(node, exp.Identifier)]
    assert [id(node) for node in nodes(tree)] == [id(node) for node in found]
    for node in found:
        below = [child for child in node.iter_expressions() if not isinstance(child, exp.Identifier)]
        assert [id(child) for child in children(node)] == [id(child) for child in below]
