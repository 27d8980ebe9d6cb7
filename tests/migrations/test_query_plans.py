"""SQL in, plan out: the pairs of ``plans.txt``, and what the graph and the reader promise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from domains.language.description import describe
from domains.language.types import Column
from domains.plan.graph import Join, Node, NodeIndex, ParameterKind, Project, Reader
from domains.plan.traits import traits_of
from migrations.catalog import Catalog
from migrations.flow.explain import tree_lines
from migrations.joint_graph.graph import JointGraph
from migrations.parse.reading import exp, parse, text_of
from migrations.query.view import PlannedView, frozen, plan_view
from migrations.statements.definitions.ddl import create_table
from migrations.statements.statement import CreateTableStatement
from tests.migrations.oracle import catalog, plan, with_view
from tests.sql_logic.records import Query, Statement, read_records

CATALOG = catalog()


def pairs() -> list[tuple[str, str, str]]:
    found = []
    for block in (Path(__file__).parent / "plans.txt").read_text().split("\n\n"):
        asked, _, expected = block.strip().partition("\n---\n")
        title, _, sql = asked.partition("\n")
        found.append((title.removeprefix("-- "), sql, expected))
    return found


def names_of(columns: Sequence[Column]) -> list[str]:
    """The columns' names, each with its position where it is not the only one of that name."""
    counts = Counter(column.name for column in columns)
    return [c.name if counts[c.name] == 1 else f"{c.name}@{i}" for i, c in enumerate(columns)]


def render(graph: JointGraph, root: NodeIndex) -> str:
    """The tree as EXPLAIN draws it, and what it leaves out: the names of what is computed, which nodes are read twice,
    and which have a row over nothing."""
    reads = Counter(parent for index in graph.ancestors(root) for parent in graph.node(index).parents)

    def named(node: Node) -> str:
        below = [names_of(graph.node(parent).columns) for parent in node.parents]
        number = f"#{node.index} " if reads[node.index] > 1 and node.parents else ""
        traits = traits_of(node.operator)
        if isinstance(node.operator, Project):
            pairs = zip(node.operator.expressions, node.columns, strict=True)
            return f"{number}π {', '.join(_output(describe(e, below[0]), column) for e, column in pairs)}"
        return f"{number}{traits.text(below)}{' (one row over nothing)' if traits.row_over_nothing else ''}"

    return "\n".join(tree_lines(root, graph.node, named, lambda _: ""))


def _output(text: str, column: Column) -> str:
    return text if column.name in (text, text.partition("@")[0]) else f"{text} → {column.name}"


def reader_text(graph: JointGraph, view: PlannedView) -> list[str]:
    names, reader = names_of(graph.node(view.root).columns), view.reader
    lines = [f"key {', '.join(names[i] for i in reader.key)}"] if reader.key else []
    lines += [f"seek {', '.join(names[i] for i in reader.seek)}"] if reader.seek else []
    lines += [f"limit {reader.limit}"] if reader.limit is not None else []
    return lines + ([f"empty {reader.empty}"] if reader.empty is not None else [])


@pytest.mark.parametrize(("title", "sql", "expected"), pairs(), ids=lambda value: value[:40])
def test_plan(title: str, sql: str, expected: str) -> None:
    graph, view = plan(sql, CATALOG)
    assert "\n".join([render(graph, view.root), *reader_text(graph, view)]) == expected, title


def reader_of(sql: str) -> tuple[PlannedView, Reader]:
    _, view = plan(sql, CATALOG)
    return view, view.reader


def test_parameters_are_named_after_their_columns() -> None:
    view, reader = reader_of(
        "SELECT a.title FROM stories a, stories b WHERE a.id = ? AND b.id = ? AND a.author = b.author "
        "AND a.score BETWEEN ? AND ? AND b.score > ? AND b.title = :name ORDER BY a.id LIMIT ? OFFSET ?"
    )
    names = ["id", "id_2", "score_min", "score_max", "score", "name", "limit", "offset"]
    assert [parameter.name for parameter in view.parameters] == names
    assert view.placeholders == tuple(range(8))
    assert reader.parameters == view.parameters
    assert [column.name for column in view.columns] == ["title"]
    assert len(reader.key) == 3
    assert len(reader.seek) == 1  # The second range is applied when the rows are read.


