"""Queries over three small tables: ``queries.txt`` has the answers, and MariaDB is asked for the same where it is
installed. ``python -m tests.comparisons.test_queries`` writes the answers anew: read what has changed before you keep
it. What MariaDB says otherwise, or cannot say, is in :data:`DIFFERENT` with the judge instead."""

from __future__ import annotations

import asyncio
import json
import math
import re
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import asyncmy
import pytest

from controller.embedded.local import LocalDeployment
from loadgen.bench import servers

EXPECTED = Path(__file__).parent / "queries.txt"
MISSING = servers.missing("mariadb")
SETUP = (
    "CREATE TABLE s (id INT PRIMARY KEY, author INT NOT NULL, title VARCHAR(100), score DECIMAL(6,2), made DATETIME, "
    "flags INT)",
    "CREATE TABLE v (user INT, story_id INT, PRIMARY KEY (user, story_id))",
    "CREATE TABLE l (day DATE, weight DOUBLE)",
    "CREATE TABLE nothing (a INT, b INT)",
    "INSERT INTO s VALUES (1, 1, 'a', 1.50, '2024-01-01 00:00:00', 5), (2, 1, 'b', 2.25, '2024-01-02 00:00:00', 3), "
    "(3, 2, 'c', NULL, NULL, NULL), (4, 2, 'a', 7.75, '2024-03-01 10:00:00', -1), "
    "(5, 3, NULL, 0.10, '2024-03-02 10:00:00', 12)",
    "INSERT INTO v VALUES (1, 1), (1, 2), (2, 1), (3, 5), (4, 9)",
    "INSERT INTO l VALUES ('2024-01-01', 1.5), ('2024-01-01', 2.5), ('2024-01-02', -3e0), (NULL, NULL)",
)
DIFFERENT: dict[str, str] = {
    "SELECT author, COUNT(*) AS c FROM s GROUP BY author WITH ROLLUP HAVING c > 1 AND author IS NULL": (
        "MySQL's manual: HAVING may test the NULL of a super-aggregate row; to MariaDB a NOT NULL column never is"
    ),
}
"""By a query's text: who judges it instead of MariaDB."""

Answer = list[list[Any]]


def asked() -> list[str]:
    return [line.rsplit(" : ", 1)[0] for line in EXPECTED.read_text("utf-8").splitlines()]


def recorded() -> dict[str, Answer]:
    lines = EXPECTED.read_text("utf-8").splitlines()
    return {text: json.loads(answer) for text, answer in (line.rsplit(" : ", 1) for line in lines)}


def plain(value: Any) -> Any:
    """A value as JSON has it: exact numbers of all kinds in one spelling (a DECIMAL comes as text)."""
    if isinstance(value, str) and re.fullmatch(r"-?\d+\.\d+", value):
        value = Decimal(value)
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else format(value.normalize(), "f")
    if value is None or isinstance(value, int | float | str):
        return value
    return value.decode() if isinstance(value, bytes) else str(value)


def rows_of(text: str, rows: Any) -> Answer:
    found = [[plain(value) for value in row] for row in rows]
    if " ORDER BY " in text:
        return found
    return sorted(found, key=lambda row: [(value is not None, str(value)) for value in row])


def alike(one: Answer, other: Answer, tolerance: float) -> bool:
    return len(one) == len(other) and all(
        len(a) == len(b) and all(_same(x, y, tolerance) for x, y in zip(a, b, strict=True))
        for a, b in zip(one, other, strict=True)
    )


def _same(one: Any, other: Any, tolerance: float) -> bool:
    if isinstance(one, float) or isinstance(other, float):
        return None not in (one, other) and math.isclose(float(one), float(other), rel_tol=tolerance)
    return bool(one == other)


async def answered(directory: Path) -> dict[str, Answer]:
    deployment = await LocalDeployment.open(directory)
    try:
        await deployment.execute(";".join(SETUP))
        return {text: rows_of(text, (await deployment.execute(text))[0][0].rows) for text in asked()}
    finally:
        await deployment.close()


async def test_queries_answer_as_recorded(tmp_path: Path) -> None:
    found, expected = await answered(tmp_path), recorded()
    assert {text: found[text] for text in expected if not alike(found[text], expected[text], 1e-12)} == {}
    assert len(expected) > 20


@pytest.mark.skipif(MISSING is not None, reason=MISSING or "")
def test_mariadb_answers_the_same(mariadb: int) -> None:
    async def theirs() -> dict[str, Answer | str]:
        connection = await asyncmy.connect(host="127.0.0.1", port=mariadb, user="root", password="", autocommit=True)
        cursor = connection.cursor()
        found: dict[str, Answer | str] = {}
        for statement in (
            "CREATE DATABASE queried COLLATE utf8mb4_nopad_bin",
            "USE queried",
            "SET NAMES utf8mb4 COLLATE utf8mb4_nopad_bin",
            "SET max_error_count = 0",
            *SETUP,
        ):
            await cursor.execute(statement)
        for text in asked():
            try:
                await cursor.execute(text)
                found[text] = rows_of(text, await cursor.fetchall())
            except asyncmy.errors.Error as error:
                found[text] = str(error.args[0])
        connection.close()
        return found

    judged, ours = asyncio.run(theirs()), recorded()
    # MariaDB shows fewer digits of a variance.
    other = {t: found for t, found in judged.items() if isinstance(found, str) or not alike(found, ours[t], 1e-4)}
    assert set(other) == set(DIFFERENT), other


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        now = asyncio.run(answered(Path(directory)))
    EXPECTED.write_text("".join(f"{text} : {json.dumps(answer)}\n" for text, answer in now.items()), "utf-8")
