"""Tables and views as the statements that make them: run anew, these make the same, and are said the same again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from controller.embedded.local import LocalDeployment
from domains.errors import HeadraceError
from domains.language.types import TableSchema
from migrations.flow.plan import State

DEFINITIONS = r"""
CREATE TABLE t (a INT AUTO_INCREMENT PRIMARY KEY, gone INT, `b c` VARCHAR(9) NOT NULL DEFAULT 'it''s \\', `d``e` TEXT,
  at DATETIME(6) DEFAULT CURRENT_TIMESTAMP, day DATE DEFAULT '2026-01-31', KEY (day), UNIQUE KEY u (`b c`, a),
  KEY `of both` (`d``e`, at));
CREATE TABLE u (x BIGINT UNSIGNED DEFAULT 18446744073709551615, y DECIMAL(30,4) DEFAULT -1.5, z BINARY(2) DEFAULT 'ab',
  f DOUBLE NOT NULL DEFAULT -1.5e-300, g BOOL DEFAULT TRUE, n INT DEFAULT NULL, m MEDIUMTEXT, w VARBINARY(3) NOT NULL);
CREATE TABLE kept (a INT, b INT AS (a + 1) STORED NOT NULL, c VARCHAR(9) AS (CONCAT('x''', b)), KEY (b),
  m DATETIME ON UPDATE CURRENT_TIMESTAMP, CONSTRAINT `the up` CHECK (a > 0 AND b <> 7 OR c IN ('a', 'b')),
  CHECK (c <> 'y'));
CREATE TABLE spread (a INT, k INT, PRIMARY KEY (k, a)) SHARD BY (a) SHARDS 1;
CREATE VIEW inner_one AS SELECT a, `b c` AS name, day FROM t WHERE a > 3;
CREATE EXT VIEW outer_one (p, q) AS SELECT name, COUNT(*) FROM inner_one WHERE day = ? GROUP BY name;
CREATE VIEW star AS SELECT u.*, t.day FROM u JOIN t ON t.a = u.x WHERE y > 1.50 AND z IN (x'6162', 'cd');
CREATE EXT VIEW natural_one AS SELECT * FROM spread NATURAL JOIN (SELECT a, day FROM t) s WHERE k = :who;
CREATE EXT VIEW hinted AS WITH c AS (SELECT a, k FROM spread)
  SELECT /*+ PARTIAL_BY(a) */ k, CASE WHEN k > 1 THEN 'x\\''y' END AS s FROM c -- a comment
  WHERE NOT (k <=> NULL) AND a = ? AND k IN (?) ORDER BY k DESC;
