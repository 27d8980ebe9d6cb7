"""Window functions over a table that changes answer as MariaDB does: as views that are kept up to date, some by a key,
with evictions between the writes, and as SELECTs that are evaluated. MariaDB leaves ties open, so each order here that
tells rows apart ends with the primary key. It has no default of LAG and LEAD and no INTERVAL in a frame: the judge of
those is the same query written with COALESCE, or over the day's number."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncmy
import pytest

from headrace.embedding import embedded
from loadgen.bench import servers

MISSING = servers.missing("mariadb")
TABLE = "CREATE TABLE w (id INT NOT NULL PRIMARY KEY, g INT, o INT, v INT, x DECIMAL(8, 2), d DATE, INDEX (g))"
VIEWS = {
    "numbers": "SELECT id, g, ROW_NUMBER() OVER (PARTITION BY g ORDER BY o DESC, id) AS n, RANK() OVER (PARTITION BY g "
    "ORDER BY o) AS r, DENSE_RANK() OVER (PARTITION BY g ORDER BY o) AS e FROM w",
    "of_all": "SELECT id, ROW_NUMBER() OVER (ORDER BY v, id) AS n, RANK() OVER (ORDER BY v DESC) AS r, "
    "COUNT(*) OVER () AS c, MAX(v) OVER () AS m FROM w",
    "shares": "SELECT id, PERCENT_RANK() OVER w1 AS p, CUME_DIST() OVER w1 AS c, NTILE(3) OVER (PARTITION BY g "
    "ORDER BY o, id) AS t FROM w WINDOW w1 AS (PARTITION BY g ORDER BY o)",
    "neighbours": "SELECT id, LAG(v) OVER w1 AS a, LEAD(v, 2) OVER w1 AS b, LAG(o, 3) OVER w1 AS c FROM w "
    "WINDOW w1 AS (PARTITION BY g ORDER BY o, id)",
    "running": "SELECT id, SUM(v) OVER w1 AS s, COUNT(v) OVER w1 AS c, MIN(v) OVER w1 AS l, MAX(x) OVER w1 AS h, "
    "AVG(x) OVER w1 AS a FROM w WINDOW w1 AS (PARTITION BY g ORDER BY o)",
    "rows_back": "SELECT id, SUM(v) OVER (w1 ROWS 2 PRECEDING) AS s, MIN(v) OVER (w1 ROWS BETWEEN 3 PRECEDING AND 1 "
    "FOLLOWING) AS l, MAX(v) OVER (w1 ROWS BETWEEN 1 FOLLOWING AND 3 FOLLOWING) AS h, AVG(x) OVER (w1 ROWS BETWEEN 3 "
    "PRECEDING AND 1 PRECEDING) AS a FROM w WINDOW w1 AS (PARTITION BY g ORDER BY o, id)",
    "rows_open": "SELECT id, SUM(v) OVER (w1 ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS s, MAX(v) OVER (w1 "
    "ROWS BETWEEN 2 FOLLOWING AND UNBOUNDED FOLLOWING) AS h, COUNT(*) OVER (w1 ROWS BETWEEN UNBOUNDED PRECEDING AND 2 "
    "PRECEDING) AS c FROM w WINDOW w1 AS (PARTITION BY g ORDER BY o, id)",
    "ranged": "SELECT id, SUM(v) OVER (PARTITION BY g ORDER BY o RANGE BETWEEN 1 PRECEDING AND 2 FOLLOWING) AS s, "
    "COUNT(*) OVER (ORDER BY o DESC RANGE BETWEEN 2 PRECEDING AND CURRENT ROW) AS c, MIN(v) OVER (PARTITION BY g "
    "ORDER BY o RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS l FROM w",
    "picked": "SELECT id, FIRST_VALUE(v) OVER w1 AS a, LAST_VALUE(v) OVER (w1 ROWS BETWEEN CURRENT ROW AND UNBOUNDED "
    "FOLLOWING) AS b, NTH_VALUE(v, 2) OVER w1 AS c, LAST_VALUE(v) OVER (w1 ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) "
    "AS e FROM w WINDOW w1 AS (PARTITION BY g ORDER BY o, id)",
    # Of doubles, since MariaDB says only four digits of others.
    "spread": "SELECT id, VAR_POP(v * 1e0) OVER (PARTITION BY g) AS p, VAR_SAMP(v * 1e0) OVER w1 AS s, STDDEV(x * 1e0) "
    "OVER (w1 ROWS 2 PRECEDING) AS q, STDDEV_SAMP(v * 1e0) OVER (w1 ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) "
    "AS e FROM w WINDOW w1 AS (PARTITION BY g ORDER BY o, id)",
    # MariaDB errs of BIT_AND over frames that slide over NULLs; DuckDB judges those.
    "bits": "SELECT id, BIT_AND(v) OVER w1 AS a, BIT_OR(v) OVER (w1 ROWS 2 PRECEDING) AS b, BIT_XOR(v) OVER (PARTITION "
    "BY g) AS x FROM w WINDOW w1 AS (PARTITION BY g ORDER BY o, id)",
    "grouped": "SELECT g, COUNT(*) AS c, SUM(COUNT(*)) OVER () AS t, RANK() OVER (ORDER BY SUM(v) DESC) AS r, "
    "COUNT(*) / SUM(COUNT(*)) OVER () AS share FROM w GROUP BY g",
    "firsts": "SELECT id, g FROM (SELECT id, g, ROW_NUMBER() OVER (PARTITION BY g ORDER BY o DESC, id) AS n FROM w) "
    "AS t WHERE n <= 2",
    "second": "SELECT id, n FROM (SELECT id, ROW_NUMBER() OVER (PARTITION BY g ORDER BY v, id) AS n, SUM(v) OVER "
    "(PARTITION BY g) AS s FROM w) AS t WHERE n = 2",
    "joined": "SELECT a.id, b.id AS other, SUM(b.v) OVER (PARTITION BY a.g ORDER BY a.id, b.id) AS s FROM w AS a "
    "LEFT JOIN w AS b ON b.g = a.id",
    "filtered": "SELECT DISTINCT g, MAX(n) OVER (PARTITION BY g) AS m FROM (SELECT g, ROW_NUMBER() OVER (PARTITION "
    "BY g ORDER BY id) AS n FROM w WHERE v > 1) AS t",
}
VIEWS |= {
    f"top_{at}": "SELECT id, n FROM (SELECT id, g, ROW_NUMBER() OVER (PARTITION BY g ORDER BY o, id) AS n, RANK() OVER "
    f"(PARTITION BY g ORDER BY o, id) AS r, SUM(v) OVER (PARTITION BY g ORDER BY o, id ROWS 1 PRECEDING) AS s FROM w) "
    f"AS t WHERE {condition}"
    for at, condition in enumerate(
        (
            "n <= 2",
            "n = 1",
            "n = 3",
            "3 > n",
            "n BETWEEN 2 AND 3",
            "n BETWEEN 2 AND 1",
            "n < 4 AND s > 2",
            "n <= 2 AND g = 1",
        )
    )
}
VIEWS |= {
    "correlated": "SELECT id FROM w AS a WHERE id IN (SELECT FIRST_VALUE(b.id) OVER (ORDER BY b.v, b.id) FROM w AS b "
    "WHERE b.g = a.g)",
    "further": "SELECT id FROM w AS a WHERE v IN (SELECT RANK() OVER (ORDER BY b.v) FROM w AS b WHERE b.g = a.g AND "
    "b.o < a.o)",
    "around": "SELECT id, (SELECT COUNT(*) FROM w AS b WHERE b.g = a.g) AS c, SUM(v + (SELECT MIN(o) FROM w)) OVER "
    "(ORDER BY id) AS s FROM w AS a",
}
JUDGED = {
    "correlated": "SELECT id FROM (SELECT id, g, FIRST_VALUE(id) OVER (PARTITION BY g ORDER BY v, id) AS f FROM w) AS "
    "t WHERE g IS NOT NULL AND f = id",
    "further": "SELECT id FROM w AS a WHERE EXISTS (SELECT 1 FROM w AS b WHERE b.g = a.g AND b.o < a.o AND a.v = 1 + "
    "(SELECT COUNT(*) FROM w AS c WHERE c.g = a.g AND c.o < a.o AND (c.v < b.v OR (c.v IS NULL AND b.v IS NOT NULL))))",
}
"""MariaDB finds nothing in a correlated subquery with a window (IN becomes EXISTS there): the same without one."""
KEYED = {
    "by_own": ("SELECT id, RANK() OVER (ORDER BY o) AS r, SUM(v) OVER (ORDER BY o, id) AS s FROM w WHERE g = {}", "g"),
    "by_group": (
        "SELECT * FROM (SELECT id, g, RANK() OVER (PARTITION BY g ORDER BY o) AS r FROM w) AS t WHERE g = {}",
        "g",
    ),
    "by_other": (
        "SELECT * FROM (SELECT id, o, RANK() OVER (PARTITION BY g ORDER BY v) AS r FROM w) AS t WHERE o = {}",
        "o",
    ),
    "by_number": ("SELECT * FROM (SELECT id, ROW_NUMBER() OVER (ORDER BY v, id) AS n FROM w) AS t WHERE n <= {}", "n"),
}
REWRITTEN = {
    "SELECT id, LAG(v, 1, -1) OVER (ORDER BY id) AS a, LEAD(id, 2, o) OVER (ORDER BY id) AS b FROM w": "SELECT id, "
    "CASE WHEN ROW_NUMBER() OVER (ORDER BY id) = 1 THEN -1 ELSE LAG(v) OVER (ORDER BY id) END AS a, CASE WHEN "
    "ROW_NUMBER() OVER (ORDER BY id DESC) <= 2 THEN o ELSE LEAD(id, 2) OVER (ORDER BY id) END AS b FROM w",
    "SELECT id, SUM(v) OVER (ORDER BY d RANGE BETWEEN INTERVAL 2 DAY PRECEDING AND INTERVAL 1 DAY FOLLOWING) AS s "
    "FROM w": ("SELECT id, SUM(v) OVER (ORDER BY TO_DAYS(d) RANGE BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS s FROM w"),
}
ROUNDS = 10


def writes(rng: random.Random) -> list[str]:
    def value(low: int, high: int) -> str:
        return "NULL" if rng.random() < 0.15 else str(rng.randrange(low, high))

    def row(id: int) -> str:
        day = "NULL" if rng.random() < 0.1 else f"'2024-02-{rng.randrange(25, 30)}'"
        return f"({id}, {value(0, 3)}, {value(0, 6)}, {value(0, 5)}, {value(0, 400)} / 4, {day})"

    made = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        ids = rng.sample(range(40), rng.choice((1, 1, 2, 8)))
        kind = rng.choice(("REPLACE", "REPLACE", "UPDATE", "DELETE"))
        if kind == "REPLACE":
            made.append(f"REPLACE INTO w VALUES {', '.join(map(row, ids))}")
        elif kind == "UPDATE":
            column = rng.choice(("g", "o", "v"))
            made.append(f"UPDATE w SET {column} = {value(0, 4)} WHERE id IN ({', '.join(map(str, ids))})")
        else:
            made.append(f"DELETE FROM w WHERE id IN ({', '.join(map(str, ids))})")
    return made


def alike(ours: Sequence[Sequence[Any]], theirs: Sequence[Sequence[Any]]) -> bool:
    def comparable(row: Sequence[Any]) -> tuple[Any, ...]:
        """MariaDB's shares have ten digits."""
        return tuple((value is not None, 0.0 if value is None else round(float(value), 6)) for value in row)

    one, other = sorted(map(comparable, ours)), sorted(map(comparable, theirs))
    return len(one) == len(other) and all(
        a[0] == b[0] and math.isclose(a[1], b[1], rel_tol=1e-6, abs_tol=2e-6)
        for mine, yours in zip(one, other, strict=True)
        for a, b in zip(mine, yours, strict=True)
    )


