"""What a statement asks of its session, and comments that are executed."""

from __future__ import annotations

import pytest

from domains.errors import SqlError, SqlSyntaxError, UnknownName, Unsupported
from domains.language.types import Row
from migrations.catalog import Catalog
from migrations.parse.reading import parse
from migrations.statements.interpret import interpret_one
from migrations.statements.sessions.session_values import NO_SESSION, SessionValues, SessionWarning
from migrations.statements.statement import ConstantSelect, SelectStatement

NOW = "2026-01-31 08:00:00"


def constant(sql: str, session: SessionValues = NO_SESSION) -> tuple[tuple[str, ...], Row]:
    """The names of the columns, and the row."""
    (parsed,) = parse(sql)
    select = interpret_one(parsed, Catalog(), [], NOW, session)
    assert isinstance(select, ConstantSelect)
    (row,) = select.rows
    return tuple(column.name for column in select.columns), row


def test_values_keep_the_names_under_which_they_were_asked() -> None:
    names, row = constant("SELECT @@autocommit, @@session.time_zone, VERSION(), @@global.tx_isolation AS level")
    assert names == ("@@autocommit", "@@session.time_zone", "VERSION()", "level")
    assert row == (1, "SYSTEM", "8.0.36", "SERIALIZABLE")


def test_a_session_answers_what_it_has() -> None:
    session = SessionValues("ann", "host", None, 7, "8.0.40", last_insert_id=5, found_rows=3, row_count=-1)
    session.variables.update(autocommit=False, sql_mode="ANSI")
    asked = "DATABASE(), USER(), CURRENT_USER, CONNECTION_ID(), VERSION(), @@version, LAST_INSERT_ID(), ROW_COUNT()"
    assert constant(f"SELECT {asked}", session)[1] == (None, "ann@host", "ann@%", 7, "8.0.40", "8.0.40", 5, -1)
    found = constant("SELECT @@autocommit, @@global.autocommit, CONCAT(@@SQL_MODE, ',X'), FOUND_ROWS()", session)
    assert found[1] == (0, 1, "ANSI,X", 3)
    session.warnings += [SessionWarning("Note", 1051, "no table"), SessionWarning("Error", 1064, "syntax")]
    assert constant("SELECT @@warning_count, @@error_count", session)[1] == (2, 1)
    assert session.under("bob").user == "bob"
    assert session.under("") is session


def test_variables_are_shown_as_on_and_off() -> None:
    shown = dict(SessionValues(variables={"autocommit": False}).all_variables())
    assert (shown["autocommit"], shown["foreign_key_checks"], shown["init_connect"]) == ("OFF", "ON", "")
    assert dict(SessionValues(variables={"autocommit": False}).all_variables(of_all=True))["autocommit"] == "ON"


@pytest.mark.parametrize(
    ("sql", "kind", "words"),
    [
        ("SELECT @@sqlmode", UnknownName, 'did you mean "sql_mode"'),
        ("SELECT LAST_INSERT_ID()", Unsupported, "without a session"),
        ("SELECT @@identity", Unsupported, "without a session"),
        ("SELECT VERSION(1)", SqlError, "argument"),
    ],
)
def test_what_nobody_knows_is_an_error(sql: str, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        constant(sql)


def test_a_select_of_tables_has_the_values_in_its_place() -> None:
    (parsed,) = parse("SELECT a FROM t WHERE owner = USER()")
    select = interpret_one(parsed, Catalog(), [], NOW, SessionValues("ann"))
    assert isinstance(select, SelectStatement)
    assert "ann@localhost" in repr(select.query)
    assert select.query is not parsed.expression, "what is learnt of the text holds for no other session"


def test_a_text_and_a_name_ask_nothing() -> None:
    assert constant("SELECT '@@version', 'VERSION()' AS `user`")[1] == ("@@version", "VERSION()")


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("/*!40101 SELECT */ 1", 1),
        ("SELECT 1 /*! + 1 */", 2),
        ("SELECT 1 /*!80036 + 1 */ /*!080036 + 2 */", 4),
        ("SELECT 1 /*!80100 + 1 */ /*!99999 + 1 */ /*!100100 + 1 */", 1),
        ("SELECT 1 /*M! + 1 */ /*M!100100 + 1 */ /* + 1 */", 1),
        ("SELECT 1 /*H! + 1 */", 2),
        ("SELECT '/*! x */' /*! -- */ \n */", "/*! x */"),
        ("SELECT 1 /*! + 1 /* inside */ + 1 */", 3),
        ("SELECT 1 /*!99999 + '*/' */", 1),
        ("SELECT 7 # /*! + 1", 7),
    ],
)
def test_comments_for_mysql_8_are_executed(sql: str, value: object) -> None:
    assert constant(sql)[1] == (value,)


def test_what_stands_behind_a_comment_keeps_its_place() -> None:
    with pytest.raises(SqlSyntaxError, match="line 2, column 13"):
        parse("/*!40101 SELECT */\n /*! 1 */   2")
    with pytest.raises(SqlSyntaxError, match="comment is not closed at line 1, column 10"):
        parse("SELECT 1 /*! + 1")
