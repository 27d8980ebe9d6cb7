"""SHOW and DESCRIBE: MySQL's columns under MySQL's names, and which of their rows LIKE and WHERE keep."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from controller.embedded.local import LocalDeployment
from domains.errors import HeadraceError, SqlError, SqlSyntaxError, UnknownName, Unsupported

DEFINITIONS = """
CREATE TABLE t (a INT AUTO_INCREMENT PRIMARY KEY, b TEXT, c DATETIME DEFAULT CURRENT_TIMESTAMP, KEY k (c));
CREATE TABLE A_1 (x INT NOT NULL DEFAULT 7, y DECIMAL(4,2) DEFAULT 1.5, z BINARY(2) DEFAULT 'ab');
CREATE TABLE ab1 (x INT);
CREATE VIEW v AS SELECT a FROM t;
CREATE VIEW also AS SELECT b FROM t
"""
RIGHTS = "select,insert,update,references"


@pytest.fixture
async def deployment(tmp_path: Path) -> AsyncIterator[LocalDeployment]:
    opened = await LocalDeployment.open(tmp_path / "data")
    try:
        await opened.execute(DEFINITIONS)
        yield opened
    finally:
        await opened.close()


async def asked(deployment: LocalDeployment, sql: str, *params: Any) -> list[tuple[object, ...]]:
    """The names of the columns, then the rows."""
    [result], _ = await deployment.execute(sql, params)
    return [tuple(column.name for column in result.columns), *result.rows]


async def test_show_has_mysqls_columns(deployment: LocalDeployment) -> None:
    names = ["ab1", "also", "A_1", "t", "v"]
    assert await asked(deployment, "SHOW TABLES") == [("Tables_in_headrace",), *((name,) for name in names)]
    assert await asked(deployment, "SHOW FULL TABLES") == [
        ("Tables_in_headrace", "Table_type"),
        *((name, "VIEW" if name in ("also", "v") else "BASE TABLE") for name in names),
    ]
    plain = await asked(deployment, "SHOW COLUMNS FROM t")
    assert plain == await asked(deployment, "DESCRIBE t") == await asked(deployment, "SHOW FIELDS IN t")
    assert plain == [
        ("Field", "Type", "Null", "Key", "Default", "Extra"),
        ("a", "int", "NO", "PRI", None, "auto_increment"),
        ("b", "text", "YES", "", None, ""),
        ("c", "datetime(6)", "YES", "MUL", "CURRENT_TIMESTAMP(6)", "DEFAULT_GENERATED"),
    ]
    assert await asked(deployment, "SHOW FULL COLUMNS FROM t") == [
        ("Field", "Type", "Collation", "Null", "Key", "Default", "Extra", "Privileges", "Comment"),
        ("a", "int", None, "NO", "PRI", None, "auto_increment", RIGHTS, ""),
        ("b", "text", "utf8mb4_bin", "YES", "", None, "", RIGHTS, ""),
        ("c", "datetime(6)", None, "YES", "MUL", "CURRENT_TIMESTAMP(6)", "DEFAULT_GENERATED", RIGHTS, ""),
    ]
    assert [row[4] for row in await asked(deployment, "DESCRIBE A_1")] == ["Default", "7", "1.50", "0x6162"]


@pytest.mark.parametrize(
    ("sql", "params", "kept"),
    [
        ("SHOW TABLES LIKE 'a%'", (), ["ab1", "also", "A_1"]),
        ("SHOW TABLES LIKE 'A__'", (), ["ab1", "A_1"]),
        ("SHOW TABLES LIKE 'a\\_1'", (), ["A_1"]),
        ("SHOW TABLES LIKE 'none'", (), []),
        ("SHOW FULL TABLES LIKE '%s%'", (), ["also"]),
        ("SHOW TABLES WHERE Tables_in_headrace = 't' OR tables_in_headrace > ?", ("u",), ["t", "v"]),
        ("SHOW FULL TABLES WHERE Table_type LIKE 'VI%'", (), ["also", "v"]),
        ("SHOW FULL TABLES WHERE Table_type = 'VIEW' AND LENGTH(Tables_in_headrace) = 1", (), ["v"]),
        ("SHOW VIEWS LIKE 'a%'", (), ["also"]),
        ("SHOW VIEWS WHERE view <> 'also'", (), ["v"]),
        ("SHOW VIEWS LIKE ?", ("%S_",), ["also"]),
        ("SHOW COLUMNS FROM t LIKE 'B'", (), ["b"]),
        ("SHOW COLUMNS FROM v LIKE '%'", (), ["a"]),
        ("SHOW COLUMNS FROM t WHERE `Key` <> ''", (), ["a", "c"]),
        ("SHOW COLUMNS FROM t WHERE `Default` IS NOT NULL", (), ["c"]),
        ("SHOW COLUMNS FROM A_1 WHERE `Default` IN ('7', '1.50')", (), ["x", "y"]),
        ("SHOW FULL COLUMNS FROM t WHERE Collation IS NULL AND Field >= ?", ("b",), ["c"]),
        ("DESCRIBE t b", (), ["b"]),
        ("DESC t '_'", (), ["a", "b", "c"]),
        ("EXPLAIN t `c`", (), ["c"]),
    ],
)
async def test_like_and_where_keep_some_rows(
    deployment: LocalDeployment, sql: str, params: tuple[Any, ...], kept: list[str]
) -> None:
    assert [row[0] for row in (await asked(deployment, sql, *params))[1:]] == kept


async def test_the_column_of_show_tables_names_the_pattern(deployment: LocalDeployment) -> None:
    assert (await asked(deployment, "SHOW FULL TABLES LIKE 't%'"))[0] == ("Tables_in_headrace (t%)", "Table_type")
    assert (await asked(deployment, "SHOW COLUMNS FROM t LIKE 'b'"))[0][0] == "Field"


@pytest.mark.parametrize(
    ("sql", "kind", "message"),
    [
        ("SHOW TABLES WHERE Table_type = 'VIEW'", SqlError, 'unknown column "Table_type"'),
        ("SHOW COLUMNS FROM t WHERE Typ = 'INT'", SqlError, 'unknown column "Typ"'),
        ("SHOW TABLES LIKE 'a' WHERE 1", SqlError, "LIKE and WHERE"),
        ("SHOW TABLES FROM d LIKE 'a'", UnknownName, 'unknown database "d"'),
        ("SHOW COLUMNS FROM t WHERE COUNT(*) > 1", SqlError, "aggregate"),
        ("SHOW COLUMNS FROM t WHERE Field IN (SELECT b FROM t)", Unsupported, "subquer"),
        ("SHOW TABLES LIKE", SqlSyntaxError, "expected a pattern"),
        ("SHOW TABLES LIKE WHERE 1", SqlSyntaxError, "expected a pattern"),
        ("SHOW TABLES LIKE 7", SqlSyntaxError, "expected a pattern"),
        ("SHOW COLUMNS", SqlSyntaxError, "expected FROM"),
        ("SHOW BINARY LOGS", Unsupported, "SHOW BINARY LOGS"),
    ],
)
async def test_what_show_refuses(
    deployment: LocalDeployment, sql: str, kind: type[HeadraceError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        await deployment.execute(sql)


@pytest.mark.parametrize("join", ["FULL JOIN u ON 1 = 0", "FULL JOIN u", "NATURAL FULL JOIN u"])
async def test_a_full_join_is_refused_and_not_answered(tmp_path: Path, join: str) -> None:
    deployment = await LocalDeployment.open(tmp_path / "data")
    try:
        await deployment.execute("CREATE TABLE t (a INT); CREATE TABLE u (a INT); INSERT INTO t VALUES (1)")
        with pytest.raises(Unsupported, match="FULL JOIN"):
            await deployment.execute(f"SELECT COUNT(*) FROM t {join}")
    finally:
        await deployment.close()
