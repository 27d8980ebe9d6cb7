"""Ad-hoc SELECTs as views: their text, their arguments, and that the planner takes them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domains.errors import BadRequest, HeadraceError, SqlError, Unsupported
from domains.plan.graph import ParameterKind
from migrations.joint_graph.graph import JointGraph
from migrations.query.expressions.scalar import scalar
from migrations.query.expressions.scope import Scope
from migrations.query.expressions.terms import value_of
from migrations.query.view import PlannedView, plan_view
from migrations.statements.adhoc.shapes_of_selects import (
    AdHoc,
    exact_arguments,
    parameterise,
    shape_text,
    verbatim,
)
from migrations.statements.statement import SelectStatement
from migrations.statements.subqueries import literal_node
from tests.migrations.statement_catalog import CATALOG, one


def select(sql: str, *params: Any) -> SelectStatement:
    statement = one(sql, *params)
    assert isinstance(statement, SelectStatement)
    return statement


def ad_hoc(sql: str, *params: Any) -> AdHoc:
    statement = select(sql, *params)
    return parameterise(statement.query, CATALOG, statement.params)


def planned(view: AdHoc) -> PlannedView:
    definition = view.definition()
    assert (definition.external, definition.ad_hoc) == (True, True)
    return plan_view(CATALOG, JointGraph(), view.name, definition.relation)


TURNED: list[tuple[str, tuple[Any, ...], str, tuple[Any, ...]]] = [
    (
        "select ID, Title as Foo, upper(title) from Stories where Id = 7 -- x",
        (),
        "SELECT ID, title AS Foo, UPPER(title) FROM stories WHERE id = ?",
        (7,),
    ),
    (
        "SELECT id FROM stories WHERE (id=7) AND 'x' = title AND score > 5",
        (),
        "SELECT id FROM stories WHERE (id = ?) AND ? = title AND score > 5",
        (7, "x"),
    ),
    ("SELECT id FROM stories WHERE id = -7", (), "SELECT id FROM stories WHERE id = ?", (-7,)),
    ("SELECT id FROM stories WHERE id = '7'", (), "SELECT id FROM stories WHERE id = ?", ("7",)),
    ("SELECT id FROM stories WHERE score = 1.50", (), "SELECT id FROM stories WHERE score = ?", (Decimal("1.50"),)),
    ("SELECT id FROM stories WHERE id IN (3, 1, 3)", (), "SELECT id FROM stories WHERE id IN (?)", ((3, 1),)),
    (
        "SELECT id FROM stories WHERE id IN (3) ORDER BY 1",
        (),
        "SELECT id FROM stories WHERE id IN (?) ORDER BY 1",
        ((3,),),
    ),
    # Not a value of the column, not certain to be looked up, or a list over rows that are counted or cut.
    ("SELECT id FROM stories WHERE id = 7.5", (), "SELECT id FROM stories WHERE id = 7.5", ()),
    ("SELECT id FROM stories WHERE title = 7", (), "SELECT id FROM stories WHERE title = 7", ()),
    ("SELECT id FROM stories WHERE id = NULL", (), "SELECT id FROM stories WHERE id = NULL", ()),
    ("SELECT id FROM stories WHERE id IN (1, NULL)", (), "SELECT id FROM stories WHERE id IN (1, NULL)", ()),
    ("SELECT id FROM stories WHERE id = 1 OR id = 2", (), "SELECT id FROM stories WHERE id = 1 OR id = 2", ()),
    ("SELECT id FROM stories WHERE NOT id = 1", (), "SELECT id FROM stories WHERE NOT id = 1", ()),
    ("SELECT id FROM stories WHERE id + 1 = 2", (), "SELECT id FROM stories WHERE id + 1 = 2", ()),
    ("SELECT COUNT(*) FROM stories WHERE id IN (1)", (), "SELECT COUNT(*) FROM stories WHERE id IN (1)", ()),
    ("SELECT COUNT(*) FROM stories WHERE author = 1", (), "SELECT COUNT(*) FROM stories WHERE author = ?", (1,)),
    ("SELECT DISTINCT id FROM stories WHERE id IN (1)", (), "SELECT DISTINCT id FROM stories WHERE id IN (1)", ()),
    ("SELECT id FROM stories WHERE id IN (1) LIMIT 3", (), "SELECT id FROM stories WHERE id IN (1) LIMIT 3", ()),
    ("SELECT id FROM stories WHERE id = 1 LIMIT 3", (), "SELECT id FROM stories WHERE id = ? LIMIT 3", (1,)),
    # Outer joins.
    (
        "SELECT s.id FROM stories s LEFT JOIN votes v ON v.story_id = s.id"
        " WHERE s.id = 3 AND v.user = 4 AND author = 6",
        (),
        "SELECT s.id FROM stories AS s LEFT JOIN votes AS v ON v.story_id = s.id"
        " WHERE s.id = ? AND v.user = 4 AND author = ?",
        (3, 6),
    ),
    (
        "SELECT s.id FROM stories s RIGHT JOIN votes v ON v.story_id = s.id WHERE s.id = 3 AND user = 4",
        (),
        "SELECT s.id FROM stories AS s RIGHT JOIN votes AS v ON v.story_id = s.id WHERE s.id = 3 AND user = ?",
        (4,),
    ),
    (
        "SELECT s.id FROM stories s, votes WHERE id = story_id AND user = 4",
        (),
        "SELECT s.id FROM stories AS s, votes WHERE id = story_id AND user = ?",
        (4,),
    ),
    (
        "SELECT c.n FROM (SELECT id AS n FROM stories) c WHERE n = 3",
        (),
        "SELECT c.n FROM (SELECT id AS n FROM stories) AS c WHERE n = ?",
        (3,),
    ),
    # The user's own parameters.
    (
        "SELECT id FROM stories WHERE id = ? AND author = 2",
        (7,),
        "SELECT id FROM stories WHERE id = ? AND author = ?",
        (7, 2),
    ),
    (
        "SELECT id FROM stories WHERE author = 2 AND ? = id",
        (7,),
        "SELECT id FROM stories WHERE author = ? AND ? = id",
        (2, 7),
    ),
    ("SELECT id FROM stories WHERE id IN (?, 5, ?)", (7, 5), "SELECT id FROM stories WHERE id IN (?)", ((7, 5),)),
    ("SELECT id FROM stories WHERE id IN (?)", ([1, 2],), "SELECT id FROM stories WHERE id IN (?)", ((1, 2),)),
    ("SELECT id FROM stories WHERE score > ?", (1.5,), "SELECT id FROM stories WHERE score > ?", (1.5,)),
    (
        "SELECT id FROM stories WHERE score BETWEEN ? AND 9",
        (1,),
        "SELECT id FROM stories WHERE score BETWEEN ? AND 9",
        (1,),
    ),
    (
        "SELECT id FROM stories WHERE id = 1 LIMIT ? OFFSET ?",
        (5, 6),
        "SELECT id FROM stories WHERE id = ? LIMIT ? OFFSET ?",
        (1, 5, 6),
    ),
    ("SELECT id FROM stories LIMIT ?, ?", (5, 6), "SELECT id FROM stories LIMIT ? OFFSET ?", (6, 5)),
    ("SELECT COUNT(*) FROM stories WHERE id > ?", (3,), "SELECT COUNT(*) FROM stories WHERE id > ?", (3,)),
    (
        "SELECT DISTINCT title FROM stories WHERE id IN (?) AND title BETWEEN ? AND 'x' LIMIT 3",
        ((1, 2), "a"),
        "SELECT DISTINCT title FROM stories WHERE id IN (?) AND title BETWEEN ? AND 'x' LIMIT 3",
        ((1, 2), "a"),
    ),
    # … and where the planner would refuse them, in the text.
    ("SELECT id + ? FROM stories WHERE id = 1", (3,), "SELECT id + 3 FROM stories WHERE id = ?", (1,)),
    (
        "SELECT id FROM stories WHERE id = ? OR title = ?",
        (1, "a'b\\"),
        "SELECT id FROM stories WHERE id = 1 OR title = 'a''b\\\\'",
        (),
    ),
    (
        "SELECT id FROM stories WHERE NOT id IN (?, 4)",
        ([1, 2],),
        "SELECT id FROM stories WHERE NOT id IN (1, 2, 4)",
        (),
    ),
    ("SELECT id FROM stories WHERE title LIKE ?", ("a%",), "SELECT id FROM stories WHERE title LIKE 'a%'", ()),
    (
        "SELECT id FROM stories WHERE id = 1 UNION SELECT user FROM votes WHERE user = ?",
        (2,),
        "SELECT id FROM stories WHERE id = 1 UNION SELECT user FROM votes WHERE user = 2",
        (),
    ),
    (
        "SELECT id FROM stories WHERE id IN (SELECT story_id FROM votes WHERE user = ?)",
        (2,),
        "SELECT id FROM stories WHERE id IN (SELECT story_id FROM votes WHERE user = 2)",
        (),
    ),
    (
        "WITH c AS (SELECT id FROM stories WHERE author = ?) SELECT id FROM c WHERE id = ?",
        (2, 3),
        "WITH c AS (SELECT id FROM stories WHERE author = 2) SELECT id FROM c WHERE id = ?",
        (3,),
    ),
    # Parameters of the views that are read.
    ("SELECT title FROM StoriesWithVC WHERE id = 7", (), "SELECT title FROM storieswithvc", (7,)),
    (
        "SELECT title FROM StoriesWithVC v WHERE vcount = 3 AND v.ID = ? LIMIT 1",
        (7,),
        "SELECT title FROM storieswithvc AS v WHERE vcount = ? LIMIT 1",
        (7, 3),
    ),
    ("SELECT id FROM Ranked WHERE author IN (1, ?) AND 5 < score", (2,), "SELECT id FROM ranked", ((1, 2), 5)),
    ("SELECT id FROM Ranked WHERE author = 1 AND score > 5", (), "SELECT id FROM ranked", (1, 5)),
    ("SELECT story_id FROM VoteCount WHERE vcount = 3", (), "SELECT story_id FROM votecount WHERE vcount = ?", (3,)),
    (
        "SELECT a.id FROM StoriesWithVC a JOIN StoriesWithVC b ON a.vcount = b.vcount WHERE b.id = 1 AND a.id = 2",
        (),
        "SELECT a.id FROM storieswithvc AS a JOIN storieswithvc AS b ON a.vcount = b.vcount",
        (2, 1),
    ),
]


@pytest.mark.parametrize(("sql", "params", "text", "arguments"), TURNED, ids=[case[0][:90] for case in TURNED])
def test_a_select_becomes_a_view_that_plans(
    sql: str, params: tuple[Any, ...], text: str, arguments: tuple[Any, ...]
) -> None:
    statement = select(sql, *params)
    view = parameterise(statement.query, CATALOG, statement.params)
    assert view.view_sql == text
    assert view.bind(statement.params) == arguments
    assert len(planned(view).placeholders) == len(arguments)
    plain = verbatim(statement.query, CATALOG, statement.params)
    assert len(planned(plain).placeholders) == len(plain.arguments)


def test_the_same_query_with_other_constants_is_the_same_view() -> None:
    views = [
        ad_hoc("SELECT id FROM stories WHERE id = 7"),
        ad_hoc("select id\n from  STORIES where ID = 9;"),
        ad_hoc("SELECT id FROM Stories WHERE Id = ?", 11),
    ]
    assert len({view.name for view in views}) == 1
    assert views[0].name.startswith("adhoc_")
    assert len(views[0].name) == len("adhoc_") + 12
    assert ad_hoc("SELECT title FROM stories WHERE id = 7").name != views[0].name
    assert ad_hoc("SELECT ID FROM stories WHERE id = 7").name != views[0].name, "the answer's column is called ID"


def test_a_shape_has_a_mark_for_each_constant_and_for_a_list_of_them() -> None:
    sql = "SELECT id + 1 AS n, CONCAT('a', title, 'b'), 5 FROM stories WHERE id IN (1, ?, 3) AND title LIKE 'x' LIMIT 2"
    assert shape_text(ad_hoc(sql, 2).view_sql) == (
        "SELECT id + ? AS n, CONCAT(?, title, ?), ? FROM stories WHERE id IN (?) AND title LIKE ? LIMIT ?"
    )


def test_a_view_is_reusable_unless_the_users_values_are_in_its_text() -> None:
    view = ad_hoc("SELECT id FROM stories WHERE id = ? AND author = 3", 7)
    assert view.reusable
    assert view.bind((8,)) == (8, 3)
    assert not ad_hoc("SELECT id FROM stories WHERE id = 7 AND title LIKE ?", "a").reusable


def test_arguments_in_the_order_and_types_of_the_planners_parameters() -> None:
    view = ad_hoc("SELECT id FROM Ranked WHERE author IN (1, 2) AND score > 5 AND title = 'x' LIMIT 3")
    plan = planned(view)
    assert [parameter.kind for parameter in plan.parameters] == [
        ParameterKind.IN,
        ParameterKind.GREATER,
        ParameterKind.EQUAL,
    ]
    assert exact_arguments(view.bind(()), plan.placeholders, plan.parameters) == ((1, 2), Decimal("5.00"), "x")


EXACT: list[tuple[str, tuple[Any, ...], tuple[Any, ...] | None]] = [
    ("SELECT id FROM stories WHERE id = ?", ("7",), (7,)),
    ("SELECT id FROM stories WHERE id = ?", (7.5,), None),
    ("SELECT id FROM stories WHERE id = ?", (None,), None),
    ("SELECT id FROM stories WHERE title = ?", (7,), None),
    ("SELECT id FROM stories WHERE id > ?", (7.5,), None),
    ("SELECT id FROM stories WHERE id IN (?)", ([1, None, "1", 2],), ((1, 2),)),
    ("SELECT id FROM stories WHERE id IN (?)", ([1, 2.5],), None),
    ("SELECT id FROM stories WHERE made > ?", ("2026-1-2",), ("2026-01-02 00:00:00",)),
    ("SELECT id FROM stories WHERE author = ? LIMIT ?", (1, 5), (1, 5)),
]


@pytest.mark.parametrize(("sql", "params", "expected"), EXACT, ids=[f"{case[0]} {case[1]}" for case in EXACT])
def test_values_that_are_not_the_columns_own_are_left_to_verbatim(
    sql: str, params: tuple[Any, ...], expected: tuple[Any, ...] | None
) -> None:
    statement = select(sql, *params)
    view = parameterise(statement.query, CATALOG, statement.params)
    plan = planned(view)
    assert exact_arguments(view.bind(statement.params), plan.placeholders, plan.parameters) == expected


WRONG: list[tuple[str, tuple[Any, ...], type[HeadraceError], str]] = [
    (
        "SELECT title FROM StoriesWithVC WHERE vcount = 7",
        (),
        SqlError,
        'view "StoriesWithVC" has the parameter "id", which nothing gives (WHERE id = …)',
    ),
    ("SELECT title FROM StoriesWithVC WHERE id > 7", (), SqlError, 'view "StoriesWithVC" has the parameter "id"'),
    (
        "SELECT id FROM stories WHERE id IN (SELECT id FROM StoriesWithVC)",
        (),
        Unsupported,
        "an ad-hoc SELECT that reads a view with parameters in a subquery or UNION",
    ),
    ("SELECT id + ? FROM stories", ([1],), BadRequest, "a list is given for a single value"),
    ("SELECT id FROM stories WHERE NOT id IN (?)", ([],), BadRequest, "a list is given for a single value"),
]


@pytest.mark.parametrize(("sql", "params", "kind", "message"), WRONG, ids=[case[0] for case in WRONG])
def test_what_is_wrong_is_said(sql: str, params: tuple[Any, ...], kind: type[HeadraceError], message: str) -> None:
    with pytest.raises(HeadraceError) as caught:
        ad_hoc(sql, *params)
    assert type(caught.value) is kind
    assert str(caught.value).startswith(message)


def test_a_limit_that_is_no_number_and_a_list_for_one_value() -> None:
    view = ad_hoc("SELECT id FROM stories WHERE id = ? LIMIT ?", 1, 1)
    plan = planned(view)
    with pytest.raises(SqlError, match=r"LIMIT.*negative"):
        exact_arguments((1, -1), plan.placeholders, plan.parameters)
    with pytest.raises(BadRequest, match='parameter "id" is a list'):
        exact_arguments(((1, 2), 1), plan.placeholders, plan.parameters)


VALUES = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda value: value + 0.0),
    st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**9), max_value=10**9).map(abs),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12),
    st.text("'\"\\%_`?:;-/*# x\n", max_size=8),
    st.binary(max_size=5),
)


@given(VALUES)
def test_a_value_that_is_written_into_text_reads_back(value: Any) -> None:
    query = select("SELECT id + ? FROM stories", value)
    view = parameterise(query.query, CATALOG, query.params)
    item = view.definition().relation.expressions[0].expression
    expression = scalar(item, Scope(()))
    found = value_of(expression, {})
    assert (found, type(found)) == (value, type(value)), literal_node(value)