"""
LATER = """
ALTER TABLE t DROP COLUMN gone, ADD COLUMN late INT NOT NULL, ADD KEY (late);
ALTER TABLE u ADD COLUMN a INT;
CREATE VIEW base AS SELECT a FROM t WHERE a < 100;
CREATE OR REPLACE VIEW inner_one AS SELECT base.a, `b c` AS name, day FROM base JOIN t ON t.a = base.a;
DROP TABLE IF EXISTS nothing
"""


def as_new(schema: TableSchema) -> TableSchema:
    """Its columns in their places as a table has them that was never altered."""
    places = {at: place for place, at in enumerate(schema.live())}

    def moved(keys: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(places[at] for at in key) for key in keys)

    columns = tuple(
        replace(schema.columns[at], default=schema.columns[at].default if schema.columns[at].has_default else None)
        for at in schema.live()
    )
    shard_by = None if schema.shard_by is None else places[schema.shard_by]
    (primary,) = moved((schema.primary_key,))
    return replace(
        schema,
        columns=columns,
        primary_key=primary,
        unique=moved(schema.unique),
        indexes=moved(schema.indexes),
        shard_by=shard_by,
        generation=0,
    )


def shown(state: State) -> dict[str, object]:
    """All that whoever uses the tables and views sees of them, but for views of ad-hoc SELECTs."""
    views = {name: view for name, view in state.catalog.views.items() if not view.ad_hoc}
    return {
        "tables": {name: as_new(table) for name, table in state.catalog.tables.items()},
        "columns": {name: state.planned[name].columns for name in views},
        "parameters": {name: [(p.name, p.kind, p.type) for p in state.planned[name].parameters] for name in views},
        "declared": {view.name: (view.external, view.columns) for view in views.values()},
    }


@pytest.mark.parametrize("shards", [1, 3])
async def test_a_deployment_is_made_anew_from_its_schema(tmp_path: Path, shards: int) -> None:
    one, other = [await LocalDeployment.open(tmp_path / name, shards=shards) for name in ("one", "other")]
    try:
        assert one.schema() == ""
        await one.execute(DEFINITIONS)
        await one.execute(LATER)
        await one.execute("SELECT COUNT(*) FROM star")
        text = one.schema()
        await other.execute(text)
        assert shown(other.state) == shown(one.state)
        assert other.schema() == text
        assert "a comment" in text, "what says the same as ever keeps its text"
    finally:
        await one.close()
        await other.close()


async def test_show_create_has_mysqls_columns_and_is_taken_back(tmp_path: Path) -> None:
    one, other = [await LocalDeployment.open(tmp_path / name) for name in ("one", "other")]
    try:
        await one.execute(DEFINITIONS)
        for name in one.state.catalog.tables:
            ((created,), _) = await one.execute(f"SHOW CREATE TABLE {name}")
            assert [column.name for column in created.columns] == ["Table", "Create Table"]
            await other.execute(created.rows[0][1])
        for view in ("INNER_ONE", "outer_one", "star", "natural_one", "hinted"):
            ((created,), _) = await one.execute(f"SHOW CREATE VIEW {view}")
            names = ["View", "Create View", "character_set_client", "collation_connection"]
            assert [column.name for column in created.columns] == names
            ((as_table,), _) = await one.execute(f"SHOW CREATE TABLE {view}")
            assert as_table.rows == created.rows
            assert created.rows[0][::2] == (view.lower(), "utf8mb4")
            await other.execute(created.rows[0][1])
        for kind in ("columns", "parameters", "declared"):
            assert shown(other.state)[kind] == shown(one.state)[kind]
        for name in one.state.catalog.tables:
            texts = [(await each.execute(f"SHOW CREATE TABLE {name}"))[0][0].rows for each in (one, other)]
            assert texts[0] == texts[1]
            assert other.state.catalog.tables[name].shard_by == one.state.catalog.tables[name].shard_by
        ((created,), _) = await one.execute("SHOW CREATE TABLE spread")
        assert created.rows[0][1] == (
            "CREATE TABLE `spread` (\n  `a` int NOT NULL,\n  `k` int NOT NULL,\n  PRIMARY KEY (`k`,`a`)\n)"
            " ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin /*H! SHARD BY (`a`) SHARDS 1 */"
        )
        ((created,), _) = await one.execute("SHOW CREATE VIEW outer_one")
        head = "CREATE ALGORITHM=UNDEFINED DEFINER=`root`@`%` SQL SECURITY DEFINER /*H! EXT */ VIEW"
        assert created.rows[0][1].startswith(f"{head} `outer_one` (`p`,`q`) AS SELECT")
    finally:
        await one.close()
        await other.close()


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SHOW CREATE TABLE nothing", 'unknown table or view "nothing"'),
        ("SHOW CREATE VIEW t", '"t" is a table'),
        ("SHOW CREATE TABLE", "wants one name"),
        ("SHOW CREATE TABLE t LIKE 'a'", "wants one name"),
        ("SHOW CREATE TABLE d.t", 'unknown database "d"'),
        ("SHOW CREATE INDEX i", 'unexpected "CREATE"'),
    ],
)
async def test_what_show_create_refuses(tmp_path: Path, sql: str, message: str) -> None:
    one = await LocalDeployment.open(tmp_path)
    try:
        await one.execute("CREATE TABLE t (a INT)")
        with pytest.raises(HeadraceError, match=message):
            await one.execute(sql)
    finally:
        await one.close()