def _compared(port: int, directory: Path, rng: random.Random) -> None:
    with asyncio.Runner() as runner, embedded(directory, read_your_writes=True) as db:
        connection = runner.run(_connected(port))

        def theirs(sql: str) -> list[Any]:
            return runner.run(_fetched(connection, sql))

        for text in ("CREATE DATABASE windows", "USE windows", TABLE):
            theirs(text)
        db.execute(TABLE)
        for name, text in VIEWS.items():
            db.execute(f"CREATE VIEW {name} AS {text}")
        for name, (text, _) in KEYED.items():
            db.execute(f"CREATE EXT VIEW {name} AS {text.format('?')}")
        for _ in range(ROUNDS):
            for text in writes(rng):
                theirs(text)
                db.execute(text)
            for name, text in VIEWS.items():
                expected = theirs(JUDGED.get(name, text))
                assert alike(db.execute(f"SELECT * FROM {name}").rows, expected), name
                assert alike(db.execute(text).rows, expected), text
            for name, (text, column) in KEYED.items():
                for key in rng.sample(range(4), 2):
                    expected = theirs(text.format(key))
                    kept = db.view(name).lookup(**{column: key})
                    assert alike([tuple(row.values()) for row in kept], expected), (name, key)
                    assert alike(db.execute(text.format(key)).rows, expected), (text, key)
                if column == "g" and rng.random() < 0.3:  # The others are full.
                    db.view(name).evict([{column: rng.randrange(4)}])
            for text, rewritten in REWRITTEN.items():
                assert alike(db.execute(text).rows, theirs(rewritten)), text


async def _connected(port: int) -> Any:
    return await asyncmy.connect(host="127.0.0.1", port=port, user="root", password="", autocommit=True)


async def _fetched(connection: Any, sql: str) -> list[Any]:
    cursor = connection.cursor()
    await cursor.execute(sql)
    return list(await cursor.fetchall())


@pytest.mark.skipif(MISSING is not None, reason=MISSING or "")
def test_mariadb_answers_the_same(tmp_path: Path, mariadb: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    _compared(mariadb, tmp_path / "ours", random.Random(seed))
