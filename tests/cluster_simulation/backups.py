"""Back-ups of a simulated cluster, taken beside writes and DDL, and judged by the history of both.

What is real: the coordinator (``archive_cluster`` of an api process, ``archive_led`` of a leader), and what keeps and
chooses the records of recipes and of cuts. Their files are in memory, and every process has a clock of its own, which
is set now and then. Every cut that was judged when it was taken is chosen once more at the end, by its time.

Beside the ledger there is a table that is replaced again and again: another is created, all rows are copied, the former
one is dropped. So whoever has the recipe of another moment than the rows has a table without them, or no table at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any
from unittest import mock

from controller.cluster.serving.archiving import archive_cluster, archive_led
from controller.deployment import ArchivedPositions
from domains.errors import HeadraceError
from domains.language.types import Row, TableSchema
from domains.plan.packets import Clock
from domains.plan.sharding import base_shard
from migrations.change import change_of
from migrations.flow.plan import State, one_domain
from migrations.recipe import Recipe, RecipeEntry
from tests.cluster_simulation.archive import SimulatedArchive
from tests.cluster_simulation.client import Client, Ending
from tests.cluster_simulation.cluster import Cluster
from tests.cluster_simulation.loop import PROCESS
from worker.archive import recipes
from worker.archive.recipes import Cut, RecipeBook, RecipeRecord, record_at
from zookeeper.errors import AuthorityError

SKEWS = (0.0, 0.0, -30.0, 3600.0)
"""Seconds that the clock of a process is ahead."""
SET = 0.1
"""How often a clock is set before it is looked at."""
BACKUP_SECONDS = 20.0
DAY = 1_700_000_000.0
"""When a simulation begins, by a clock that is right."""

CUTS_OWN = (2**62, 0)
"""See ``headrace/backup/taking.py``: the version of the record that a back-up adds for its own cut."""

Change = Callable[[str], Awaitable[Exception | None]]


class MemoryPlace:
    """See ``worker.archive.place.Place``: what a book of recipes asks of it."""

    url = "archive"

    def __init__(self, archive: SimulatedArchive) -> None:
        self._archive = archive
        self._files: dict[str, bytes] = {}

    def files(self, directory: str) -> list[str]:
        self._archive.check()
        return sorted(file.removeprefix(f"{directory}/") for file in self._files if file.startswith(f"{directory}/"))

    def read(self, file: str) -> bytes | None:
        self._archive.check()
        return self._files.get(file)

    def replace(self, file: str, data: bytes) -> None:
        self._archive.check()
        self._files[file] = data

    def shown(self, file: str) -> str:
        return file


@dataclass(frozen=True, slots=True)
class History:
    """What was acknowledged, and decided, up to a moment."""

    rows: dict[str, frozenset[int]]
    """Table → the numbers of rows that are to be there from now on. ``KEPT`` is whichever tables are in its place."""
    changes: tuple[str, ...]
    decided: int
    """The number of the latest recipe that was decided."""


KEPT = "kept"


class Backups:
    def __init__(self, cluster: Cluster, seed: int, clients: list[Client], change: Change) -> None:
        assert cluster.archive is not None
        self.cluster, self.clients = cluster, clients
        self.random = Random(f"backups {seed}")
        self.counts: dict[str, int] = {
            "back-ups judged": 0,
            "back-ups refused": 0,
            "tables replaced": 0,
            "times judged": 0,
        }
        self._archive = cluster.archive
        self._place: Any = MemoryPlace(cluster.archive)
        self._change = change
        self._decided: dict[Recipe, int] = {Recipe(): 0}
        """All recipes that were ever decided, numbered: one that was made short has fewer entries than that before."""
        self._since: dict[str, int] = {}
        """By statement, the first of them that had it."""
        self._watch()
        self._changes: list[str] = []
        """Statements that were acknowledged."""
        self._kept: set[int] = set()
        """Rows that were acknowledged by the table that is replaced."""
        self._number = self._id = 0
        self._skews: dict[str, float] = {}
        self._tables: dict[Recipe, list[TableSchema]] = {}
        self._judged: list[tuple[Cut, dict[str, list[Row]]]] = []
        """Cuts, and what was right of each."""

    # --- in place of files, threads and clocks -------------------------------------------------------------------

    @contextmanager
    def simulated(self) -> Iterator[None]:
        """Within the block the real coordinator keeps recipes in memory, by the clock of the process that does."""
        keep = recipes.keep_recipe

        def keep_recipe(*given: Any, **named: Any) -> Any:
            return keep(*given, **named, now=self._now)

        async def apart(act: Callable[..., Any], *given: Any, **named: Any) -> Any:
            await asyncio.sleep(self.random.random() * 0.02)
            return act(*given, **named)

        with (
            mock.patch.multiple(recipes, keep_recipe=keep_recipe, Place=lambda _: self._place),
            mock.patch("asyncio.to_thread", apart),
        ):
            yield

    def _now(self) -> float:
        process = PROCESS.get()
        name = "" if process is None else process.name
        if name not in self._skews or self.random.random() < SET:
            self._skews[name] = self.random.choice(SKEWS)
        return DAY + self.cluster.loop.time() + self._skews[name]

    # --- writes and DDL ------------------------------------------------------------------------------------------

    async def write_on(self, client: Client, seconds: float) -> None:
        """Insert into a table, and replace it by another now and then."""
        end = self.cluster.loop.time() + seconds
        while self.cluster.loop.time() < end:
            await self._create(client)
            if await self._insert(client, range(self._id, self._id + 2)) and self.random.random() < 0.5:
                await self._replace(client)
            await asyncio.sleep(self.random.random() * 0.3)

    async def _create(self, client: Client) -> None:
        name = f"{KEPT}{self._number}"
        if name not in client.directory.state.catalog.tables:
            await self._changed(f"CREATE TABLE {name} (id INT PRIMARY KEY)")
            await client.directory.refresh()

    async def _insert(self, client: Client, ids: range | list[int]) -> bool:
        self._id = max(self._id, *(number + 1 for number in ids))
        values = ", ".join(f"({number})" for number in ids)
        ending, _ = await client.write(f"REPLACE INTO {KEPT}{self._number} VALUES {values}")
        if ending is Ending.DONE:
            self._kept.update(ids)
        return ending is Ending.DONE

    async def _replace(self, client: Client) -> None:
        former = self._number
        self._number += 1
        await self._create(client)
        if not await self._insert(client, sorted(self._kept)):
            self._number = former  # The other is there, perhaps, and is filled another time.
            return
        self.counts["tables replaced"] += 1
        await self._changed(f"DROP TABLE {KEPT}{former}")

    async def _changed(self, sql: str) -> None:
        if await self._change(sql) is None:
            self._changes.append(sql)

    # --- back-ups ------------------------------------------------------------------------------------------------

    async def take_on(self, seconds: float, judge: Callable[[History, ArchivedPositions], None]) -> None:
        end = self.cluster.loop.time() + seconds
        while self.cluster.loop.time() < end:
            await asyncio.sleep(self.random.random() * self.random.choice((0.1, 1.0)))
            history = self.history()
            try:
                judge(history, await self._take())
            except (HeadraceError, AuthorityError, TimeoutError) as error:
                self.counts["back-ups refused"] += 1
                self.cluster.say(f"no back-up: {error or 'no answer'}")

    async def _take(self) -> ArchivedPositions:
        """By an api process, or by the leader."""
        controller = self.cluster.leader()
        leader = None if controller is None else controller.leader
        if leader is not None and leader.migrator is not None and self.random.random() < 0.5:
            self.cluster.say(f"{controller.process} takes a back-up")
            return await self._answered(controller.process, lambda: archive_led(leader, None))
        client = self.random.choice(self.clients)
        self.cluster.say(f"{client.process} takes a back-up")
        return await self._answered(client.process, lambda: archive_cluster(client.directory, client.connections))

    async def _answered(self, process: Any, act: Callable[[], Awaitable[ArchivedPositions]]) -> ArchivedPositions:
        taken: ArchivedPositions = await self.cluster.at(process, act, BACKUP_SECONDS)
        return taken

    def history(self) -> History:
        rows: dict[str, frozenset[int]] = {KEPT: frozenset(self._kept)}
        for client in self.clients:
            for table, known in client.known().items():
                rows[table] = rows.get(table, frozenset()) | {int(row[0]) for row in known}  # type: ignore[arg-type]
        return History(rows, tuple(self._changes), len(self._decided) - 1)

    def _watch(self) -> None:
        """See each decision as it is made."""
        zookeeper, set = self.cluster.zookeeper, self.cluster.zookeeper.set
        create = zookeeper.create

        def seen() -> None:
            decided = self.cluster.decided()
            if decided is not None and decided.recipe not in self._decided:
                number = self._decided[decided.recipe] = len(self._decided)
                for entry in decided.recipe.entries:
                    for sql in entry.statements:
                        self._since.setdefault(sql, number)

        def watched_set(path: str, data: bytes, version: int) -> int:
            after = set(path, data, version)
            seen()
            return after

        def watched_create(path: str, data: bytes, owner: int) -> None:
            create(path, data, owner)
            seen()

        zookeeper.set, zookeeper.create = watched_set, watched_create  # type: ignore[method-assign]

    # --- the judge -----------------------------------------------------------------------------------------------

    def restored(self, archived: ArchivedPositions) -> dict[str, list[Row]]:
        """All tables as ``headrace restore`` has them of the back-up: the last of its records, and of the tables in its
        recipe what is archived up to the cut."""
        return self._rows_at(self._recipe(archived), archived.positions)

    def _rows_at(self, recipe: Recipe, positions: Clock) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {}
        named = set()
        for schema in self._tables_of(recipe):
            rows = found[schema.name] = []
            for shard in range(schema.shards or self.cluster.shards):
                base = base_shard(schema.name, schema.generation, shard, self.cluster.shards)
                named.add(base)
                assert base in positions, f"the recipe of a back-up has {base}, of which nothing was cut"
                manifest = self._archive.manifests[base]
                for row, weight in manifest.fold(positions[base], schema):
                    rows += [row] * weight
        extra = sorted(positions.keys() - named)
        assert not extra, f"a back-up was cut of {extra}, and its recipe has no such table"
        return found

    def _recipe(self, archived: ArchivedPositions) -> Recipe:
        """That of the last record, as a back-up and a restore order them."""
        book = [each for each in self._book.records() if each.number <= archived.number]
        own = RecipeRecord(
            archived.time,
            archived.positions,
            archived.identities,
            archived.shards,
            archived.recipe,
            number=archived.number,
            version=CUTS_OWN,
        )
        last = record_at(sorted([*book, own], key=lambda each: each.order))
        assert last is not None
        return Recipe.from_json(last.recipe.encode())

    def _tables_of(self, recipe: Recipe) -> list[TableSchema]:
        """Views are not planned again: that takes more than all else, and tables do not depend on them."""
        if recipe not in self._tables:
            state, dropped = State(shards=self.cluster.shards), dict[str, int]()
            for entry in recipe.entries:
                dropped |= dict(entry.dropped)
                for sql in entry.statements:
                    if sql.split()[1].upper() == "TABLE":
                        alone = RecipeEntry((sql,), dropped=tuple(dropped.items()))
                        state, dropped = change_of(state, alone, one_domain).state, {}
            self._tables[recipe] = list(state.catalog.tables.values())
        return self._tables[recipe]

    def judge(
        self, before: History, archived: ArchivedPositions, intended: dict[str, dict[int, Row]]
    ) -> dict[str, list[Row]]:
        """``before``: as it was at the call. What was lost with a disk may be missing. Answers what is restored."""
        recipe = self._recipe(archived)
        number = self._decided.get(recipe)
        assert number is not None, "a back-up has a recipe that was never decided"
        assert number >= before.decided, "a back-up has an older recipe than at the call"
        for sql in before.changes:
            assert self._since[sql] <= number, f"{sql} was acknowledged, and is not in the back-up"
        found = self.restored(archived)
        lost = self.cluster.losses.rows
        for table, ids in before.rows.items():
            names = [name for name in found if name == table or (table == KEPT and name.startswith(KEPT))]
            there = {row[0] for name in names for row in found[name]}
            gone = {number for name, numbers in lost.items() if name.startswith(table) for number in numbers}
            missing = sorted(ids - there - gone)
            assert not missing, f"rows {missing} of {table} were acknowledged before the back-up that has them not"
        for table, rows in intended.items():
            for row in found.get(table, ()):
                assert rows.get(int(row[0])) == row, f"a back-up has {row} in {table}, which nobody inserted"  # type: ignore[arg-type]
        self.counts["back-ups judged"] += 1
        whole = [each for each in self._book.cuts() if each.record.number == archived.number]
        cuts = [each for each in whole if each.positions == archived.positions]
        assert cuts, "a back-up was told of a cut that was not recorded"
        self._judged.append((cuts[-1], found))
        return found

    def _judge_times(self) -> None:
        """As of the time of each cut that is kept, exactly what was right of it, whatever clocks have done."""
        cuts = list(self._book.cuts())
        for one, next_one in pairwise(cuts):
            assert one.time < next_one.time, "cuts are not in the order of their times"
            less = [base for base, at in one.positions.items() if next_one.positions.get(base, at) < at]
            assert not less, f"of {less} a later cut has less than the one before it"
        for cut, wanted in self._judged:
            chosen = self._book.cut_at(cut.time)
            assert chosen == cut, f"as of {cut.time} another cut is restored than the one of that time"
            found = self._rows_at(Recipe.from_json(chosen.record.recipe.encode()), chosen.positions)
            assert found == wanted, f"a restore as of {cut.time} is not what was there at that cut"
            self.counts["times judged"] += 1

    @property
    def _book(self) -> RecipeBook:
        return RecipeBook(self._place)

    async def last(self, intended: dict[str, dict[int, Row]], stored: dict[str, list[Row]]) -> None:
        """At rest: the back-up has exactly what is stored, and the archive itself the recipe that is decided."""
        history, archived = self.history(), await self._take()
        found = self.judge(history, archived, intended)
        assert found.keys() == stored.keys(), f"the last back-up has {sorted(found)}, not {sorted(stored)}"
        for table, rows in stored.items():
            assert sorted(map(repr, found[table])) == sorted(map(repr, rows)), f"the last back-up has another {table}"
        last = self._book.cut_at()
        assert last is not None
        decided = self.cluster.decided()
        assert decided is not None
        assert Recipe.from_json(last.record.recipe.encode()) == decided.recipe, (
            "the archive's last recipe is an old one"
        )
        assert last.positions == archived.positions, "the archive's last cut is an old one"
        self._judge_times()


__all__ = ["Backups"]
