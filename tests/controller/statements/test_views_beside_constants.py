"""A view with parameters answers what the same SELECT does with its values written out, which no view takes part in.

``make fuzz`` draws more of them on one thread (``tests/campaign/constants.py``); here they pass through the reader map.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import orjson
import pytest

from controller.embedded.local import LocalDeployment
from domains.errors import SqlError, Unsupported
from tests.campaign.constants import Asked, Drawn, Values
from tests.campaign.nested import DEFINITIONS, Writes

QUERIES = 90
LEAST_MADE = 30
"""Of them, that are no views by what docs/sql.md says are refused."""
READS = 3


@pytest.mark.parametrize("named", [True, False], ids=["named", "each its own"])
@pytest.mark.parametrize("seed", [1, 2])
async def test_a_view_answers_what_its_select_does(seed: int, named: bool, tmp_path: Path) -> None:
    random = Random(f"{seed} {named}")
    deployment = await LocalDeployment.open(tmp_path, memory_limit=256_000_000)
    await deployment.execute("; ".join(DEFINITIONS))
    writes = Writes(random)
    for _ in range(25):
        await deployment.execute(writes.statement())
    drawn, made = Drawn(random), 0
    for _ in range(QUERIES):
        asked = Asked(drawn.query(), named=named)
        try:
            await deployment.execute(f"CREATE EXT VIEW v AS {asked.view}")
        except (SqlError, Unsupported):
            continue
        made += 1
        for _ in range(READS):
            values = asked.values(random)
            wanted = await selected(deployment, asked.written(values))
            assert await looked_up(deployment, asked, values) == wanted, (seed, asked.view, values)
        await deployment.execute("DROP VIEW v")
    await deployment.close()
    assert made >= LEAST_MADE


async def selected(deployment: LocalDeployment, sql: str) -> list[str]:
    results, _ = await deployment.execute(sql)
    return sorted(map(repr, map(list, results[-1].rows)))


async def looked_up(deployment: LocalDeployment, asked: Asked, values: Values) -> list[str]:
    """The parameters are in the order of the text; of those of one name the first."""
    by_name = dict(zip(reversed(asked.marks), reversed(values), strict=True))
    key = [by_name[mark] for mark in dict.fromkeys(asked.marks)] if asked.named else values
    (page,) = await deployment.pages("v", [key])
    return sorted(repr(list(row.values())) for row in orjson.loads(b"[" + page + b"]"))
