"""A view with parameters answers what the same SELECT does with its values written out, which no view takes part in.

Parameters stand where applications put them, several times each: in derived tables on both sides of outer joins, below
EXISTS, IN and aggregates, in ranges and lists.
"""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import orjson
import pytest

from controller.embedded.local import LocalDeployment
from domains.errors import Unsupported

SCHEMA = "CREATE TABLE a (id INT PRIMARY KEY, x INT, y INT); CREATE TABLE b (id INT PRIMARY KEY, aid INT, x INT, y INT)"
QUERIES = 120
LEAST_MADE = 20
"""Of them, that are no views by what docs/sql.md says are refused."""
MARK = re.compile(r":[uvw]")
VALUES = [{":u": 1, ":v": 2, ":w": 3}, {":u": 2, ":v": 2, ":w": 1}, {":u": 3, ":v": 1, ":w": 2}]


class Drawn:
    """A SELECT over rows that are there twice, and NULLs."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def query(self) -> str:
        pick, condition = self._random.choice, self._condition
        on = pick(("q.id = p.id", "q.id = p.id", "q.x = p.x", "q.id = p.id AND q.x = :u", "q.id = p.y"))
        sql = f"SELECT p.id AS a, p.x AS b, q.id AS c, q.y AS d FROM {self._source('p')} "
        sql += f"{pick(('LEFT JOIN', 'LEFT JOIN', 'JOIN'))} {self._source('q')} ON {on}"
        if self._random.random() < 0.3:
            sql += f" LEFT JOIN {self._source('r')} ON r.id = q.id"
        return sql + (f" WHERE {condition(pick('ppq'))}" if self._random.random() < 0.7 else "")

    def _source(self, alias: str) -> str:
        table, key = self._random.choice((("a", "id"), ("b", "aid")))
        where = f"FROM {table} i{alias} WHERE {self._condition(f'i{alias}', 1)}"
        kinds = (
            f"(SELECT {key} AS id, x, y {where})",
            f"(SELECT {key} AS id, MAX(x) AS x, COUNT(*) AS y {where} GROUP BY {key})",
            f"(SELECT x AS id, x, MIN(y) AS y FROM {table} GROUP BY x HAVING COUNT(*) >= 1 AND x = :u)",
            f"(SELECT {key} AS id, x, y FROM {table})",
            "a",
        )
        return f"{self._random.choices(kinds, (4, 2, 1, 1, 2))[0]} {alias}"

    def _condition(self, alias: str, depth: int = 0) -> str:
        kinds = ("{0}.x = :u", "{0}.y = :u", "{0}.x = :u AND {0}.y > 1", "{0}.y < 3", "{0}.x > :u", "{0}.x IN (:u, 2)")
        kinds += ("{0}.x <> :u", "({0}.x = :u OR {0}.y = 1)", "{0}.x <= :u AND {0}.y = :v", "{0}.y = :v", "{0}.y < :w")
        found = self._random.choice(kinds).format(alias)
        if depth > 1 or self._random.random() > 0.4:
            return found
        inner = f"s{depth}"
        below = f"FROM b {inner} WHERE {self._condition(inner, depth + 1)}"
        nested = (
            f"EXISTS (SELECT 1 {below} AND {inner}.aid = {alias}.id)",
            f"NOT EXISTS (SELECT 1 {below} AND {inner}.aid = {alias}.id)",
            f"{alias}.id IN (SELECT {inner}.aid {below})",
            f"{alias}.id NOT IN (SELECT {inner}.aid {below} AND {inner}.aid IS NOT NULL)",
            f"{alias}.y > (SELECT COUNT(*) {below} AND {inner}.aid = {alias}.id)",
        )
        return f"{found} AND {self._random.choice(nested)}"


@pytest.mark.parametrize("named", [True, False], ids=["named", "each its own"])
@pytest.mark.parametrize("seed", [1, 2])
async def test_a_view_answers_what_its_select_does(seed: int, named: bool, tmp_path: Path) -> None:
    random = Random(f"{seed} {named}")
    deployment = await LocalDeployment.open(tmp_path, memory_limit=256_000_000)
    await deployment.execute(SCHEMA)
    rows = {"a": 12, "b": 25}
    for table, count in rows.items():
        values = [[number, *random.choices((0, 1, 2, 3, 4, "NULL"), k=2 + (table == "b"))] for number in range(count)]
        texts = (f"({', '.join(map(str, row))})" for row in values)
        await deployment.execute(f"INSERT INTO {table} VALUES {', '.join(texts)}")
    drawn, made = Drawn(random), 0
    for _ in range(QUERIES):
        sql = drawn.query()
        try:
            await deployment.execute(f"CREATE EXT VIEW v AS {sql if named else MARK.sub('?', sql)}")
        except Unsupported:
            continue
        made += 1
        for given in VALUES:
            wanted = await selected(deployment, written(sql, given))
            key = [given[mark] for mark in MARK.findall(sql)]
            if named:
                key = [given[f":{each.name}"] for each in deployment.prepare("v").info.parameters]
            found = await looked_up(deployment, key)
            assert found == wanted, (seed, sql, given)
        await deployment.execute("DROP VIEW v")
    await deployment.close()
    assert made >= LEAST_MADE


async def selected(deployment: LocalDeployment, sql: str) -> list[str]:
    results, _ = await deployment.execute(sql)
    return sorted(map(repr, map(list, results[-1].rows)))


async def looked_up(deployment: LocalDeployment, key: list[int]) -> list[str]:
    (page,) = await deployment.pages("v", [key])
    return sorted(repr(list(row.values())) for row in orjson.loads(b"[" + page + b"]"))


def written(sql: str, given: dict[str, int]) -> str:
    return MARK.sub(lambda mark: str(given[mark[0]]), sql)
