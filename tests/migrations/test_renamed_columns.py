"""Views over a column that is renamed: the texts that say its new name, and that they are the same views by them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from domains.errors import StillInUse
from domains.plan.graph import Reader
from migrations.change import change_of
from migrations.flow.plan import State, one_domain
from migrations.parse.reading import parse
from migrations.recipe import Recipe, RecipeEntry
from migrations.statements.definitions.written import definition_text, schema_text
from tests.migrations.test_compacting import made_short, shown
from tests.played_recipe import play

TABLES = (
    "CREATE TABLE stories (id INT PRIMARY KEY, author INT, title VARCHAR(40), score INT)",
    "CREATE TABLE people (author INT PRIMARY KEY, name VARCHAR(40))",
)
RENAMED = "ALTER TABLE stories RENAME COLUMN author TO writer"


def of(*statements: str) -> Recipe:
    return Recipe(tuple(RecipeEntry((sql,), collation="utf8mb4_bin") for sql in statements))


def after(*statements: str) -> State:
    return play(of(*TABLES, *statements), one_domain)


def texts(state: State) -> list[str]:
    """The SELECTs of the views, without backquotes."""
    return [
        definition_text(view, state.catalog).split(" AS ", 1)[1].replace("`", "")
        for view in state.catalog.views.values()
    ]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            "SELECT id, author FROM stories WHERE author = ? ORDER BY author",
            "SELECT id, writer AS author FROM stories WHERE writer = :author ORDER BY author",
        ),
        (
            "SELECT * FROM stories AS s WHERE s.author > ? AND s.author < ?",
            "SELECT s.id, s.writer AS author, s.title, s.score FROM stories AS s"
            " WHERE s.writer > :author_min AND s.writer < :author_max",
        ),
        (
            "SELECT author, COUNT(*) FROM stories GROUP BY author HAVING author > 3",
            "SELECT writer AS author, COUNT(*) FROM stories GROUP BY writer HAVING writer > 3",
        ),
        (
            "SELECT author + 1, author FROM stories ORDER BY -author",
            "SELECT writer + 1 AS author + 1, writer AS author FROM stories ORDER BY -writer",
        ),
        # The name means another table's column, a part of WITH, a derived table.
        (
            "SELECT name FROM people AS p WHERE author IN (SELECT author FROM stories WHERE score > p.author)",
            "SELECT name FROM people AS p WHERE author IN"
            " (SELECT writer AS author FROM stories WHERE score > p.author)",
        ),
        (
            "WITH stories AS (SELECT author FROM stories) SELECT author FROM stories WHERE author = ?",
            "WITH stories AS (SELECT writer AS author FROM stories) SELECT author FROM stories WHERE author = ?",
        ),
        (
            "SELECT d.author FROM (SELECT author FROM stories) AS d WHERE author = ?",
            "SELECT d.author FROM (SELECT writer AS author FROM stories) AS d WHERE author = ?",
        ),
        (
            "SELECT author FROM stories UNION SELECT author FROM people ORDER BY author",
            "SELECT writer AS author FROM stories UNION SELECT author FROM people ORDER BY author",
        ),
        (
            "SELECT author, ROW_NUMBER() OVER (PARTITION BY author ORDER BY id) AS r FROM stories",
            "SELECT writer AS author, ROW_NUMBER() OVER (PARTITION BY writer ORDER BY id) AS r FROM stories",
        ),
        (
            "SELECT title, d.n FROM stories AS s, LATERAL"
            " (SELECT COUNT(*) AS n FROM people WHERE author = s.author) AS d",
            "SELECT title, d.n FROM stories AS s, LATERAL"
            " (SELECT COUNT(*) AS n FROM people WHERE author = s.writer) AS d",
        ),
        # These names cannot follow: the table is read under its former ones.
        (
            "SELECT s.title, name FROM stories AS s JOIN people USING (author) WHERE author = ?",
            "SELECT s.title, name FROM (SELECT writer AS author, title FROM stories) AS s JOIN people USING (author)"
            " WHERE author = ?",
        ),
        (
            "SELECT MAX(author) AS author FROM stories GROUP BY title HAVING author > 3",
            "SELECT MAX(author) AS author FROM (SELECT writer AS author, title FROM stories) AS stories"
            " GROUP BY title HAVING author > 3",
        ),
        (
            "SELECT id, author + ? AS x FROM stories WHERE author = ?",
            "SELECT id, author + ? AS x FROM (SELECT id, writer AS author FROM stories) AS stories WHERE author = ?",
        ),
        (
            "SELECT id FROM stories WHERE (author, id) < (?, ?) ORDER BY author DESC, id DESC LIMIT 10",
            "SELECT id FROM stories WHERE (writer, id) < (:author, :id) ORDER BY writer DESC, id DESC LIMIT 10",
        ),
        ("SELECT id, title FROM stories WHERE id = ?", "SELECT id, title FROM stories WHERE id = ?"),
    ],
)
def test_a_view_has_a_text_that_says_the_new_name(query: str, expected: str) -> None:
    view = f"CREATE EXT VIEW v AS {query}"
    before, renamed = after(view), after(view, RENAMED)
    assert texts(renamed) == [expected]
    assert (renamed.planned, renamed.flow.nodes) == (before.planned, before.flow.nodes)
    assert list(map(str, renamed.planned["v"].columns)) == list(map(str, before.planned["v"].columns))
    anew = play(of(*(each.sql for each in parse(schema_text(renamed.catalog)))), one_domain)
    assert texts(anew) == texts(renamed)
    assert [readers(each)[0][2:] for each in (anew, renamed)] == [readers(before)[0][2:]] * 2


def readers(state: State) -> list[tuple[object, ...]]:
    """What a reader shows: not the marks of ``?``, which are places in a text."""
    found = []
    for index in state.flow.readers.values():
        reader = state.flow.nodes[index].operator
        assert isinstance(reader, Reader)
        planned = state.planned[reader.view.lower()]
        found.append((index, reader.view, reader.key, reader.seek, planned.columns, planned.parameters))
    return found


VIEWS = (
    "CREATE VIEW v1 AS SELECT author, score FROM stories",
    "CREATE EXT VIEW v2 AS SELECT author, COUNT(*) AS n FROM v1 WHERE author = ? GROUP BY author",
    "CREATE EXT VIEW v3 AS SELECT v1.author, s.author AS o FROM v1 JOIN stories AS s ON s.author = v1.score",
)


def test_views_of_views_keep_the_names_of_the_views() -> None:
    assert texts(after(*VIEWS, RENAMED)) == [
        "SELECT writer AS author, score FROM stories",
        "SELECT author, COUNT(*) AS n FROM v1 WHERE author = ? GROUP BY author",
        "SELECT v1.author, s.writer AS o FROM v1 JOIN stories AS s ON s.writer = v1.score",
    ]
    # Of two, one reads what was made after it: it was replaced since.
    replaced = "CREATE OR REPLACE VIEW v1 AS SELECT author, score FROM stories WHERE id > 0"
    assert texts(after(*VIEWS, replaced, RENAMED)) == [
        "SELECT author, COUNT(*) AS n FROM v1 WHERE author = ? GROUP BY author",
        "SELECT v1.author, s.writer AS o FROM v1 JOIN stories AS s ON s.writer = v1.score",
        "SELECT writer AS author, score FROM stories WHERE id > 0",
    ]


def test_names_are_swapped_and_taken_again() -> None:
    view = "CREATE EXT VIEW v AS SELECT author, score FROM stories WHERE author = ?"
    swap = "ALTER TABLE stories RENAME COLUMN author TO x, RENAME COLUMN score TO author, RENAME COLUMN x TO score"
    assert texts(after(view, swap)) == ["SELECT score AS author, author AS score FROM stories WHERE score = :author"]
    at_once = "ALTER TABLE stories RENAME COLUMN author TO score, RENAME COLUMN score TO author"
    assert texts(after(view, at_once)) == texts(after(view, swap))
    around = (
        "ALTER TABLE stories RENAME COLUMN author TO score, RENAME COLUMN score TO title, RENAME COLUMN title TO author"
    )
    assert texts(after(view, around)) == ["SELECT score AS author, title AS score FROM stories WHERE score = :author"]
    taken = "ALTER TABLE stories RENAME COLUMN author TO writer, ADD COLUMN author TEXT"
    assert texts(after(view, taken)) == ["SELECT writer AS author, score FROM stories WHERE writer = :author"]
    # A later renaming goes on from there, and back.
    back = "ALTER TABLE stories RENAME COLUMN writer TO author"
    assert texts(after(view, RENAMED, back)) == ["SELECT author AS author, score FROM stories WHERE author = :author"]
    changed = "ALTER TABLE stories CHANGE author writer INT NOT NULL DEFAULT 3"
    assert texts(after(view, changed)) == ["SELECT writer AS author, score FROM stories WHERE writer = :author"]


def test_what_else_an_alter_does_is_refused_as_it_is_without_the_renaming() -> None:
    for also in ("DROP COLUMN score", "MODIFY score BIGINT"):
        with pytest.raises(StillInUse, match=r'view "v1" needs it.*so do v2, v3'):
            after(*VIEWS, f"{RENAMED}, {also}")
    assert texts(after(*VIEWS, f"{RENAMED}, DROP COLUMN score CASCADE")) == []
    assert len(texts(after(*VIEWS, f"{RENAMED}, DROP COLUMN title"))) == 3
    # The derived table of former names has no more of them than the view reads.
    view = "CREATE VIEW v AS SELECT s.score, name FROM stories AS s JOIN people USING (author)"
    assert len(texts(after(view, RENAMED, "ALTER TABLE stories DROP COLUMN title"))) == 1


def test_a_table_that_is_renamed_is_read_under_its_new_name() -> None:
    renamed = "RENAME TABLE stories TO articles"
    for query, expected in (
        (
            "SELECT stories.id FROM stories JOIN people USING (author) WHERE author = ?",
            "SELECT stories.id FROM articles AS stories JOIN people USING (author) WHERE author = ?",
        ),
        (
            "WITH stories AS (SELECT author FROM stories AS s) SELECT author FROM stories",
            "WITH stories AS (SELECT author FROM articles AS s) SELECT author FROM stories",
        ),
        # A part of WITH is called as the table is now.
        ("WITH people AS (SELECT id FROM stories) SELECT id FROM people", None),
    ):
        view = f"CREATE EXT VIEW v AS {query}"
        assert texts(after(view, renamed)) == [expected or query.replace("stories", "articles AS stories")]
        both = "ALTER TABLE stories RENAME TO articles, RENAME COLUMN author TO writer, RENAME COLUMN id TO `key`"
        assert readers(after(view, both))[0][2:] == readers(after(view))[0][2:]
    with pytest.raises(StillInUse):
        after("CREATE VIEW v AS WITH articles AS (SELECT name FROM people) SELECT id FROM stories, articles", renamed)
    swap = "RENAME TABLE people TO swap, stories TO people, swap TO stories"
    state = after("CREATE VIEW v AS SELECT score, name FROM stories JOIN people ON people.author = id", swap)
    assert texts(state) == ["SELECT score, name FROM people AS stories JOIN stories AS people ON people.author = id"]
    assert [(table.name, table.title) for table in state.catalog.tables.values()] == [
        ("stories", "people"),
        ("people", "stories"),
    ]


def test_a_name_that_is_free_again_is_that_of_another_table() -> None:
    made = "CREATE TABLE stories (x INT PRIMARY KEY)"
    dropped = ("RENAME TABLE stories TO articles", made, "DROP TABLE stories", made, "DROP TABLE articles")
    state = after(*dropped)
    known = [(table.name, table.title, table.generation) for table in state.catalog.tables.values()]
    assert known == [("people", "people", 0), ("stories~2", "stories", 1)]
    state = after(*dropped, "DROP TABLE stories", made)
    known = [(table.name, table.title, table.generation) for table in state.catalog.tables.values()]
    assert known == [("people", "people", 0), ("stories", "stories", 1)]
    assert made_short(of(*TABLES, *dropped, *["CREATE TABLE u (x INT)", "DROP TABLE u"] * 20)) is not None


def test_a_recipe_with_renamings_is_played_again_and_made_short() -> None:
    dropped = [sql for n in range(9) for sql in (f"CREATE VIEW d{n} AS SELECT author FROM stories", f"DROP VIEW d{n}")]
    again = "ALTER TABLE stories RENAME COLUMN writer TO poet"
    recipe = of(*TABLES, *VIEWS, *dropped[:10], RENAMED, "CREATE VIEW w AS SELECT writer FROM stories", again)
    recipe = replace(recipe, entries=(*recipe.entries, *of("DROP VIEW w", "DROP VIEW v3").entries))
    short = made_short(recipe)
    assert short is not None
    assert len(short.entries) < len(recipe.entries) - 9
    state = play(recipe, one_domain)
    assert shown(play(short, one_domain)) == shown(state)
    assert texts(state)[0] == "SELECT poet AS author, score FROM stories"
    one = change_of(state, RecipeEntry(("CREATE EXT VIEW z AS SELECT author FROM v1 WHERE score = ?",)), one_domain)
    assert one.state.planned["z"].columns[0].name == "author"
