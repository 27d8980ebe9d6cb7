"""Neighbours beyond 2^53 are told apart by every statement and look-up, whichever kind the other side has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from controller.embedded.local import LocalDeployment
from domains.errors import TypeViolation, Unsupported

ONE, NEXT = 1234567890123456789, 1234567890123456790
WIDE = 123456789012345678901234567890
TABLES = f"""
CREATE TABLE sn (id BIGINT PRIMARY KEY, n INT);
CREATE TABLE un (id BIGINT UNSIGNED PRIMARY KEY);
CREATE TABLE wide (id DECIMAL(30,0) PRIMARY KEY);
CREATE TABLE named (name VARCHAR(40) PRIMARY KEY);
INSERT INTO sn VALUES ({ONE}, 1), ({NEXT}, 2), (9007199254740992, 3), (9007199254740993, 4), (7, 5);
INSERT INTO un VALUES (18446744073709551614), (18446744073709551615);
INSERT INTO wide VALUES ({WIDE}), ({WIDE + 1});
INSERT INTO named VALUES ('{ONE}'), ('{NEXT}.0'), ('{WIDE}'), ('7'), ('07'), ('seven');
CREATE EXT VIEW by_id AS SELECT n FROM sn WHERE id = ?;
CREATE EXT VIEW after_id AS SELECT n FROM sn WHERE id > ?;
CREATE EXT VIEW by_name AS SELECT name FROM named WHERE name = ?;
CREATE EXT VIEW joined AS SELECT name FROM sn JOIN named ON named.name = sn.id WHERE sn.id = ?;
CREATE EXT VIEW turned AS SELECT sn.id FROM named JOIN sn ON named.name = sn.id WHERE named.name = ?;
"""


@pytest.fixture(params=[1, 4], ids=["one shard", "four shards"])
async def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LocalDeployment]:
    opened = await LocalDeployment.open(tmp_path, shards=request.param)
    await opened.execute(TABLES)
    yield opened
    await opened.close()


async def rows(deployment: LocalDeployment, sql: str, *params: Any) -> list[Any]:
    (result,), _ = await deployment.execute(sql, params)
    return sorted(value for (value,) in result.rows)


SELECTS: list[tuple[str, tuple[Any, ...], list[int]]] = [
    ("SELECT n FROM sn WHERE id = ?", (str(ONE),), [1]),
    (f"SELECT n FROM sn WHERE id = '{ONE}'", (), [1]),
    (f"SELECT n FROM sn WHERE '{ONE}' = id AND n > 0", (), [1]),
    (f"SELECT n FROM sn WHERE id IN ('{ONE}', '7')", (), [1, 5]),
    ("SELECT n FROM sn WHERE id IN (?)", ([str(NEXT), "7"],), [2, 5]),
    (f"SELECT n FROM sn WHERE id NOT IN ('{ONE}', '7') AND id <> '{NEXT}'", (), [3, 4]),
    ("SELECT n FROM sn WHERE id > ?", (str(ONE),), [2]),
    (f"SELECT n FROM sn WHERE id > '{ONE}'", (), [2]),
    (f"SELECT n FROM sn WHERE id >= '{ONE}.5'", (), [2]),
    (f"SELECT n FROM sn WHERE id BETWEEN '{ONE}' AND '{ONE}'", (), [1]),
    ("SELECT n FROM sn WHERE id BETWEEN ? AND ?", ("9007199254740993", str(ONE)), [1, 4]),
    (f"SELECT n FROM sn WHERE id <=> '{NEXT}'", (), [2]),
    ("SELECT n FROM sn WHERE id = 9007199254740993e0", (), [3]),
    ("SELECT n FROM sn WHERE id = ?", (9007199254740992.0,), [3]),
    ("SELECT n FROM sn WHERE id IN (SELECT name FROM named)", (), [1, 2, 5]),
    ("SELECT n FROM sn WHERE id NOT IN (SELECT name FROM named)", (), [3, 4]),
    ("SELECT n FROM sn JOIN named ON sn.id = named.name", (), [1, 2, 5, 5]),
    ("SELECT n FROM named LEFT JOIN sn ON sn.id = named.name WHERE n IS NOT NULL", (), [1, 2, 5, 5]),
    ("SELECT n FROM sn WHERE id = ?", (b"7",), [5]),
    ("SELECT n FROM sn WHERE id < ? + 1", (b"7",), [5]),
    ("SELECT n FROM sn WHERE id = x'07'", (), [5]),
    ("SELECT COUNT(*) FROM un WHERE id = '18446744073709551615'", (), [1]),
    ("SELECT COUNT(*) FROM wide WHERE id = ?", (str(WIDE),), [1]),
    ("SELECT COUNT(*) FROM wide JOIN named ON wide.id = named.name", (), [1]),
    ("SELECT COUNT(*) FROM named WHERE name = ?", (ONE,), [1]),
    ("SELECT COUNT(*) FROM named WHERE name = 7", (), [2]),
    ("SELECT COUNT(*) FROM named WHERE name = '7'", (), [1]),
]


@pytest.mark.parametrize(("sql", "params", "expected"), SELECTS, ids=[case[0] for case in SELECTS])
async def test_selects(deployment: LocalDeployment, sql: str, params: tuple[Any, ...], expected: list[int]) -> None:
    assert await rows(deployment, sql, *params) == expected


WRITES: list[tuple[str, tuple[Any, ...], list[int]]] = [
    ("id = ?", (str(ONE),), [2, 3, 4, 5]),
    ("id IN (?, ?)", (str(ONE), "7.0"), [2, 3, 4]),
    (f"id <> '{ONE}'", (), [1]),
    ("id > ?", (str(ONE),), [1, 3, 4, 5]),
    ("id BETWEEN ? AND ?", ("9007199254740993", str(ONE)), [2, 3, 5]),
    ("id = ?", (f"{ONE}.5",), [1, 2, 3, 4, 5]),
    ("id IN (SELECT name FROM named)", (), [3, 4]),
    ("id = DATE'2024-01-31'", (), [1, 2, 3, 4, 5]),
]


@pytest.mark.parametrize(("where", "params", "left"), WRITES, ids=[case[0] for case in WRITES])
async def test_writes(deployment: LocalDeployment, where: str, params: tuple[Any, ...], left: list[int]) -> None:
    await deployment.execute(f"DELETE FROM sn WHERE {where}", params)
    assert await rows(deployment, "SELECT n FROM sn") == left


async def test_look_ups(deployment: LocalDeployment) -> None:
    assert await deployment.pages("by_id", [[str(ONE)], [NEXT], [f"{ONE}.5"]]) == [b'{"n":1}', b'{"n":2}', b""]
    assert await deployment.pages("after_id", [[str(ONE)], [f"{ONE}.5"]]) == [b'{"n":2}', b'{"n":2}']
    assert await deployment.pages("joined", [[str(ONE)], ["9007199254740993"]]) == [f'{{"name":"{ONE}"}}'.encode(), b""]
    assert await deployment.pages("turned", [[str(ONE)], ["07"], [f"{NEXT}"]]) == [
        f'{{"id":{ONE}}}'.encode(),
        b'{"id":7}',
        b"",
    ]
    await deployment.execute(f"DELETE FROM named WHERE name = {ONE}")
    assert await deployment.pages("joined", [[str(ONE)]]) == [b""]


async def test_a_number_for_a_text_column(deployment: LocalDeployment) -> None:
    """It equals several texts, of which a look-up would find one."""
    with pytest.raises(TypeViolation, match="the number in a text"):
        await deployment.pages("by_name", [[7]])
    assert await deployment.pages("by_name", [["7"]]) == [b'{"name":"7"}']


async def test_one_parameter_for_a_number_and_a_text(deployment: LocalDeployment) -> None:
    """Given '07', a 7 and a '7' are equal to each other, and not both to the value."""
    with pytest.raises(Unsupported, match="columns of the types"):
        await deployment.execute("CREATE EXT VIEW v AS SELECT n FROM sn, named WHERE id = :x AND name = :x")


async def test_one_parameter_of_a_union_for_a_number_and_a_text(deployment: LocalDeployment) -> None:
    union = "SELECT n AS one FROM sn WHERE id = :x UNION SELECT name FROM named WHERE name = :x"
    with pytest.raises(Unsupported, match="columns of several kinds"):
        await deployment.execute(f"CREATE EXT VIEW v AS {union}")