def test_a_name_that_is_compared_twice_is_one_parameter() -> None:
    of_late_groups = (
        "SELECT x.n FROM (SELECT boss, author, COUNT(*) AS n FROM users JOIN stories ON author = users.id "
        "WHERE score > :i GROUP BY boss, author) x WHERE "
    )
    for condition in ("x.boss = :b AND x.n = :b", "x.boss = :b AND x.author = :b", "x.boss BETWEEN :b AND :b"):
        view, _ = reader_of(of_late_groups + condition)
        assert {parameter.name for parameter in view.parameters} == {"i", "b"}, condition


def test_joined_rows_are_kept_with_what_is_read_and_their_keys() -> None:
    joined = (
        "FROM stories s JOIN (SELECT story_id, COUNT(*) AS n FROM votes WHERE user > ? GROUP BY story_id) x "
        "ON x.story_id = s.id JOIN users u ON u.id = s.author WHERE x.n > ?"
    )
    for shown, more in (("x.n", set()), ("u.name", {"name"}), ("x.n, s.title", {"title"})):
        view, _ = reader_of(f"SELECT {shown} {joined}")
        assert view.finish is not None
        kept = {column.name for column in view.finish.stored}
        assert kept == {"id", "id_2", "story_id", "user", "count_rows", *more}, kept


def test_an_in_list_is_one_parameter() -> None:
    view, reader = reader_of("SELECT title FROM stories WHERE author IN (?) AND id = ?")
    assert [(p.name, p.kind) for p in view.parameters] == [("author", ParameterKind.IN), ("id", ParameterKind.EQUAL)]
    assert view.placeholders == (0, 1)
    assert len(reader.key) == 2


def test_one_column_compared_twice_is_in_the_key_once() -> None:
    view, reader = reader_of("SELECT title FROM stories WHERE id = ? AND id = ?")
    assert [p.name for p in view.parameters] == ["id", "id_2"]
    assert len(reader.key) == 1


def test_parameters_of_a_view_come_where_its_name_stands() -> None:
    known = with_view(catalog(), "CREATE VIEW Mine AS SELECT id, author FROM stories WHERE score = ? AND title = ?")
    _, view = plan("SELECT m.id FROM users u JOIN Mine m ON m.author = u.id WHERE u.name = ?", known)
    assert [p.name for p in view.parameters] == ["score", "title", "name"]
    _, twice = plan("SELECT m.id FROM Mine m JOIN Mine n ON m.author = n.author", known)
    assert [p.name for p in twice.parameters] == ["score", "title", "score_2", "title_2"]


def test_visible_columns_have_unique_names() -> None:
    view, _ = reader_of(
        "SELECT s.id, u.id, s.id AS ID, COUNT(*) FROM stories s JOIN users u ON u.id = s.author GROUP BY 1, 2"
    )
    assert [column.name for column in view.columns] == ["id", "id_2", "ID_3", "COUNT(*)"]


def test_tables_and_hidden_columns() -> None:
    graph, view = plan("SELECT title FROM StoriesWithVC WHERE vcount = ? ORDER BY id", CATALOG)
    assert view.tables == {"stories", "votes"}
    assert [c.name for c in view.columns] == ["title"]
    assert len(graph.node(view.root).columns) == 3


def test_the_same_recipe_gives_the_same_graph() -> None:
    texts = [sql for _, sql, _ in pairs()]
    one, other = JointGraph(), JointGraph()
    for graph in (one, other):
        for i, sql in enumerate(texts):
            plan_view(CATALOG, graph, f"v{i}", parse(sql)[0].expression)
    assert list(one) == list(other)


def test_planning_again_adds_nothing() -> None:
    graph = JointGraph()
    statement = parse("SELECT id, vcount FROM StoriesWithVC WHERE id = ?")[0].expression
    first = plan_view(CATALOG, graph, "a", statement)
    size = len(graph)
    assert plan_view(CATALOG, graph, "b", statement).root == first.root
    assert len(graph) == size


def test_a_refused_view_adds_nothing() -> None:
    graph = JointGraph()
    with pytest.raises(Exception, match="unknown column"):
        plan_view(CATALOG, graph, "a", parse("SELECT id FROM StoriesWithVC WHERE nope = 1")[0].expression)
    assert len(graph) == 0


def test_a_copy_is_independent_and_numbers_are_not_used_again() -> None:
    graph, view = plan("SELECT title FROM stories WHERE id = ?", CATALOG)
    twin = graph.copy()
    assert twin.children(graph.node(view.root).parents[0]) == (view.root,)
    twin.remove(view.root)
    assert view.root in graph
    assert view.root not in twin
    again = plan_view(CATALOG, twin, "v", parse("SELECT title FROM stories WHERE id = ?")[0].expression)
    assert again.root > view.root


