"""What clients and tools ask of a database when they connect and look around, as they were recorded to ask it: all is
answered, and as MariaDB answers it, but where MySQL 8 answers otherwise."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import asyncmy
import asyncmy.errors
import pytest

from domains.errors import UnknownName
from headrace.embedding import embedded
from loadgen.bench import servers

SCHEMA, ASKED = (
    part.strip().split("\n\n")
    for part in (Path(__file__).parent / "introspection.txt").read_text("utf-8").split("\n----\n")
)
MISSING = servers.missing("mariadb")
Answer = tuple[list[str], list[tuple[Any, ...]]] | None
"""Names of columns and rows; None: there is no such table."""

NOT_KEPT = """
CARDINALITY TABLE_ROWS AVG_ROW_LENGTH DATA_LENGTH MAX_DATA_LENGTH INDEX_LENGTH AUTO_INCREMENT CREATE_TIME UPDATE_TIME
ROWS DATA_FREE MAX_INDEX_LENGTH TEMPORARY
"""
OTHERS = "VERSION DEFINER COLLATION_CONNECTION CHARACTER_SET_CLIENT PRIVILEGES IGNORED VISIBLE EXPRESSION"
"""Columns that MySQL 8 has and MariaDB has not, or that have another value there: NO ACTION is RESTRICT."""
LEFT_OUT = frozenset((NOT_KEPT + OTHERS).split())
WIDTHS = re.compile(r"\b(bigint|mediumint|smallint|tinyint|int|year)\((?!1\))\d+\)")


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with embedded(tmp_path_factory.mktemp("introspection"), read_your_writes=True) as db:
        for text in SCHEMA:
            db.execute(text)
        yield db


def answer_of(db: Any, sql: str) -> Answer:
    try:
        result = db.execute(sql)
    except UnknownName:
        return None
    return [column.name for column in result.columns], [tuple(row) for row in result.rows]


@pytest.mark.parametrize("sql", ASKED)
def test_all_of_it_is_answered(ours: Any, sql: str) -> None:
    found = answer_of(ours, sql)
    absent = re.search(r"`(?:zz|pdt|select \* from pdt)`$", sql)
    assert (found is None) is (absent is not None)


@pytest.mark.skipif(MISSING is not None, reason=MISSING or "")
def test_mariadb_answers_the_same(ours: Any, tmp_path: Path) -> None:
    """By a server of its own: some of what is asked is not of one database, and meets what other tests make."""
    compared = [sql for sql in ASKED if "@@" not in sql and not re.match(r"(?i)show (create|variables|status)", sql)]
    assert len(compared) > 50
    with servers.mariadb(tmp_path, durable=False) as url:
        answers, others = asyncio.run(_theirs(int(url.rstrip("/").rsplit(":", 1)[1]), compared))
    for sql, theirs in zip(compared, answers, strict=True):
        found = answer_of(ours, sql)
        if found is None or theirs is None:
            assert found is theirs, sql
            continue
        same = {name.upper() for name in found[0]} & {name.upper() for name in theirs[0]} - LEFT_OUT
        if "*" not in sql and not sql.startswith("SHOW"):
            assert [name.upper() for name in found[0]] == [name.upper() for name in theirs[0]], sql
        if "VERSION" in sql or "USER()" in sql or "`va`" in sql:
            continue  # Columns of a view, too, have neither NOT NULL nor defaults here.
        assert _rows(found, same, others) == _rows(theirs, same, others), sql


async def _theirs(port: int, asked: list[str]) -> tuple[list[Answer], set[str]]:
    """The answers, and the databases that are not ours: MariaDB's own."""
    connection = await asyncmy.connect(host="127.0.0.1", port=port, user="root", password="", autocommit=True)
    cursor = connection.cursor()
    await cursor.execute("CREATE DATABASE headrace COLLATE utf8mb4_bin")
    await cursor.execute("USE headrace")
    for text in SCHEMA:
        await cursor.execute(text)
    await cursor.execute("SHOW DATABASES")
    others = {name for (name,) in await cursor.fetchall()} - {"headrace", "information_schema"}
    answers: list[Answer] = []
    for sql in asked:
        try:
            await cursor.execute(sql)
        except asyncmy.errors.ProgrammingError:  # 1146.
            answers.append(None)
        else:
            answers.append(([column[0] for column in cursor.description], list(await cursor.fetchall())))
    connection.close()
    return answers, others


def _rows(answer: tuple[list[str], list[tuple[Any, ...]]], names: set[str], others: set[str]) -> list[list[Any]]:
    places = sorted((name.upper(), at) for at, name in enumerate(answer[0]) if name.upper() in names)
    rows = [[_value(name, row[at]) for name, at in places] for row in answer[1]]
    return sorted((row for row in rows if not set(row) & others), key=repr)


def _value(name: str, value: Any) -> Any:
    """MariaDB has widths of integers, quotes defaults, and leaves out what MySQL 8 says of CURRENT_TIMESTAMP."""
    if name in ("DELETE_RULE", "UPDATE_RULE"):
        return {"NO ACTION": "RESTRICT", 3: 1}.get(value, value)
    if isinstance(value, Decimal):
        return int(value)
    if not isinstance(value, str):
        return "" if value is None and name == "GENERATION_EXPRESSION" else value
    if name in ("COLUMN_DEFAULT", "COLUMN_DEF"):
        value = value.strip("'")
        value = None if value == "NULL" else value
    if name == "CHECK_CLAUSE":
        return value.strip("()")
    shown = value and WIDTHS.sub(r"\1", value).replace("current_timestamp", "CURRENT_TIMESTAMP")
    return shown and shown.removeprefix("DEFAULT_GENERATED").strip()
