"""What an entry of the recipe comes to: views understood once are planned as if they had been understood again."""

from __future__ import annotations

import re

import pytest

from domains.errors import HeadraceError, LimitExceeded, StorageFailure
from migrations.change import Change, change_of
from migrations.flow.explain import explain
from migrations.flow.plan import State, one_domain
from migrations.recipe import Recipe, RecipeEntry
from migrations.replaying import replayed
from migrations.statements.interpret import split

TABLES = "CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT); CREATE TABLE u (id INT PRIMARY KEY, a INT, c INT)"


def changed(state: State, sql: str) -> Change:
    return change_of(state, RecipeEntry((sql,)), one_domain)


TABLES_ONLY = changed(State(), TABLES).state


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE VIEW v AS SELECT id, b FROM t WHERE a = ?",
        "CREATE EXT VIEW v AS SELECT a, COUNT(*) AS n FROM t GROUP BY a",
        "CREATE VIEW v (x, y) AS SELECT t.id, u.c FROM t JOIN u ON t.a = u.a WHERE u.id IN (?) LIMIT ?",
        "CREATE VIEW v AS SELECT * FROM t NATURAL JOIN u WHERE a = ?",
        "CREATE VIEW w AS SELECT id, a FROM t; CREATE VIEW v AS SELECT id FROM w WHERE a = ?",
    ],
)
def test_a_parsed_text_and_one_that_is_not_come_to_the_same(sql: str) -> None:
    parsed = split(sql)
    text = [each.expression.sql() for each in parsed]
    one = change_of(TABLES_ONLY, RecipeEntry((sql,)), one_domain, parsed)
    other = changed(TABLES_ONLY, sql)
    assert one.steps == other.steps
    assert one.state.planned == other.state.planned
    assert [each.expression.sql() for each in parsed] == text
    for name, index in one.state.flow.readers.items():
        assert explain(one.state.flow, index) == explain(other.state.flow, other.state.flow.readers[name])


@pytest.mark.parametrize("sql", ["ALTER TABLE t COMMENT 'x'", "ALTER TABLE t MODIFY a INT COMMENT 'x'"])
def test_no_shard_hears_of_a_comment(sql: str) -> None:
    change = changed(changed(TABLES_ONLY, "CREATE VIEW v AS SELECT id FROM t WHERE a = ?").state, sql)
    assert change.steps == ()
    (said,) = {change.state.catalog.tables["t"].comment, change.state.catalog.tables["t"].columns[1].comment} - {""}
    assert said == "x"


def test_a_comment_that_an_earlier_build_read_over_is_left_out_where_it_is_too_long() -> None:
    sql = f"CREATE TABLE w (a INT COMMENT '{'x' * 1_025}', b INT COMMENT 'kept')"
    with pytest.raises(LimitExceeded):
        changed(State(), sql)
    columns = replayed(State(), RecipeEntry((sql,)), one_domain).catalog.tables["w"].columns
    assert [column.comment for column in columns] == ["", "kept"]


def test_a_view_keeps_the_text_of_its_select() -> None:
    sql = "CREATE EXT VIEW v (as_is) AS\n  SELECT a AS `AS` FROM t -- of all\n WHERE id = ?;"
    assert changed(TABLES_ONLY, sql).state.catalog.views["v"].sql == "SELECT a AS `AS` FROM t -- of all\n WHERE id = ?"


def test_a_view_whose_table_is_altered_in_the_same_entry_sees_the_table_as_it_is_then() -> None:
    view, alteration = "CREATE VIEW v AS SELECT id FROM u WHERE a = ?", "ALTER TABLE u DROP COLUMN c"
    together = changed(TABLES_ONLY, f"{view}; {alteration}").state
    after = changed(changed(TABLES_ONLY, alteration).state, view).state
    assert together.planned == after.planned
    assert together.flow == after.flow


def test_a_view_that_is_replaced_does_not_read_its_old_self() -> None:
    state = changed(TABLES_ONLY, "CREATE VIEW v AS SELECT id, a FROM t").state
    with pytest.raises(HeadraceError):
        changed(state, "CREATE OR REPLACE VIEW v AS SELECT id FROM v WHERE a = ?")


STACK = """
CREATE VIEW v AS SELECT id, a FROM t; CREATE EXT VIEW w AS SELECT id FROM v WHERE a = ?;
CREATE VIEW w_all AS SELECT id, a FROM v; CREATE EXT VIEW x AS SELECT COUNT(*) AS n FROM w_all;
CREATE EXT VIEW y AS SELECT id AS b, COUNT(*) AS n FROM v GROUP BY b
"""


