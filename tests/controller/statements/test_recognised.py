"""SELECTs that are known by their tokens are answered as by the full way."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from controller.embedded.local import LocalDeployment
from controller.statements.shapes import AdHocMode
from domains.errors import HeadraceError

SCHEMA = """
CREATE TABLE items (id INT PRIMARY KEY, kind INT, n INT, name VARCHAR(20), at DATETIME, price DECIMAL(8,2), KEY (kind));
CREATE TABLE notes (id INT PRIMARY KEY, item INT, text TEXT, KEY (item))
"""

ROUNDS = 10

SELECTS = [
    "SELECT name, n FROM items WHERE id = {i}",
    "SELECT name AS n, {i} AS five FROM items WHERE kind = {k} ORDER BY id DESC LIMIT {s}",
    "SELECT id FROM items WHERE kind = {k} AND n > {i} ORDER BY 1",
    "SELECT id FROM items WHERE kind IN ({k}, {k}, {k}) AND name <> '{t}'",
    "SELECT kind, COUNT(*) FROM items WHERE kind IN ({k}, {k}) GROUP BY kind",
    "SELECT id FROM items WHERE name = '{t}' OR id = {i}",
    "SELECT id + {i} FROM items WHERE kind = {k} AND id < {i} + 3",
    "SELECT id FROM items WHERE price = {d}",
    "SELECT id FROM items WHERE {k} = kind AND price BETWEEN {d} AND 50",
    "SELECT id FROM items WHERE name = {i}",
    "SELECT id FROM items WHERE id = '{i}'",
    "SELECT id FROM items WHERE at = '2024-01-0{s} 00:00:00'",
    "SELECT id FROM items WHERE kind = {k} AND id NOT IN ({i}, {i})",
    "SELECT i.id, t.text FROM items i JOIN notes t ON t.item = i.id WHERE i.kind = {k} AND t.id < {i}",
    "SELECT i.id, t.text FROM items i LEFT JOIN notes t ON t.item = i.id AND t.id = {i} WHERE i.kind = {k}",
    "SELECT id FROM items WHERE kind = {k} AND id IN (SELECT item FROM notes WHERE id < {i})",
    "SELECT (SELECT MAX(n) FROM items WHERE kind = {k}) AS m FROM items WHERE id = {i}",
    "SELECT id FROM items WHERE kind = -{k}",
    "SELECT id FROM items WHERE kind = ({k})",
    "SELECT DISTINCT n FROM items WHERE kind = {k} ORDER BY n LIMIT {s} OFFSET {s}",
    "/* {i} */ SELECT id FROM items WHERE kind = {k} -- {i}",
    "SELECT id FROM items WHERE kind = {k} UNION SELECT id FROM notes WHERE item = {i}",
    "WITH x AS (SELECT id FROM items WHERE kind = {k}) SELECT COUNT(*) FROM x WHERE id > {i}",
    "SELECT ROUND(price, {s}) FROM items WHERE kind = {k}",
    "SELECT COUNT(*) FROM items WHERE kind = {k} HAVING COUNT(*) > {s}",
    "SELECT id FROM items WHERE kind IN ({k}, {k}) AND n > {s} ORDER BY n DESC, id LIMIT {s}",
    "SELECT n, COUNT(*) FROM items WHERE kind IN ({k}, {k}) AND id > {i} GROUP BY n ORDER BY n",
    "SELECT {d} AS d, {d} * n FROM items WHERE kind = {k}",
    "SELECT id FROM items WHERE at = '{t}' OR at = '2024-01-0{s}'",
    "SELECT id FROM items WHERE at = '2024-01-0{s}'",
    "SELECT name FROM items WHERE id IN ({i}, {i}) ORDER BY name LIMIT {s};",
]


def filled(template: str, dice: Random) -> str:
    while "{" in template:
        template = template.replace("{i}", str(dice.randrange(200)), 1)
        template = template.replace("{k}", str(dice.randrange(12)), 1)
        template = template.replace("{s}", str(1 + dice.randrange(4)), 1)
        template = template.replace("{d}", f"{dice.randrange(40)}.{dice.randrange(100):02}", 1)
        template = template.replace("{t}", f"name{dice.randrange(9)}", 1)
    return template


@pytest.mark.parametrize("mode", [AdHocMode.ANSWER, AdHocMode.KEEP])
async def test_what_is_recognised_is_answered_as_by_the_full_way(
    tmp_path: Path, mode: AdHocMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.statements.shapes.KEEP_SECONDS", 0.0)
    monkeypatch.setattr("controller.statements.shapes.TABLE_VIEWS", 64)  # Room for all of these shapes.
    seed = Random().randrange(10**6)
    print("seed", seed)
    dice = Random(seed)
    deployment = await LocalDeployment.open(tmp_path / "here", ad_hoc=mode)
    full = await LocalDeployment.open(tmp_path / "there", ad_hoc=AdHocMode.ANSWER)
    full.selects.known_shapes.recognised = lambda sql, most: None  # type: ignore[method-assign]
    items = ", ".join(
        f"({i}, {i % 12}, {i % 7}, 'name{i % 9}', '2024-01-0{1 + i % 9} 00:00:00', {i % 40}.{i % 100:02})"
        for i in range(200)
    )
    notes = ", ".join(f"({i}, {i % 50}, 'text {i % 5}')" for i in range(100))
    recognised, asked = 0, list[str]()
    try:
        for one in (deployment, full):
            await one.execute(f"{SCHEMA}; INSERT INTO items VALUES {items}; INSERT INTO notes VALUES {notes}")
        for number in range(ROUNDS):
            for template in SELECTS:
                sql = dice.choice(asked) if asked and dice.random() < 0.3 else filled(template, dice)
                asked.append(sql)
                recognised += deployment.selects.known_shapes.recognised(sql, 100) is not None
                (ours,), _ = await deployment.execute(sql)
                (theirs,), _ = await full.execute(sql)
                assert ours.columns == theirs.columns, sql
                in_order = "ORDER BY" in sql
                assert list(ours.rows) == list(theirs.rows) if in_order else sorted(ours.rows) == sorted(theirs.rows), (
                    sql
                )
                await deployment.selects.settled()
            new = f"({1000 + number}, {number}, 3, 'name1', '2024-01-03 00:00:00', 7.00)"
            longer = f"ALTER TABLE items MODIFY name VARCHAR({20 + number // 4})"
            for one in (deployment, full):
                await one.execute(longer)  # Plans of another schema hold no more, a text that is asked again or not.
                await one.execute(f"INSERT INTO items VALUES {new}; DELETE FROM notes WHERE id = {number}")
        assert recognised > ROUNDS * len(SELECTS) / 5
        if mode is AdHocMode.KEEP:
            assert any("n > ?" in each.create_view and each.view for each in deployment.queries()), "of a whole shape"
    finally:
        await deployment.close()
        await full.close()


async def test_an_error_is_that_of_the_text_as_it_was_sent(tmp_path: Path) -> None:
    deployment = await LocalDeployment.open(tmp_path)
    try:
        await deployment.execute(SCHEMA)
        await deployment.execute("SELECT name FROM items WHERE id = 7")
        assert deployment.selects.known_shapes.recognised("SELECT name FROM items WHERE id = 8", 100) is not None
        await deployment.execute("ALTER TABLE items DROP COLUMN name")
        with pytest.raises(HeadraceError) as known:
            await deployment.execute("SELECT name FROM items WHERE id = 8")
        deployment.selects.known_shapes.recognised = lambda sql, most: None  # type: ignore[method-assign]
        with pytest.raises(HeadraceError) as full:
            await deployment.execute("SELECT name FROM items WHERE id = 8")
        assert str(known.value) == str(full.value)
    finally:
        await deployment.close()


TEXTS = [
    "UPDATE items SET n = n - {k} WHERE id = {i}",
    "UPDATE items SET n = n - {k}, name = '{t}' WHERE id = {i} AND n > {s}",
    "DELETE FROM notes WHERE id = {i}; INSERT INTO notes VALUES ({i}, {i}, '{t}')",
    "INSERT INTO notes (id, item, text) VALUES ({i}, {k}, '{t}')",
    "BEGIN; SELECT n FROM items WHERE id = {i}; UPDATE items SET n = n + {s} WHERE id = {i}; COMMIT",
    "BEGIN; UPDATE items SET n = {k} WHERE id = {s}; SELECT n, {i}, '{t}' FROM items WHERE id = {s}; ROLLBACK",
    "START TRANSACTION; SELECT n FROM items WHERE kind = {k} AND id < {i} ORDER BY id FOR UPDATE;\n COMMIT",
    "BEGIN; INSERT INTO notes VALUES ({i}, {i}, '{t}'); UPDATE items SET price = {d} WHERE id = {i}; COMMIT",
    "BEGIN; UPDATE items SET price = {d} WHERE id = {i}; SELECT nothing FROM items WHERE id = {i}; COMMIT",
    "UPDATE items SET n = n + 1 WHERE id = {i}; SELECT id FROM items WHERE n = '{t}'; UPDATE items SET at = '{t}'",
    "SELECT COUNT(*) FROM notes WHERE item = {k}; DELETE FROM notes WHERE item = {k} AND text = '{t}'; SELECT {i} + 1",
    "UPDATE items SET n = n + {i} WHERE kind = {k}; SELECT id, text FROM notes ORDER BY id LIMIT {s}",
]


async def test_texts_of_a_known_shape_do_what_they_say(tmp_path: Path) -> None:
    seed = Random().randrange(10**6)
    print("seed", seed)
    dice = Random(seed)
    deployment = await LocalDeployment.open(tmp_path / "here")
    full = await LocalDeployment.open(tmp_path / "there", ad_hoc=AdHocMode.ANSWER)
    full.selects.known_shapes.recognised = lambda sql, most: None  # type: ignore[method-assign]
    full.selects.texts._of_shape.statements = lambda sql: None  # type: ignore[method-assign]
    items = ", ".join(f"({i}, {i % 12}, {i % 7}, 'name{i % 9}', NULL, {i % 40}.{i % 100:02})" for i in range(200))
    known = 0
    try:
        for one in (deployment, full):
            await one.execute(f"{SCHEMA}; INSERT INTO items VALUES {items}")
        for number in range(ROUNDS * 2):
            for template in TEXTS:
                sql = filled(template, dice)
                known += deployment.selects.texts._of_shape.statements(sql) is not None
                told = []
                for one in (deployment, full):
                    try:
                        results, _ = await one.execute(
                            sql, atomic=number % 4 == 0 and "BEGIN" not in sql and "TRANS" not in sql
                        )
                        told.append(repr([(each.columns, each.rows, each.rows_affected) for each in results]))
                    except HeadraceError as error:
                        told.append(f"{type(error)} {error} {error.hint}")
                assert told[0] == told[1], sql
            if number == ROUNDS:
                for one in (deployment, full):
                    await one.execute("ALTER TABLE items MODIFY name VARCHAR(5), MODIFY n BIGINT")
        for table in ("items", "notes"):
            ((ours,), _), ((theirs,), _) = [
                await one.execute(f"SELECT * FROM {table} ORDER BY id") for one in (deployment, full)
            ]
            assert list(ours.rows) == list(theirs.rows)
        assert known > ROUNDS * len(TEXTS)
        one = "SELECT n FROM items WHERE id = 77"
        assert deployment.selects.known_shapes.recognised(one, 100) is not None, "learnt in the midst of a text"
    finally:
        await deployment.close()
        await full.close()
