"""The door to sqlglot, the catalog, and SELECT without FROM."""

from __future__ import annotations

from decimal import Decimal

import pytest

from domains.errors import SqlError, SqlSyntaxError, UnknownName
from domains.language.types import BIGINT, TableColumn, TableSchema
from migrations.catalog import Catalog, names_read
from migrations.parse.reading import exp, parse, parse_select, position, quote
from migrations.parse.syntax import copied
from migrations.query.expressions.literals import text
from migrations.query.expressions.scalar import Setting
from migrations.query.select import constant_select, reads_nothing
from tests.migrations.oracle import catalog, with_view
from tests.migrations.query_cases import read_cases

LISTING = """
/* base tables */
CREATE TABLE stories (id int, author int, title text);
CREATE TABLE votes (user int, story_id int);
/* internal view: vote count per story */
CREATE VIEW VoteCount AS
  SELECT story_id, COUNT(*) AS vcount
  FROM votes GROUP BY story_id;
/* external view: story details with vote count */
CREATE EXT VIEW StoriesWithVC AS
  SELECT id, author, title, vcount
  FROM stories JOIN VoteCount ON (stories.id = VoteCount.story_id)
  WHERE stories.id = ?;
"""


def test_the_listing_of_the_thesis_parses_as_printed() -> None:
    statements = parse(LISTING)
    assert [type(s.expression) for s in statements] == [exp.Create] * 4
    assert [s.external for s in statements] == [False, False, False, True]
    assert statements[1].sql == "CREATE TABLE votes (user int, story_id int)"


def test_a_view_may_be_called_ext() -> None:
    [statement] = parse("CREATE VIEW ext AS SELECT 1")
    assert not statement.external


def test_replace_is_an_insert() -> None:
    [statement] = parse("REPLACE INTO t VALUES (1, ';')")
    assert isinstance(statement.expression, exp.Insert)
    assert statement.expression.args["alternative"] == "REPLACE"


def test_functions_keep_their_names() -> None:
    query = parse_select("SELECT DATE_FORMAT(a, '%Y'), LEFT(a, 1), now() FROM t")
    assert [f.name.lower() for f in query.find_all(exp.Anonymous)] == ["date_format", "left", "now"]


def test_placeholders_know_where_they_stand() -> None:
    query = parse_select("SELECT a FROM t WHERE a = ? AND b IN (:x, ?) LIMIT ?, ?")
    places = sorted(position(p) for p in query.find_all(exp.Placeholder))
    assert places == [26, 39, 42, 51, 54]


def test_quoted_names_read_back() -> None:
    name = "a`b; -- c"
    assert parse_select(f"SELECT {quote(name)} FROM t").expressions[0].name == name


def test_names_read_leaves_out_ctes() -> None:
    query = parse_select(
        "WITH a AS (SELECT * FROM b), c AS (SELECT * FROM a) SELECT * FROM c JOIN D ON 1 WHERE x IN (SELECT y FROM e)"
    )
    assert names_read(query) == {"b", "d", "e"}
    assert names_read(parse_select("WITH t AS (SELECT * FROM t) SELECT * FROM t")) == {"t"}


def test_catalog_is_a_value() -> None:
    table = TableSchema("Stories", (TableColumn("id", BIGINT),))
    empty = Catalog()
    full = empty.with_table(table)
    assert not empty.tables
    assert full.table("STORIES") is table
    assert full.relation("stories") is table
    dropped = full.without_table("stories")
    assert not dropped.tables
    assert dropped.dropped == {"stories": 1}, "its successor is another table"
    with pytest.raises(UnknownName, match="did you mean"):
        full.table("storys")


def test_dependents_are_transitive() -> None:
    known = with_view(catalog(), "CREATE VIEW Deep AS SELECT * FROM StoriesWithVC UNION ALL SELECT *, 1 FROM Titles")
    assert known.dependents("VOTES") == ("VoteCount", "StoriesWithVC", "Deep")
    assert known.dependents("Titles") == ("Deep",)
    assert known.dependents("Deep") == ()


