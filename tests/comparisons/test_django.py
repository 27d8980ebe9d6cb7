"""Django's ``django.db.models.functions`` and what its lookups and expressions write, as its MySQL backend sends them.

``django.txt`` has a line for each: the class, the SQL that Django 5 compiles it to over the columns of a table, and the
answers by row. MariaDB is asked for the same where it is installed; what it has not, or says otherwise, is in
:data:`DIFFERENT` with the judge instead. ``python -m tests.comparisons.test_django`` writes the answers anew: read what
has changed before you keep it.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import tempfile
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from shutil import which
from typing import Any

import asyncmy
import pytest

from controller.embedded.local import LocalDeployment
from domains.language.durations import text_of_time
from loadgen.bench import servers
from tests.comparisons.test_functions import alike

EXPECTED = Path(__file__).parent / "django.txt"
MISSING = servers.missing("mariadb")
ZONES, ZONE_FILES = ("America/Chicago", "Europe/Berlin"), Path("/usr/share/zoneinfo")
SETUP = (
    "CREATE TABLE t (id INT PRIMARY KEY, n INT, m DECIMAL(8,2), f DOUBLE, s VARCHAR(50), t VARCHAR(9), d DATE, "
    "dt DATETIME(6), tm TIME(6), j JSON)",
    "INSERT INTO t VALUES "
    "(1, 7, 12.34, 2.5, 'Ab c', 'x', '2024-02-29', '2024-03-31 07:30:15.123456', '10:11:12.5', '{\"a\": 1}'), "
    "(2, -3, -0.55, -0.75, 'éa€', 'x', '2021-01-03', '2021-01-03 05:59:59.999999', '-01:02:03', "
    '\'{"a": {"b": [1, 2]}, "b": "xY"}\'), '
    "(3, 0, 0, 0, '', 'x', '1999-12-31', '2023-11-05 06:30:00', '00:00:00', '[3, {\"a\": \"x\"}]'), "
    "(4, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), "
    "(5, 2147483647, 999999.99, 1e10, '  12abc  ', 'b', '2020-12-28', '2020-06-15 12:00:00', '838:59:59', '\"x\"'), "
    "(6, 65, 1.5, 0.5, 'abcabc', 'b', '2026-07-01', '2026-07-01 00:00:00', '23:59:59.999999', '{\"a\": null}'), "
    "(7, 66, -1.45, 0.0001, '-1.5e1x', 'b', '2025-01-01', '1970-01-01 00:00:00', '00:00:00.000001', "
    '\'{"b": 2, "a": 1.0}\')',
)
_OF_DAY = "MySQL 8 adds a TIME to the current day before DATE_FORMAT, so that its hours are those of a day"
_NULL = "docs/sql.md: a DOUBLE out of range is NULL, and no row makes an answer fail"
_FLAGS = "MySQL's manual: an optional argument, which MariaDB has not"
DIFFERENT = {
    "CAST(`j` AS json)": "MySQL's manual: MariaDB has no CAST to JSON",
    "EXTRACT(HOUR FROM `tm`)": "MySQL's manual: hours of a TIME reach 838; MariaDB begins anew with each day",
    "CAST(DATE_FORMAT(`tm`, '%H:00:00') AS TIME)": _OF_DAY,
    "CAST(DATE_FORMAT(`tm`, '%H:%i:00') AS TIME)": _OF_DAY,
    "CAST(DATE_FORMAT(`tm`, '%H:%i:%s') AS TIME)": _OF_DAY,
    "COT(`f`)": _NULL,
    "EXP(`f`)": _NULL,
    "POWER(`n`, 0.5)": _NULL,
    "PI()": "MySQL's manual: it shows seven digits, and has them all",
    "CUME_DIST() OVER (ORDER BY `n` DESC)": "MySQL's manual: a DOUBLE; MariaDB shows ten digits",
    "LAG(`n`, 2, 0) OVER (ORDER BY `id`)": _FLAGS,
    "REGEXP_LIKE(`s`, '^a', 'c')": _FLAGS,
    "REGEXP_LIKE(`s`, '^a', 'i')": _FLAGS,
    "((TIME_TO_SEC(`tm`) * 1000000 + MICROSECOND(`tm`)) - (TIME_TO_SEC('01:00:00') * 1000000 + "
    "MICROSECOND('01:00:00')))": "MySQL's manual: TIME_TO_SEC has whole seconds; MariaDB's has the fraction, too",
    "JSON_EXTRACT(`j`, '$.\"a\"') = JSON_EXTRACT('1', '$')": "MySQL's manual: JSON numbers compare by value",
    "JSON_EXTRACT(`j`, '$.\"a\"') > JSON_EXTRACT('0', '$')": "MySQL's manual: JSON's null is less than its numbers",
}
"""By an expression: who judges it instead of MariaDB."""

Answers = list[Any]


def cases() -> dict[str, Answers]:
    lines = EXPECTED.read_text("utf-8").splitlines()
    split = [line.split(" : ", 1)[1].rsplit(" : ", 1) for line in lines]
    return {expression: json.loads(answers) for expression, answers in split}


def plain(value: Any) -> Any:
    """A value as a file of JSON has it."""
    if isinstance(value, timedelta):
        return text_of_time(value)
    if isinstance(value, bytes):
        return value.decode()
    return value if value is None or isinstance(value, int | float | str | list | dict) else str(value)


def same(one: Any, other: Any) -> bool:
    """Numbers by value, DOUBLEs nearly, and a document (a text to MariaDB) by what it says."""
    if one == other or alike(one, other):
        return True
    try:
        return Decimal(str(one)) == Decimal(str(other))
    except ArithmeticError:
        pass
    try:
        return bool((json.loads(one) if isinstance(one, str) else one) == json.loads(other))
    except (TypeError, ValueError):
        return False


async def asked_of_headrace(directory: Path, expressions: list[str]) -> dict[str, Answers]:
    deployment = await LocalDeployment.open(directory)
    try:
        for statement in SETUP:
            await deployment.execute(statement)
        found = {}
        for e in expressions:
            (answer,), _ = await deployment.execute(f"SELECT {e} AS v FROM t ORDER BY id")
            found[e] = [plain(row[0]) for row in answer.rows]
        return found
    finally:
        await deployment.close()


async def test_django_functions_answer_as_recorded(tmp_path: Path) -> None:
    expected = cases()
    found = await asked_of_headrace(tmp_path, list(expected))
    for e, answers in expected.items():
        assert all(map(same, found[e], answers)), (e, found[e], answers)


def load_zones(port: int) -> bool:
    """Give MariaDB the zones; False where this system has not what that takes."""
    program, client = which("mariadb-tzinfo-to-sql"), which("mariadb")
    files = [(ZONE_FILES / zone, zone) for zone in (*ZONES, "UTC")]
    if program is None or client is None or not all(file.exists() for file, _ in files):
        return False
    for file, zone in files:
        sql = subprocess.run([program, file, zone], check=True, capture_output=True).stdout
        subprocess.run([client, "-h127.0.0.1", f"-P{port}", "-uroot", "mysql"], input=sql, check=True)
    return True


@pytest.mark.skipif(MISSING is not None, reason=MISSING or "")
def test_mariadb_answers_the_same(tmp_path: Path) -> None:
    """Beside one of its own, as zones that are loaded are known to all of its databases."""
    with servers.mariadb(tmp_path, durable=False) as url:
        _as_theirs(int(url.rstrip("/").rsplit(":", 1)[1]))


def _as_theirs(port: int) -> None:
    has_zones = load_zones(port)
    ours = {e: answers for e, answers in cases().items() if e not in DIFFERENT}

    async def asked() -> dict[str, Answers]:
        connection = await asyncmy.connect(host="127.0.0.1", port=port, user="root", password="", autocommit=True)
        cursor = connection.cursor()
        found = {}
        for statement in ("SET sql_mode = '', max_error_count = 0", "CREATE DATABASE django", "USE django", *SETUP):
            await cursor.execute(statement)
        for e in ours:
            await cursor.execute(f"SELECT {e} AS v FROM t ORDER BY id")
            found[e] = [plain(value) for (value,) in await cursor.fetchall()]
        connection.close()
        return found

    theirs = asyncio.run(asked())
    different = {e for e in ours if not all(map(same, ours[e], theirs[e]))}
    assert not {e for e in different if has_zones or not any(zone in e for zone in ZONES)}


def test_what_mariadb_does_not_judge_is_asked() -> None:
    assert cases().keys() >= DIFFERENT.keys()


if __name__ == "__main__":
    named = [line.split(" : ", 1) for line in EXPECTED.read_text("utf-8").splitlines()]
    texts = [rest.rsplit(" : ", 1)[0] for _, rest in named]
    with tempfile.TemporaryDirectory() as place:
        answers = asyncio.run(asked_of_headrace(Path(place), texts))
    lines = [
        f"{name} : {text} : {json.dumps(answers[text], ensure_ascii=False)}"
        for (name, _), text in zip(named, texts, strict=True)
    ]
    EXPECTED.write_text("\n".join(lines) + "\n", "utf-8")
