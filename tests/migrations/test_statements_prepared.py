"""A text that came before means what it meant: its template binds what its tree would, errors included."""

from __future__ import annotations

import random
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from domains.errors import HeadraceError
from migrations.catalog import Catalog
from migrations.statements.interpret import interpret_one, split
from migrations.statements.prepared import CHARACTERS_KEPT, TEXTS_KEPT, PreparedStatement, PreparedTexts
from migrations.statements.statement import Statement
from tests.migrations.statement_catalog import CATALOG, NOW, perform

BOUND = [
    "INSERT INTO stories (author, title) VALUES (?, ?)",
    "INSERT INTO stories (title, author, score, made) VALUES (?, ?, ?, ?), (?, ?, ?, ?)",
    "INSERT INTO stories VALUES (?, ?, ?, ?, ?)",
    "INSERT IGNORE INTO stories (id, author) VALUES (?, ?)",
    "REPLACE INTO stories (id, author, title) VALUES (?, ?, ?), (?, ?, ?), (?, ?, ?)",
    "INSERT INTO stories (id, author, title) VALUES (?, ?, ?) ON DUPLICATE KEY UPDATE author = VALUES(author)",
    "INSERT INTO stories (id, author) VALUES (?, ?) AS new ON DUPLICATE KEY UPDATE author = new.author",
    "INSERT INTO log (day, body, weight) VALUES (?, ?, ?), (?, ?, ?)",
    "UPDATE stories SET title = ? WHERE id = ?",
    "UPDATE stories SET title = ?, score = ?, made = ? WHERE author = ? AND (? = id)",
    "UPDATE stories AS s SET s.score = ? WHERE (s.id = ? AND s.made = ?) AND s.title = ?",
    "DELETE FROM stories WHERE id = ?",
    "DELETE FROM stories WHERE score = ? AND author = ?",
    "UPDATE stories SET title = ? WHERE id IN (?, ?)",
    "UPDATE stories SET score = score + ? WHERE id = ?",
    "UPDATE stories SET made = NOW(), score = ? - score * ?, title = DEFAULT WHERE id = ? AND author = ?",
    "UPDATE stories SET title = ? WHERE id > ?",
    "UPDATE stories SET title = ? WHERE id = ? OR author = ?",
    "UPDATE stories SET title = 'x' WHERE id = ? AND author = 3",
    "DELETE FROM stories WHERE id = ? + 1",
    "DELETE FROM stories WHERE id IN (?, 7)",
    "DELETE FROM stories WHERE id NOT IN (?, ?)",
    "UPDATE stories SET score = score - ? WHERE (id = ? AND (score > ? AND ? = ?)) AND title LIKE ?",
    "UPDATE stories SET score = 1 WHERE ? AND id = 3",
    "DELETE FROM stories WHERE author IN (?) AND title IN (?, ?, ?) AND id = ?",
]
"""Those of which there is a template."""

OTHERS = [
    "INSERT INTO stories (author, title) VALUES (?, 'x')",
    "INSERT INTO stories (author, title) VALUES (?, UPPER(?))",
    "INSERT INTO stories (id, author) VALUES (?, ?) ON DUPLICATE KEY UPDATE score = score + 1",
    "INSERT INTO stories (id, author) VALUES (?, ?) ON DUPLICATE KEY UPDATE title = ?",
    "INSERT INTO stories (id, author) VALUES (?, ?) ON DUPLICATE KEY UPDATE made = NOW()",
    "UPDATE stories SET title = ? WHERE id = ? LIMIT 3",
    "DELETE FROM stories",
    "SELECT ? + 1",
]

VALUES: list[Any] = [
    *(None, 0, 1, 7, -3, True, 2**31, 2**63, 2**70, "x", "7", "7.5", " 8 ", "y" * 30, "2026-01-31", "2026-1-2 3:04:05"),
    *(1.0, 2.5, 1e300, float("nan"), Decimal("1.50"), Decimal("1E+3"), Decimal("1e-40"), b"\x00\xff", b"ab"),
    *(date(2026, 1, 31), [1, 2], object()),
]


def outcome(meant: Any) -> Statement | tuple[type[Exception], str]:
    try:
        found: Statement = meant()
    except Exception as error:
        return type(error), str(error)
    return found


@pytest.mark.parametrize("sql", [*BOUND, *OTHERS])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_template_binds_what_its_tree_would(sql: str, seed: int) -> None:
    rng = random.Random(f"{seed} {sql}")
    (parsed,) = split(sql)
    prepared = PreparedStatement(parsed)
    for _ in range(60):
        params = [rng.choice(VALUES) for _ in range(prepared.parameters)]
        ours = outcome(lambda params=params: prepared.interpret(CATALOG, params, NOW))
        theirs = outcome(lambda params=params: interpret_one(parsed, CATALOG, params, NOW))
        assert repr(ours) == repr(theirs)


@pytest.mark.parametrize("sql", BOUND)
def test_the_common_forms_have_templates(sql: str) -> None:
    assert interpreted_by_template(sql, CATALOG)


@pytest.mark.parametrize("sql", OTHERS)
def test_other_forms_have_none(sql: str) -> None:
    assert not interpreted_by_template(sql, CATALOG)


def interpreted_by_template(sql: str, catalog: Catalog) -> bool:
    (parsed,) = split(sql)
    prepared = PreparedStatement(parsed)
    prepared.interpret(catalog, [None] * prepared.parameters, NOW)
    return prepared._template is not None


def test_an_altered_table_has_another_template() -> None:
    (prepared,) = PreparedTexts().statements("INSERT INTO stories VALUES (?, ?, ?, ?, ?)")
    params = [1, 2, "x", None, NOW]
    before = prepared.interpret(CATALOG, params, NOW)
    assert prepared.interpret(CATALOG, params, NOW) == before
    wider = perform("ALTER TABLE stories ADD COLUMN url TEXT", CATALOG)
    wrong, message = outcome(lambda: prepared.interpret(wider, params, NOW))  # type: ignore[misc]
    assert issubclass(wrong, HeadraceError)
    assert "5 values for 6 columns" in message
    assert prepared.interpret(CATALOG, params, NOW) == before


def test_texts_are_remembered_and_the_oldest_are_forgotten() -> None:
    texts = PreparedTexts()
    first = texts.statements("DELETE FROM stories WHERE id = ?")
    for number in range(TEXTS_KEPT - 1):
        texts.statements(f"SELECT {number}")
    assert texts.statements("DELETE FROM stories WHERE id = ?") is first
    texts.statements("SELECT -1")
    assert len(texts) == TEXTS_KEPT
    assert texts.statements("DELETE FROM stories WHERE id = ?") is first, "it was used later than the others"
    texts.statements("SELECT '" + "x" * (CHARACTERS_KEPT - 50) + "'")
    assert len(texts) < 5
    texts.statements("SELECT '" + "x" * CHARACTERS_KEPT + "'")
    assert len(texts) < 5


def test_definitions_are_not_remembered() -> None:
    """Whoever performs them keeps their trees."""
    texts = PreparedTexts()
    sql = "CREATE TABLE t (a INT); DELETE FROM stories"
    assert texts.statements(sql) is not texts.statements(sql)
    assert [each.defines for each in texts.statements(sql)] == [True, False]