def test_select_without_from() -> None:
    query = parse_select("SELECT 1 + 1 AS two, 7 / 2, 'x', NULL, ? FROM dual WHERE 1 < 2")
    assert reads_nothing(query)
    setting = Setting(placeholder=lambda _node: text("p"))
    answer = constant_select(query, setting)
    assert answer.rows == ((2, Decimal("3.5000"), "x", None, "p"),)
    assert [column.name for column in answer.columns][:2] == ["two", "7 / 2"]
    assert constant_select(parse_select("SELECT 1 WHERE 1 > 2")).rows == ()
    assert constant_select(parse_select("SELECT 1 LIMIT 0")).rows == ()
    with pytest.raises(SqlError, match="the SELECT list is empty"):
        constant_select(parse_select("SELECT"))
    assert not reads_nothing(parse_select("SELECT 1 FROM t"))


def test_now_is_what_the_caller_says() -> None:
    setting = Setting(now="2026-01-31 08:00:00")
    query = parse_select(
        "SELECT NOW(), CURDATE(), DATE_ADD(NOW(), INTERVAL 1 DAY), CURRENT_TIMESTAMP - INTERVAL 1 HOUR"
    )
    assert constant_select(query, setting).rows == (
        ("2026-01-31 08:00:00", "2026-01-31", "2026-02-01 08:00:00", "2026-01-31 07:00:00"),
    )


def test_values_is_a_function_on_duplicate_key() -> None:
    [statement] = parse("INSERT INTO t (a) VALUES (1) ON DUPLICATE KEY UPDATE a = (VALUES(a) + -1), b = VALUES(b)")
    conflict = statement.expression.args["conflict"]
    assert [call.name for call in conflict.find_all(exp.Anonymous)] == ["VALUES", "VALUES"]


@pytest.mark.parametrize("sql", ["SHOW TABLE", "SHOW CREATE", "ALTER TABLE t DEFAULT SET a = 1"])
def test_texts_that_sqlglot_trips_over(sql: str) -> None:
    with pytest.raises(SqlSyntaxError, match="line 1, column"):
        parse(sql)


def test_show_views_among_other_statements() -> None:
    assert [type(each.expression) for each in parse("SELECT 1; SHOW VIEWS; SHOW TABLES")] == [
        exp.Select,
        exp.Show,
        exp.Show,
    ]


def test_a_copy_of_a_tree_is_the_one_that_sqlglot_makes() -> None:
    """Of all kinds of nodes that there are cases of, with places and comments, and nothing of it shared."""
    texts = [case.sql for name in ("queries.txt", "queries_beyond_sqlite.txt") for case in read_cases(name)]
    seen: set[type[exp.Expr]] = set()
    for sql in (*texts, "SELECT /*+ PARTIAL_BY(a) */ a /* of it */ FROM t -- behind\nWHERE b = ?"):
        tree = parse_select(sql)
        _same_but_another(copied(tree), tree.copy(), None)
        _same_but_another(copied(tree), tree, None)
        seen |= {type(node) for node in tree.walk()}
    assert len(seen) > 60


def _same_but_another(made: exp.Expr, other: exp.Expr, parent: exp.Expr | None) -> None:
    assert type(made) is type(other)
    assert made is not other
    assert made.parent is parent
    assert (made.arg_key, made.index, made.type) == (other.arg_key, other.index, other.type)
    assert (made.meta, made.comments or []) == (other.meta, other.comments or [])
    assert made.meta is not other.meta
    assert list(made.args) == list(other.args)
    for ours, its in zip(made.args.values(), other.args.values(), strict=True):
        assert type(ours) is type(its)
        pairs = zip(ours, its, strict=True) if isinstance(ours, list) else ((ours, its),)
        for one, another in pairs:
            if isinstance(one, exp.Expr):
                _same_but_another(one, another, made)
            else:
                assert one == another
