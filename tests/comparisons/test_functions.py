"""Scalar functions as applications call them: ``functions.txt`` has the answers, and MariaDB is asked for the same
where it is installed. The judge of what it has not, zones by name and offsets of 14 hours, is MySQL's manual."""

from __future__ import annotations

import asyncio
import json
import math
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncmy
import pytest

from controller.embedded.local import LocalDeployment
from domains.language.durations import text_of_time
from loadgen.bench import servers

EXPECTED = Path(__file__).parent / "functions.txt"
MISSING = servers.missing("mariadb")
ZONES = ("'GMT'", "'US/Eastern'", "'Europe/Berlin'", "'+14:00'", "'-13:59'")


def recorded() -> dict[str, Any]:
    lines = EXPECTED.read_text("utf-8").splitlines()
    return {text: json.loads(answer) for text, answer in (line.rsplit(" : ", 1) for line in lines)}


def alike(one: Any, other: Any) -> bool:
    """Numbers may differ in the last digits of a DOUBLE, and be of another type."""
    if isinstance(one, float) or isinstance(other, float):
        return one is not None and other is not None and math.isclose(float(one), float(other), rel_tol=1e-12)
    return one == other or (one is not None and other is not None and str(one) == str(other))


async def test_functions_answer_as_recorded(tmp_path: Path) -> None:
    deployment = await LocalDeployment.open(tmp_path)
    try:
        await deployment.execute("CREATE TABLE one (x INT PRIMARY KEY); INSERT INTO one VALUES (1)")
        for text, expected in recorded().items():
            (found,), _ = await deployment.execute(f"SELECT {text} AS v FROM one")
            assert alike(found.rows[0][0], expected), text
    finally:
        await deployment.close()


@pytest.mark.skipif(MISSING is not None, reason=MISSING or "")
def test_mariadb_answers_the_same(mariadb: int) -> None:
    async def asked() -> dict[str, Any]:
        connection = await asyncmy.connect(host="127.0.0.1", port=mariadb, user="root", password="", autocommit=True)
        cursor = connection.cursor()
        found = {}
        await cursor.execute("SET sql_mode = '', max_error_count = 0")  # Warnings that nobody reads.
        for text in recorded():
            await cursor.execute(f"SELECT {text}")
            (value,) = await cursor.fetchone()
            value = text_of_time(value) if isinstance(value, timedelta) else value
            found[text] = value.decode() if isinstance(value, bytes) else value
        connection.close()
        return found

    theirs, ours = asyncio.run(asked()), recorded()
    different = {text for text in ours if not alike(theirs[text], ours[text])}
    assert different == {text for text in ours if text.startswith("CONVERT_TZ") and any(zone in text for zone in ZONES)}
