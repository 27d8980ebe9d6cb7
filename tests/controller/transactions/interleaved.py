"""Transactions that a seed draws and interleaves, and their judge: the committed ones again, one after the other.

Steps of a deployment come one after another, so which client is next decides everything: a seed is a whole run. What is
held against it is the definition of serializable: a second deployment does the committed transactions in the order of
their commits, and each statement in them has to answer, or to be refused, as it was; and at the end all tables and
views are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from controller.access.session import OPEN, Caller
from controller.deployment import RequestMoment
from controller.embedded.local import LocalDeployment
from domains.errors import Conflict, HeadraceError, TransactionEnded

TABLES = (
    "CREATE TABLE acc (id INT PRIMARY KEY, branch INT NOT NULL, n INT NOT NULL, name VARCHAR(10), UNIQUE (name), "
    "KEY (branch, n))",
    "CREATE TABLE bag (branch INT, note VARCHAR(10))",
    "CREATE TABLE child (id INT PRIMARY KEY, acc INT, FOREIGN KEY (acc) REFERENCES acc (id) ON DELETE CASCADE)",
    "CREATE EXT VIEW one AS SELECT id, n, name FROM acc WHERE id = ?",
    "CREATE EXT VIEW branches AS SELECT branch, COUNT(*) AS c, SUM(n) AS s FROM acc GROUP BY branch",
    "CREATE EXT VIEW of_branch AS SELECT a.id, b.note FROM acc a JOIN bag b ON b.branch = a.branch WHERE a.branch = ?",
    "CREATE EXT VIEW lost AS SELECT id FROM acc a WHERE branch = ? AND NOT EXISTS "
    "(SELECT 1 FROM child c WHERE c.acc = a.id)",
)
VIEWS = {"one": range(8), "branches": None, "of_branch": range(4), "lost": range(4)}
IDS, BRANCHES, CLIENTS = 8, 4, 4


@dataclass
class Asked:
    """One statement, or a look-up of a view, and what came of it."""

    sql: str = ""
    view: str = ""
    key: Any = None
    came: Any = None


@dataclass
class Client:
    number: int
    left: list[Asked]
    caller: Caller
    id: str = ""
    done: list[Asked] = field(default_factory=list)


class Drawn:
    def __init__(self, random: Random) -> None:
        self._random = random

    def statement(self) -> Asked:
        random = self._random
        id, other, branch, n = (
            random.randrange(IDS),
            random.randrange(IDS),
            random.randrange(BRANCHES),
            random.randrange(100),
        )
        name = random.choice(["NULL", *(f"'{each}'" for each in "abcdef")])
        if random.random() < 0.2:
            view = random.choice(list(VIEWS))
            keys = VIEWS[view]
            return Asked(view=view, key=[] if keys is None else [random.choice(list(keys))])
        return Asked(
            random.choice(
                [
                    f"SELECT * FROM acc WHERE id = {id}",
                    f"SELECT id, n FROM acc WHERE id IN ({id}, {other})",
                    f"SELECT * FROM acc WHERE name = {name}",
                    f"SELECT id, n FROM acc WHERE branch = {branch} AND n < {n} ORDER BY n, id LIMIT 2",
                    "SELECT id FROM acc ORDER BY id DESC LIMIT 2",
                    f"SELECT COUNT(*), SUM(n) FROM acc WHERE branch = {branch}",
                    f"SELECT a.id, c.id FROM acc a JOIN child c ON c.acc = a.id WHERE a.branch = {branch}",
                    f"SELECT COUNT(*) FROM bag WHERE branch = {branch}",
                    "SELECT MAX(n) FROM acc",
                    f"UPDATE acc SET n = n + 1 WHERE id = {id}",
                    f"UPDATE acc SET n = {n}, name = {name} WHERE id = {id}",
                    f"UPDATE acc SET branch = {branch} WHERE branch = {random.randrange(BRANCHES)} AND n > {n}",
                    f"UPDATE acc SET n = (SELECT COUNT(*) FROM bag) WHERE id = {id}",
                    f"INSERT INTO acc VALUES ({id}, {branch}, {n}, {name})",
                    f"INSERT INTO acc VALUES ({id}, {branch}, {n}, {name}) ON DUPLICATE KEY UPDATE n = n + VALUES(n)",
                    f"REPLACE INTO acc VALUES ({id}, {branch}, {n}, {name})",
                    f"INSERT IGNORE INTO child VALUES ({random.randrange(12)}, {id})",
                    f"DELETE FROM acc WHERE id = {id}",
                    f"DELETE FROM child WHERE acc = {id}",
                    f"INSERT INTO bag VALUES ({branch}, {name}), ({branch}, {name})",
                    f"INSERT INTO bag SELECT branch, name FROM acc WHERE id = {id}",
                    f"DELETE FROM bag WHERE branch = {branch} AND note = {name} LIMIT 1",
                    "SAVEPOINT s",
                    "ROLLBACK TO s",
                    "RELEASE SAVEPOINT s",
                ]
            )
        )

    def transaction(self) -> list[Asked]:
        return [self.statement() for _ in range(self._random.randint(1, 6))]


async def answer(deployment: LocalDeployment, asked: Asked, caller: Caller) -> Any:
    """What comes of it, in a form that does not depend on the order of rows that nobody asked for."""
    try:
        if asked.view:
            (page,) = await deployment.pages(asked.view, [asked.key], moment=RequestMoment(asker=caller))
            return sorted(page.decode().replace("},{", "}\n{").split("\n"))
        results, _ = await deployment.execute(asked.sql, session=caller)
    except (Conflict, TransactionEnded):
        raise
    except HeadraceError as error:
        return type(error).__name__
    rows = list(map(repr, results[-1].rows))
    return (rows if "ORDER BY" in asked.sql else sorted(rows)), results[-1].rows_affected


async def contents(deployment: LocalDeployment) -> list[Any]:
    selects = [f"SELECT * FROM {table}" for table in ("acc", "bag", "child")]
    found: list[Any] = [sorted(map(repr, (await deployment.execute(sql))[0][0].rows)) for sql in selects]
    for view, keys in VIEWS.items():
        for key in [[]] if keys is None else [[each] for each in keys]:
            (page,) = await deployment.pages(view, [key])
            found.append((view, key, sorted(page.decode().replace("},{", "}\n{").split("\n"))))
    return found


async def opened(path: Path) -> LocalDeployment:
    deployment = await LocalDeployment.open(path, memory_limit=256_000_000)
    await deployment.execute("; ".join(TABLES))
    rows = ", ".join(f"({id}, {id % BRANCHES}, {10 * id}, NULL)" for id in range(0, IDS, 2))
    await deployment.execute(f"INSERT INTO acc VALUES {rows}; INSERT INTO bag VALUES (0, 'x'), (1, 'y'), (1, 'y')")
    return deployment


@dataclass
class Run:
    committed: list[tuple[bool, Sequence[Asked]]] = field(default_factory=list)
    """Each with whether it was a transaction, or a plain statement."""
    conflicts: int = 0


async def run(deployment: LocalDeployment, random: Random, steps: int) -> Run:
    """Interleave statements of transactions and plain ones, and remember what came of those that were committed."""
    drawn, done = Drawn(random), Run()
    clients = [Client(number, [], OPEN) for number in range(CLIENTS)]
    for _ in range(steps):
        client = random.choice(clients)
        if not client.id:
            if random.random() < 0.2:  # A plain statement is a transaction by itself.
                asked = drawn.statement()
                if "SAVEPOINT" in asked.sql or asked.sql.startswith("ROLLBACK"):
                    continue
                asked.came = await answer(deployment, asked, OPEN)
                done.committed.append((False, [asked]))
                continue
            client.id = deployment.sessions.open("")
            client.caller = replace(OPEN, session=deployment.sessions.found(client.id, ""))
            client.left, client.done = drawn.transaction(), []
        try:
            if client.left:
                asked = client.left.pop()
                asked.came = await answer(deployment, asked, client.caller)
                client.done.append(asked)
                continue
            if random.random() < 0.1:
                await deployment.sessions.roll_back(client.id, "")
            else:
                await deployment.sessions.commit(client.id, "")
                done.committed.append((True, client.done))
        except (Conflict, TransactionEnded):
            done.conflicts += 1
        client.id = ""
    for client in clients:
        if client.id and client.caller.transaction is not None:
            await deployment.sessions.roll_back(client.id, "")
    return done


async def judge(deployment: LocalDeployment, done: Run, serial: LocalDeployment) -> None:
    for is_transaction, statements in done.committed:
        caller = OPEN
        if is_transaction:
            id = serial.sessions.open("")
            caller = replace(OPEN, session=serial.sessions.found(id, ""))
        for asked in statements:
            came = await answer(serial, asked, caller)
            said = asked.sql or f"{asked.view} {asked.key}"
            assert came == asked.came, f"{said}: {asked.came}, and one after the other {came}"
        if caller is not OPEN:
            await serial.sessions.commit(id, "")
    assert await contents(deployment) == await contents(serial)


async def check(seed: object, path: Path, steps: int) -> Run:
    """:raises AssertionError: what was committed is not serializable in the order of the commits."""
    deployment, serial = await opened(path / "interleaved"), await opened(path / "serial")
    try:
        done = await run(deployment, Random(f"transactions {seed}"), steps)
        await judge(deployment, done, serial)
        return done
    finally:
        await deployment.close()
        await serial.close()