@pytest.mark.parametrize(
    ("sql", "written"),
    [
        ("SELECT * FROM tags", "SELECT `tags`.`story_id`, `tags`.`tag`, `tags`.`weight` FROM tags"),
        ("SELECT t.*, 1 FROM vacant AS t", "SELECT `t`.`x`, `t`.`y`, 1 FROM vacant AS t"),
        (
            "SELECT * FROM (SELECT * FROM vacant) AS v",
            "SELECT `v`.`x`, `v`.`y` FROM (SELECT `vacant`.`x`, `vacant`.`y` FROM vacant) AS v",
        ),
        (
            "SELECT tag FROM votes NATURAL JOIN tags",
            "SELECT tag FROM votes JOIN tags USING (`story_id`)",
        ),
        ("SELECT COUNT(*) FROM vacant", "SELECT COUNT(*) FROM vacant"),
        ("SELECT * FROM Titles", "SELECT `Titles`.`story`, `Titles`.`words` FROM Titles"),
    ],
)
def test_frozen_views_have_no_star(sql: str, written: str) -> None:
    query = parse(sql)[0].expression
    assert isinstance(query, exp.Query)
    kept, meaning = frozen(CATALOG, query)
    assert text_of(kept) == written
    assert (meaning is None) == (written != sql)
    assert text_of(query) == sql


def test_tpc_h_19_is_joined_by_its_key() -> None:
    """In its standard text, of which ``tests/sql_logic`` has the answer: 16 M pairs of rows a second are no plan."""
    records = read_records(Path(__file__).parents[1] / "sql_logic" / "cases" / "tpch_19.test")
    known = Catalog()
    for record in records[:2]:
        assert isinstance(record, Statement)
        [parsed] = parse(record.sql)
        statement = create_table(parsed, known)
        assert isinstance(statement, CreateTableStatement)
        known = known.with_table(statement.schema)
    [sql] = [each.sql for each in records if isinstance(each, Query) and "revenue" in each.sql]
    graph, _ = plan(sql, known)
    joins = [node.operator for node in graph if isinstance(node.operator, Join)]
    assert [(join.left_on, join.right_on) for join in joins] == [((2,), (0,))]


@pytest.mark.parametrize(
    ("sql", "key", "done"),
    [
        (  # TPC-H 22: two parts of one reader, and no parameter that both have.
            "SELECT COUNT(*) FROM users WHERE boss IN (?) AND karma > (SELECT AVG(karma) FROM users WHERE boss IN (?))",
            0,
            [
                "γ ()",
                "σ part = 0 AND karma > ?",
                "for a subquery: γ ()",
                "for a subquery: σ part = 1 AND boss_2 IN (?)",
            ],
        ),
        (  # One name is a key of both.
            "SELECT id FROM users WHERE boss = :b AND id NOT IN (SELECT karma FROM users WHERE boss = :b AND id > ?)",
            1,
            ["σ part = 0", "for a subquery: σ part = 1 AND id_2 > ?"],
        ),
        (  # TPC-H 20: the joined rows, by the key of what is around.
            "SELECT u.id FROM users u WHERE u.name = ? AND u.id IN (SELECT s.author FROM stories s WHERE s.score > "
            "(SELECT SUM(t.weight) FROM tags t WHERE t.story_id = s.id AND t.tag LIKE ?))",
            1,
            ["γ id", "σ score > SUM(", "γ id", "σ tag LIKE ?"],
        ),
        (  # TPC-H 11: NULL where there is none, and so a row that is joined.
            "SELECT author FROM stories WHERE title = ? GROUP BY author "
            "HAVING SUM(score) > (SELECT SUM(score) * ? FROM stories WHERE title = ?)",
            2,
            ["σ "],
        ),
    ],
)
def test_what_is_asked_first_and_what_is_joined(sql: str, key: int, done: list[str]) -> None:
    view, reader = reader_of(sql)
    assert view.finish is not None
    assert len(reader.key) == key
    steps = view.finish.described()
    places = [next(at for at, step in enumerate(steps) if step.startswith(part)) for part in done]
    assert places, steps
    assert len(view.finish.answers) == any(step.startswith("for a subquery") for step in steps)
