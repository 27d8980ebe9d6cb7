"""information_schema: any SELECT may ask it, and each client finds what it has a right on, and nothing of the rest."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from controller.access.session import Caller
from controller.embedded.local import LocalDeployment
from domains.errors import Forbidden, HeadraceError, UnknownName, Unsupported
from migrations.access.rights import Privilege, Rights
from migrations.information.definitions import virtual_tables
from migrations.statements.sessions.session_values import SessionValues, SessionWarning

DEFINITIONS = """
CREATE TABLE parents (id INT PRIMARY KEY, name VARCHAR(20) COLLATE utf8mb4_general_ci, UNIQUE KEY by_name (name(5)));
CREATE TABLE children (id INT, parent INT, note TEXT, made DATETIME DEFAULT CURRENT_TIMESTAMP,
  UNIQUE KEY one (id), KEY words ((LOWER(note))), CHECK (id > 0 AND note IS NOT NULL),
  CONSTRAINT of_parent FOREIGN KEY (parent) REFERENCES parents (id) ON DELETE SET NULL);
CREATE TABLE hidden (secret INT);
CREATE EXT VIEW names AS SELECT id, name FROM parents WHERE id = ?;
CREATE VIEW secrets AS SELECT secret FROM hidden
"""


@pytest.fixture
async def deployment(tmp_path: Path) -> AsyncIterator[LocalDeployment]:
    opened = await LocalDeployment.open(tmp_path / "data")
    try:
        await opened.execute(DEFINITIONS)
        yield opened
    finally:
        await opened.close()


async def rows(deployment: LocalDeployment, sql: str, *params: Any, caller: Caller | None = None) -> list[Any]:
    results, _ = await deployment.execute(sql, params, **({} if caller is None else {"session": caller}))
    return [row if len(row) > 1 else row[0] for row in results[-1].rows]


@pytest.mark.parametrize(
    ("sql", "params", "found"),
    [
        (
            "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_TYPE = 'VIEW'",
            (),
            ["names", "secrets"],
        ),
        (
            "SELECT column_name FROM information_schema.columns WHERE table_name = ? ORDER BY 1 LIMIT ?",
            ("CHILDREN", 2),
            ["id", "made"],
        ),
        (
            "SELECT index_name, column_name, sub_part, expression FROM information_schema.statistics "
            "WHERE table_schema = 'headrace' AND index_name IN ('by_name', 'words')",
            (),
            [("words", None, None, "lower(`note`)"), ("by_name", "name", 5, None)],
        ),
        (
            "SELECT k.constraint_name, k.referenced_table_name, r.delete_rule, r.unique_constraint_name FROM "
            "information_schema.key_column_usage k JOIN information_schema.referential_constraints r "
            "USING (constraint_name)",
            (),
            [("of_parent", "parents", "SET NULL", "PRIMARY")],
        ),
        (
            "SELECT check_clause FROM information_schema.check_constraints",
            (),
            ["((`id` > 0) and (`note` is not null))"],
        ),
        ("SELECT t.c FROM (SELECT COUNT(*) AS c FROM information_schema.engines) AS t", (), [1]),
        ("WITH tables AS (SELECT 7 AS n) SELECT n FROM tables, information_schema.engines", (), [7]),
        (
            "SELECT column_key FROM information_schema.columns WHERE table_name = 'children' ORDER BY ordinal_position",
            (),
            ["UNI", "MUL", "", ""],
        ),
        (
            "SELECT schema_name FROM information_schema.schemata ORDER BY 1",
            (),
            ["headrace", "information_schema", "performance_schema"],
        ),
        ("SELECT information_schema.engines.engine FROM information_schema.engines", (), ["InnoDB"]),
        (
            "SELECT variable_value FROM performance_schema.session_variables WHERE variable_name = 'autocommit'",
            (),
            ["ON"],
        ),
        ("SELECT COUNT(*) FROM information_schema.routines", (), [0]),
        (
            "SELECT (SELECT COUNT(*) FROM information_schema.events), EXISTS (SELECT 1 FROM information_schema.views)",
            (),
            [(0, 1)],
        ),
    ],
)
async def test_any_select_may_ask_it(
    deployment: LocalDeployment, sql: str, params: tuple[Any, ...], found: list[Any]
) -> None:
    assert await rows(deployment, sql, *params) == found


async def test_each_table_has_rows_of_its_columns(deployment: LocalDeployment) -> None:
    for schema, tables in virtual_tables().items():
        for name, table in tables.items():
            [result], _ = await deployment.execute(f"SELECT * FROM {schema}.{name}")
            assert [column.name for column in result.columns] == [column.name for column in table.columns], name
            described = await rows(deployment, f"DESCRIBE {schema}.{name}")
            assert [row[0] for row in described] == [column.name for column in table.columns], name
            for at, column in enumerate(table.columns):
                assert column.nullable or all(row[at] is not None for row in result.rows), (name, column.name)


@pytest.mark.parametrize(
    ("sql", "kind", "message"),
    [
        ("SELECT 1 FROM information_schema.nothing", UnknownName, 'unknown table "information_schema.nothing"'),
        ("SELECT 1 FROM information_schema.tables, hidden", Unsupported, "beside"),
        ("SELECT 1 FROM hidden WHERE secret IN (SELECT id FROM information_schema.processlist)", Unsupported, "beside"),
        ("INSERT INTO hidden SELECT 1 FROM information_schema.tables", Unsupported, "a write"),
        ("CREATE VIEW v AS SELECT engine FROM information_schema.engines", Unsupported, "in a definition"),
        ("CREATE TABLE information_schema.t (a INT)", Unsupported, "information_schema"),
        ("DROP TABLE information_schema.tables", Unsupported, "information_schema"),
        ("SHOW TABLES FROM other", UnknownName, 'unknown database "other"'),
        ("SELECT a.b.c FROM t", UnknownName, 'unknown table "a.b" of column "c"'),
        ("USE information_schema", Unsupported, "without a session"),
        ("SHOW CREATE TABLE information_schema.tables", Unsupported, "DESCRIBE"),
    ],
)
async def test_what_is_refused(deployment: LocalDeployment, sql: str, kind: type[HeadraceError], message: str) -> None:
    with pytest.raises(kind, match=message):
        await deployment.execute(sql)


async def test_an_unknown_name_says_what_it_would_name(deployment: LocalDeployment) -> None:
    asked = {
        "SHOW TABLES FROM other": "database",
        "DESCRIBE nothing": "table or view",
        "SELECT nothing FROM hidden": "column",
        "SELECT h.secret FROM hidden": "column",
        "SELECT 1 FROM nothing": "table or view",
        "DROP TABLE nothing": "table to drop",
        "SELECT @@nothing": "system variable",
    }
    for sql, what in asked.items():
        with pytest.raises(UnknownName) as caught:
            await deployment.execute(sql)
        assert caught.value.what == what, sql


def restricted(**held: set[Privilege]) -> Caller:
    return Caller("ann", Rights({name: frozenset(rights) for name, rights in held.items()}))


ALL_TABLES = [(schema, name) for schema, tables in virtual_tables().items() for name in tables]


async def test_what_one_may_not_see_is_not_told(deployment: LocalDeployment) -> None:
    ann = restricted(children={Privilege.SELECT, Privilege.INSERT}, names={Privilege.SELECT})
    told = []
    for schema, name in ALL_TABLES:
        told += await rows(deployment, f"SELECT * FROM {schema}.{name}", caller=ann)
    for sql in (
        "SHOW TABLES",
        "SHOW TABLE STATUS",
        "SHOW CREATE TABLE children",
        "SHOW FULL COLUMNS FROM children",
        "SHOW VIEWS",
    ):
        told += await rows(deployment, sql, caller=ann)
    assert "children" in repr(told)
    for secret in ("hidden", "secret", "parents", "by_name", "WHERE id = ?"):
        assert secret not in repr(told), secret
    assert {
        row[18]
        for row in await rows(
            deployment, "SELECT * FROM information_schema.columns WHERE table_name = 'children'", caller=ann
        )
    } == {"select,insert"}
    for sql in (
        "SHOW COLUMNS FROM hidden",
        "SHOW INDEX FROM hidden",
        "DESCRIBE parents",
        "SHOW CREATE TABLE hidden",
        "SHOW COLUMNS FROM nothing",
    ):
        with pytest.raises(Forbidden):
            await rows(deployment, sql, caller=ann)
    assert await rows(deployment, "SELECT info FROM information_schema.processlist", caller=ann) == []
    assert len(await rows(deployment, "SELECT info FROM information_schema.processlist")) == 1
    assert await rows(deployment, "SELECT USER(), CURRENT_USER", caller=ann) == [("ann@localhost", "ann@%")]


async def test_a_session_has_a_current_schema(deployment: LocalDeployment) -> None:
    session = Caller("", None, values=SessionValues(schema="headrace"))
    await deployment.execute("USE information_schema", session=session)
    assert session.values.schema == "information_schema"
    asked = "SELECT table_name FROM tables WHERE table_schema = 'headrace' AND table_name = 'hidden'"
    assert await rows(deployment, asked, caller=session) == ["hidden"]
    assert "Tables_in_information_schema" in repr(await deployment.execute("SHOW TABLES", session=session))
    assert await rows(deployment, "SELECT DATABASE()", caller=session) == ["information_schema"]
    for sql in (
        "DROP TABLE hidden",
        "DELETE FROM hidden",
        "INSERT INTO hidden VALUES (1)",
        "CREATE TABLE tables (a INT)",
    ):
        with pytest.raises(Forbidden, match="can be changed"):
            await deployment.execute(sql, session=session)
    await deployment.execute("USE headrace", session=session)
    assert await rows(deployment, "SELECT COUNT(*) FROM hidden", caller=session) == [0]
    session.values.warnings.append(SessionWarning("Warning", 1365, "Division by 0"))
    assert await rows(deployment, "SHOW WARNINGS", caller=session) == [("Warning", 1365, "Division by 0")]
    assert await rows(deployment, "SHOW ERRORS", caller=session) == []
    session.values.variables["time_zone"] = "+02:00"
    assert await rows(deployment, "SHOW VARIABLES LIKE 'time\\_zone'", caller=session) == [("time_zone", "+02:00")]
    assert await rows(deployment, "SHOW GLOBAL VARIABLES LIKE 'time\\_zone'", caller=session) == [
        ("time_zone", "SYSTEM")
    ]


async def test_what_a_text_meant_in_one_schema_it_does_not_mean_in_another(deployment: LocalDeployment) -> None:
    await deployment.execute("CREATE TABLE engines (engine INT); INSERT INTO engines VALUES (7)")
    text = "SELECT engine FROM engines WHERE engine > 1"
    session = Caller("", None, values=SessionValues(schema="headrace"))
    assert await rows(deployment, text, caller=session) == [7]
    await deployment.execute("USE information_schema", session=session)
    assert await rows(deployment, "SELECT engine FROM engines", caller=session) == ["InnoDB"]
    assert await rows(deployment, text, caller=session) == []
    await deployment.execute("USE headrace", session=session)
    assert await rows(deployment, text, caller=session) == [7]


async def test_names_with_the_database(deployment: LocalDeployment) -> None:
    await deployment.execute("INSERT INTO headrace.hidden VALUES (3)")
    await deployment.execute(
        "CREATE TABLE Headrace.named (a INT); CREATE VIEW headrace.v AS SELECT headrace.named.a FROM headrace.named"
    )
    assert await rows(
        deployment, "SELECT headrace.hidden.secret FROM headrace.hidden WHERE headrace.hidden.secret = 3"
    ) == [3]
    assert await rows(deployment, "UPDATE headrace.hidden SET secret = 4 WHERE headrace.hidden.secret = 3") == []
    assert (await rows(deployment, "SHOW TABLES LIKE 'named'")) == ["named"]
    await deployment.execute("DROP VIEW headrace.v; DROP TABLE headrace.named")
