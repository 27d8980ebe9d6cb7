"""The campaign's model of writes is judged by MariaDB: keys, checks, generated columns, ENUM, SET, foreign keys.

Tables and writes are those that the campaign draws. Left out is what differs on purpose (``docs/sql.md``): what IGNORE
makes of values that do not fit, and when a foreign key is checked where one statement changes several rows of a table
that names itself.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from datetime import date
from random import Random
from typing import Any

import asyncmy
import pytest
from asyncmy.errors import MySQLError

from loadgen.bench import servers
from tests.campaign.aiming import aimed
from tests.campaign.comparison import canonical_row
from tests.campaign.constraints import constrained, referring
from tests.campaign.judge import MOST_ROWS, Judge
from tests.campaign.judged_writes import Consideration, Verdict
from tests.campaign.kinds import NOW
from tests.campaign.schema import Table, random_table
from tests.campaign.statements import Delete, Insert, Update, Write
from tests.campaign.writes import random_insert, random_write

MISSING = servers.missing("mariadb")
WRITES = 90
_ELSEWHERE = re.compile(r"JSON|REGEXP|STR_TO_DATE|DATE_FORMAT|CAST\(CONCAT|TIME\(|TIMEDIFF")
"""What MariaDB has otherwise, or refuses in a generated column."""
_CHECKED = 4025


def drawn_table(random: Random, name: str, others: list[Table]) -> Table:
    while True:
        table = referring(random, constrained(random, random_table(random, name)), others)
        if not _ELSEWHERE.search(table.ddl()):
            return table


def is_ours(write: Write, table: Table, verdict: Verdict, judge: Judge) -> bool:
    """Whether we part from MySQL there."""
    names_itself = any(each.parent == table.name for each in table.references)
    match write:
        case Insert(mode="ignore") | Update(ignore=True):
            return verdict is Verdict.REFUSED
        case Insert(_, _, rows):
            return names_itself and len(rows) > 1
        case Update() | Delete():
            return names_itself and len(Consideration(judge.connection, judge.tables).matching(write)) > 1
    return False


@pytest.mark.skipif(bool(MISSING), reason=MISSING or "")
@pytest.mark.parametrize("seed", range(12))
async def test_the_campaign_expects_what_mariadb_does(seed: int, mariadb: int) -> None:
    random = Random(f"writes beside MariaDB {seed}")
    connection = await asyncmy.connect(host="127.0.0.1", port=mariadb, user="root", password="", autocommit=True)
    cursor = connection.cursor()
    judge, said, done = Judge(), list[str](), Counter[str]()
    for text in (
        f"CREATE DATABASE judged_{seed} COLLATE utf8mb4_bin",
        f"USE judged_{seed}",
        "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
        f"SET timestamp = UNIX_TIMESTAMP('{NOW}')",
    ):
        await cursor.execute(text)
    tables: list[Table] = []
    while len(tables) < 3:
        table = drawn_table(random, f"b{len(tables)}", tables)
        try:
            await cursor.execute(table.ddl())
        except MySQLError as error:
            done[f"no table: {error.args}"] += 1
            continue
        said.append(table.ddl())
        tables.append(table)
        judge.create_table(table)
    parents = {reference.parent for table in tables for reference in table.references}
    tables = [replace(table, is_parent=table.name in parents) for table in tables]
    try:
        for _ in range(WRITES):
            table = random.choice(tables)
            write = random_insert(random, table, 1) if random.random() < 0.4 else random_write(random, table)
            write = aimed(write, judge, random)
            verdict, rows = judge.consider(write)
            if verdict not in (Verdict.DONE, Verdict.REFUSED) or is_ours(write, table, verdict, judge):
                done["left out"] += 1
                continue
            if len(rows.get(table.name, ())) > MOST_ROWS:
                continue
            said.append(write.text())
            refused: Any = None
            try:
                await cursor.execute(write.text())
            except MySQLError as error:
                refused = error.args
                if error.args[0] == _CHECKED and " IGNORE " in write.text():
                    refused = None  # MariaDB refuses the only row, and leaves others out, as MySQL does with any.
            assert (refused is not None) is (verdict is Verdict.REFUSED), (refused, "\n".join([*said[:3], *said[-12:]]))
            judge.apply(rows)
            done[f"{verdict} {type(write).__name__} of {len(rows)} tables"] += 1
            for each in tables:
                await cursor.execute(f"SELECT * FROM {each.name}")
                types = [column.type for column in each.columns]
                theirs = Counter(canonical_row(list(map(_plain, row)), types) for row in await cursor.fetchall())
                ours = Counter(canonical_row(row, types) for row in judge.contents(each.name))
                assert ours == theirs, (each.name, ours - theirs, theirs - ours, "\n".join([*said[:3], *said[-12:]]))
    finally:
        print(done)
        judge.close()
        connection.close()
    assert done.total() > 20


def _plain(value: Any) -> Any:
    if isinstance(value, set | frozenset):
        return ",".join(value)
    return str(value) if isinstance(value, date) else value
