"""SHOW and DESCRIBE: MySQL's columns under MySQL's names."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.local import LocalDeployment
from domains.errors import Unsupported

DEFINITIONS = """
CREATE TABLE t (a INT AUTO_INCREMENT PRIMARY KEY, b TEXT, c DATETIME DEFAULT CURRENT_TIMESTAMP, KEY k (c));
CREATE VIEW v AS SELECT a FROM t
"""


async def test_show_has_mysqls_columns(tmp_path: Path) -> None:
    deployment = await LocalDeployment.open(tmp_path / "data")
    try:
        await deployment.execute(DEFINITIONS)

        async def asked(sql: str) -> list[tuple[object, ...]]:
            [result], _ = await deployment.execute(sql)
            return [tuple(column.name for column in result.columns), *result.rows]

        assert await asked("SHOW TABLES") == [("Tables_in_headrace",), ("t",), ("v",)]
        assert await asked("SHOW FULL TABLES") == [
            ("Tables_in_headrace", "Table_type"),
            ("t", "BASE TABLE"),
            ("v", "VIEW"),
        ]
        plain = await asked("SHOW COLUMNS FROM t")
        assert plain == await asked("DESCRIBE t")
        assert plain == [
            ("Field", "Type", "Null", "Key", "Default", "Extra"),
            ("a", "INT", "NO", "PRI", None, "auto_increment"),
            ("b", "TEXT", "YES", "", None, ""),
            ("c", "DATETIME", "YES", "MUL", "CURRENT_TIMESTAMP", "DEFAULT_GENERATED"),
        ]
        assert await asked("SHOW FULL COLUMNS FROM t") == [
            ("Field", "Type", "Collation", "Null", "Key", "Default", "Extra", "Privileges", "Comment"),
            ("a", "INT", None, "NO", "PRI", None, "auto_increment", "", ""),
            ("b", "TEXT", "utf8mb4_bin", "YES", "", None, "", "", ""),
            ("c", "DATETIME", None, "YES", "MUL", "CURRENT_TIMESTAMP", "DEFAULT_GENERATED", "", ""),
        ]
    finally:
        await deployment.close()


@pytest.mark.parametrize("join", ["FULL JOIN u ON 1 = 0", "FULL JOIN u", "NATURAL FULL JOIN u"])
async def test_a_full_join_is_refused_and_not_answered(tmp_path: Path, join: str) -> None:
    deployment = await LocalDeployment.open(tmp_path / "data")
    try:
        await deployment.execute("CREATE TABLE t (a INT); CREATE TABLE u (a INT); INSERT INTO t VALUES (1)")
        with pytest.raises(Unsupported, match="FULL JOIN is not supported yet"):
            await deployment.execute(f"SELECT COUNT(*) FROM t {join}")
    finally:
        await deployment.close()