def test_a_view_that_others_read_is_replaced_by_one_with_its_columns() -> None:
    state = changed(TABLES_ONLY, STACK).state
    sql = "CREATE OR REPLACE VIEW v AS SELECT b AS a, id FROM t WHERE b > 3"
    after = changed(state, sql).state
    afresh = changed(TABLES_ONLY, STACK.replace("SELECT id, a FROM t", "SELECT b AS a, id FROM t WHERE b > 3")).state
    assert after.catalog.views.keys() == afresh.catalog.views.keys() == {"v", "w", "w_all", "x", "y"}
    assert after.flow.readers.keys() == {"w", "x", "y"}
    for name in ("w", "x", "y"):
        shown, other = (
            re.sub(r"\[\d+\]", "[]", explain(each.flow, each.flow.readers[name])) for each in (after, afresh)
        )
        assert shown == other
        assert after.flow.readers[name] not in state.flow.nodes, "it stands beside the one that serves meanwhile"
    assert after.planned["w_all"].columns == state.planned["w_all"].columns


def test_what_a_view_grows_by_touches_no_view_that_reads_it() -> None:
    state = changed(TABLES_ONLY, STACK).state
    grown = changed(state, "CREATE OR REPLACE VIEW v AS SELECT id, a, b AS more FROM t")
    assert not grown.steps
    assert grown.state.flow.readers == state.flow.readers
    wide = changed(
        grown.state, "CREATE EXT VIEW z AS SELECT more FROM v WHERE id = ?; CREATE VIEW zz AS SELECT * FROM v"
    )
    assert [column.name for column in wide.state.planned["zz"].columns] == ["id", "a", "more"]
    assert [column.name for column in grown.state.planned["w"].columns] == ["id"]


@pytest.mark.parametrize(
    ("select", "message"),
    [
        ("SELECT id FROM t", 'views "w", "w_all", "x" and "y" read view "v", which would have no column "a"'),
        ("SELECT id, a + 0.5 AS a FROM t", '"v", whose column "a" would be'),
        ("SELECT id, a, id AS b FROM t", 'view "y" needs it: column "id" is neither'),
        ("SELECT id, a FROM t WHERE b = ?", 'view "w" would have other parameters'),
        ("SELECT id, id AS a FROM w", 'view "v" would read itself, by "w"'),
        ("SELECT id, id AS a FROM x JOIN t ON t.id = x.n", 'view "v" would read itself, by "x"'),
        ("SELECT id, a FROM v", 'view "v" would read itself'),
    ],
)
def test_a_view_that_others_read_is_not_replaced_by_what_they_cannot_read(select: str, message: str) -> None:
    state = changed(TABLES_ONLY, STACK).state
    with pytest.raises(HeadraceError) as refused:
        changed(state, f"CREATE OR REPLACE VIEW v AS {select}")
    assert message in refused.value.message
    assert state.flow.readers.keys() == {"w", "x", "y"}


def test_a_recipe_reads_back() -> None:
    recipe = Recipe(
        (
            RecipeEntry(("CREATE TABLE ü (a INT)",)),
            RecipeEntry(readers=("v", "w")),
            RecipeEntry(("SELECT 1",), ad_hoc=True),
        )
    )
    assert Recipe.from_json(recipe.to_json()) == recipe
    assert Recipe.from_json(Recipe().to_json()) == Recipe()


def test_a_dataflow_deeper_than_the_stack_is_refused_by_name() -> None:
    joins = "".join(f" JOIN u u{n} ON u{n}.id = t.id" for n in range(180))
    with pytest.raises(LimitExceeded, match="too deep"):
        changed(TABLES_ONLY, f"CREATE VIEW v AS SELECT t.id FROM t{joins} WHERE t.id = ?")


def test_a_recipe_of_which_a_bit_has_turned_is_refused() -> None:
    """One makes "score > 3" into "score > 2"."""
    data = Recipe(
        (RecipeEntry(("CREATE VIEW v AS SELECT a FROM t WHERE score > 3",)), RecipeEntry(readers=("v",)))
    ).to_json()
    assert len(Recipe.from_json(data).entries) == 2
    for at in range(8 * len(data)):
        turned = bytearray(data)
        turned[at // 8] ^= 1 << at % 8
        try:
            found = Recipe.from_json(bytes(turned))
        except StorageFailure:
            continue
        assert found == Recipe.from_json(data)


def test_a_recipe_of_the_first_format_has_no_checksum() -> None:
    found = Recipe.from_json(b'{"format": 1, "entries": [{"statements": ["CREATE TABLE t (a INT)"]}]}')
    assert found == Recipe((RecipeEntry(("CREATE TABLE t (a INT)",)),))
