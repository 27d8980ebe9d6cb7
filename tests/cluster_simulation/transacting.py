"""Clients whose transactions go over shards while these move, workers and api processes die, leaders change, and tables
and views are made and altered.

::

    TransactingClient ─► SimulatedApi: ClusterDeployment, on the simulated network (SQL, look-ups, sessions)
        │                     killed now and then, and another one begun
        └─► events ─► tests/histories/checker.py, by what the level promises

A list is a text that grows; each has a key, and its shard by that. What clients did and saw is the history; the last
transaction of it reads all keys when all is quiet, so that what was acknowledged has to be there. Then no shard has a
part of a transaction that is not over, and views have what the tables have.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from controller.access.session import OPEN, Caller
from controller.cluster.serving.deployment import ClusterDeployment
from controller.lookups.binding import RequestMoment
from controller.statements.shapes import AdHocMode
from controller.transactions.limits import Isolation
from domains.errors import HeadraceError, NoLeader, OutcomeUnknown
from domains.language.types import Row
from tests.cluster_simulation.adhoc import evaluated
from tests.cluster_simulation.loop import Process
from tests.histories.events import Event
from tests.histories.served import Asked
from tests.histories.system import Aborted, How, Unknown
from tests.histories.workload import Recorder, Workload, client
from worker.adhoc.answer import Question, Rows
from worker.adhoc.cut import EvaluationCut
from worker.protocol.messages import Role
from worker.wire.connection import greeting
from zookeeper.errors import AuthorityError

if TYPE_CHECKING:
    from tests.cluster_simulation.client import Client
    from tests.cluster_simulation.cluster import Cluster

Answer = TypeVar("Answer")
Change = Callable[[str], Awaitable[Exception | None]]

CLIENTS, BLOCK = 4, 4
APIS = 2
SCHEMA = (
    "CREATE TABLE lists (k INT PRIMARY KEY, block INT NOT NULL, v TEXT NOT NULL)",
    "CREATE EXT VIEW lists_by_key AS SELECT k, v FROM lists WHERE k = ?",
    "CREATE EXT VIEW lists_of AS SELECT k, v FROM lists WHERE block = ?",
)
CHANGES = (
    "ALTER TABLE lists ADD COLUMN more INT",
    "ALTER TABLE lists DROP COLUMN more",
    "CREATE EXT VIEW lists_again AS SELECT a.k, b.v FROM lists a JOIN lists b ON a.k = b.k WHERE a.block = ?",
    "DROP VIEW lists_again",
)
APPEND = "INSERT INTO lists (k, block, v) VALUES ({k}, {block}, '{v}') ON DUPLICATE KEY UPDATE v = CONCAT(v, ',{v}')"
READS: dict[How, str] = {
    "key": "SELECT t.k, t.v FROM lists t WHERE t.k = {first}",
    "range": "SELECT t.k, t.v FROM lists t WHERE t.k BETWEEN {first} AND {last}",
    "join": "SELECT t.k, t.v FROM lists t JOIN lists u ON t.k = u.k WHERE u.block = {block}",
}
WAYS = (
    Asked("serializable"),
    Asked("serializable"),
    Asked("read-committed", locking=True),
    Asked("repeatable-read", locking=True),
    Asked("repeatable-read"),
    Asked("read-committed"),
)
ANSWER_SECONDS = 12.0
"""Longer than anything waits that an api process asks for."""
OVER_SECONDS = 90.0
"""Of the simulation's time, until nothing is in doubt when all is quiet."""


class NoDoor:
    """In place of the leader's: what is declared, the scenario declares."""

    async def _refused(self, *_: Any) -> Any:
        raise NoLeader("nothing is changed by this process")

    run = start = migrations = migration = cancel = status = keep = automatic = _refused

    async def close(self) -> None:
        """There is nothing to close."""


class EvaluatesHere:
    """In place of the processes beside a server."""

    def __init__(self, random: Random) -> None:
        self._random = random

    async def answer(self, question: Question, cut: EvaluationCut, budget: object) -> Rows:
        return await evaluated(self._random, question, cut)

    def close(self) -> None:
        """There are no processes."""


class SimulatedApi:
    """An api process; ``deployment`` is there once it serves."""

    def __init__(self, cluster: Cluster, number: int, incarnation: int, random: Random) -> None:
        self.cluster, self.incarnation, self._random = cluster, incarnation, random
        self.process = Process(cluster.loop, f"client-api{number}.{incarnation}")
        self.gone: asyncio.Future[None] = cluster.loop.create_future()
        self.process.at_death.append(lambda: self.gone.set_result(None))
        self.deployment: ClusterDeployment | None = None
        self.process.spawn(self._run())

    async def _run(self) -> None:
        cluster, name = self.cluster, self.process.name
        authority = await cluster.joined(self.process)
        hello = greeting(cluster.name, Role.API, name, self.incarnation)
        while True:
            try:
                deployment = await ClusterDeployment.open(
                    *(authority, hello, lambda _: NoDoor()),
                    read_timeout=2.0,
                    write_timeout=4.0,
                    ad_hoc=AdHocMode.ANSWER,
                )
                break
            except (HeadraceError, AuthorityError):
                await asyncio.sleep(0.2)
        deployment._hosts._evaluators = EvaluatesHere(self._random)  # type: ignore[assignment]
        deployment.sessions.limits = replace(deployment.sessions.limits, lock_wait=3.0)
        await deployment.meet_others(hello, name, 0, None)
        self.deployment = deployment
        await self.process.loop.create_future()


class Transacting:
    """The clients of one simulation. See :class:`tests.histories.system.System`, which it implements."""

    lists = True

    def __init__(self, cluster: Cluster, seed: int, seconds: float, pace: float, change: Change) -> None:
        self.cluster, self.seconds, self._pace, self._change = cluster, seconds, pace, change
        self.random = Random(f"transactions {seed}")
        self.how = self.random.choice(WAYS)
        self.events: list[Event] = []
        self.counts: Counter[str] = Counter()
        self._workload = Workload(seed, keys=BLOCK, writes=8, longest=4, plain=0.5)
        self._record = Recorder(self.events.append, CLIENTS + 1)
        self._apis: list[SimulatedApi] = []

    # --- a life -----------------------------------------------------------------------------------------------------

    async def define(self) -> None:
        for sql in SCHEMA:
            while (error := await self._change(sql)) is not None and "exists" not in str(error):
                await asyncio.sleep(0.3)
        for number in range(APIS):
            self._start(number)
        while not all(api.deployment for api in self._apis):
            await asyncio.sleep(0.1)

    def _start(self, number: int) -> None:
        self.cluster._incarnations += 1
        api = SimulatedApi(self.cluster, number, self.cluster._incarnations, self.random)
        self._apis[number : number + 1] = [api]

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + self.seconds
        self._workload.go_on = lambda: loop.time() < until
        beside = [asyncio.ensure_future(each) for each in (self._kill_on(), self._change_on())]
        try:
            await asyncio.gather(*(client(number, self, self._workload, self._record) for number in range(CLIENTS)))
        finally:
            for task in beside:
                task.cancel()

    async def _kill_on(self) -> None:
        while True:
            await asyncio.sleep(self.random.expovariate(0.3))
            number = self.random.randrange(APIS)
            self.cluster.kill(self._apis[number].process)
            self.counts["api processes killed"] += 1
            await asyncio.sleep(self.random.random())
            self._start(number)

    async def _change_on(self) -> None:
        while True:
            await asyncio.sleep(self.random.expovariate(0.5))
            if await self._change(self.random.choice(CHANGES)) is None:
                self.counts["changes amid transactions"] += 1

    async def session(self) -> TransactingClient:
        return TransactingClient(self)

    async def pause(self) -> None:
        await asyncio.sleep(self.random.random() * self._pace * self.random.choice((0.0, 0.05, 0.3)))

    async def api(self) -> SimulatedApi:
        """One that serves."""
        while not (serving := [api for api in self._apis if api.deployment and not api.gone.done()]):
            await asyncio.sleep(0.05)
        return self.random.choice(serving)

    # --- the judge --------------------------------------------------------------------------------------------------

    async def over(self) -> None:
        """Return when no shard has a part of a transaction. That ends by itself once all is quiet."""
        for number, api in enumerate(self._apis):
            if api.gone.done():
                self._start(number)
        loop = asyncio.get_running_loop()
        until, left = loop.time() + OVER_SECONDS, "it is not known"
        while left:
            assert loop.time() < until, f"transactions are not over: {left}"
            await asyncio.sleep(0.5)
            left = self._left()

    def _left(self) -> str:
        found = []
        for shard in range(self.cluster.shards):
            for worker in self.cluster.hosted(shard):  # type: ignore[arg-type]
                transactions = worker.dataflow.hosted.hosts[shard].domain.transactions  # type: ignore[index]
                for what in (transactions.open, transactions.prepared, transactions.decided):
                    found += [f"{id} in {shard} of {worker.process}" for id in what]
                if transactions.snapshots.still:
                    found.append(f"{shard} stands still")
        return ", ".join(found)

    async def judge(self, asker: Client, stored: Sequence[Row]) -> None:
        keys = range((self._workload.block + 3) * BLOCK)
        session, rows = TransactingClient(self), {int(row[0]): row for row in stored}
        asked: list[list[Any]] = [["r", key, None] for key in keys]
        self._record(CLIENTS, "invoke", asked)
        await session.begin()
        seen: dict[int, Any] = {}
        for first in range(0, len(keys), BLOCK):
            seen |= await session.read(keys[first : first + BLOCK], "range")
        await session.commit()
        self._record(CLIENTS, "ok", [["r", key, seen.get(key, [])] for key in keys])
        lists = {key: [*map(int, str(row[2]).split(","))] for key, row in rows.items()}
        assert seen == lists, f"a transaction reads {seen} at the end, and {lists} is stored"
        for report in self.how.judged(self.events, "texts"):
            assert report.holds, f"{self.how}: {report}"
            self.counts.update({f"transactions {name}": count for name, count in report.outcomes.items()})
        self.counts["operations judged"] += sum(
            len(event["value"]) for event in self.events if event["type"] != "invoke"
        )
        await self._compare_views(asker, rows)

    async def _compare_views(self, asker: Client, rows: dict[int, Row]) -> None:
        for block in range(self._workload.block + 2):
            wanted = sorted((key, row[2]) for key, row in rows.items() if row[1] == block)
            await self._compare(asker, "lists_of", block, wanted)
        for key, row in rows.items():
            await self._compare(asker, "lists_by_key", key, [(key, row[2])])

    async def _compare(self, asker: Client, view: str, argument: int, wanted: list[Row]) -> None:
        read = lambda: asker.read(view, (argument,), {}, 5.0)
        found = await self.cluster.at(asker.process, read, ANSWER_SECONDS)
        assert sorted(found or ()) == wanted, f"{view} {argument} answers {found}, not {wanted}"


class TransactingClient:
    """Of one api process during a transaction; the next one may be another's."""

    def __init__(self, system: Transacting) -> None:
        self.system = system
        self._api: SimulatedApi
        self._id = ""
        self._caller: Caller = OPEN
        self._reads = 0

    @property
    def _deployment(self) -> ClusterDeployment:
        assert self._api.deployment is not None
        return self._api.deployment

    async def _asked(self, act: Callable[[], Awaitable[Answer]]) -> Answer:
        """TimeoutError where the process dies, or does not answer."""
        api, cluster = self._api, self.system.cluster
        asked = asyncio.ensure_future(cluster.at(api.process, act, ANSWER_SECONDS))
        either: list[asyncio.Future[Any]] = [asked, api.gone]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not asked.done():
            asked.cancel()
            raise TimeoutError
        return await asked  # type: ignore[no-any-return]

    async def _done(self, act: Callable[[], Awaitable[Answer]]) -> Answer:
        await self.system.pause()
        try:
            return await self._asked(act)
        except (HeadraceError, TimeoutError) as error:
            self.system.counts[f"statements ended by {type(error).__name__}"] += 1
            await self.rollback()
            raise Aborted from error

    async def begin(self) -> None:
        self._api = await self.system.api()
        await self._done(self._begin)

    async def _begin(self) -> None:
        sessions = self._deployment.sessions
        self._id = sessions.open("", isolation=Isolation(self.system.how.isolation))
        self._caller = replace(OPEN, session=sessions.found(self._id, ""))

    async def read(self, keys: Sequence[int], how: How) -> dict[int, Any]:
        self._reads += 1
        if how == "key" and self._reads % 2 and not self.system.how.locking:
            moment = RequestMoment(asker=self._caller)
            (page,) = await self._done(lambda: self._deployment.pages("lists_by_key", [[keys[0]]], moment=moment))
            rows = [(row["k"], row["v"]) for row in json.loads(b"[" + page + b"]")]
        else:
            text = READS[how].format(first=keys[0], last=keys[-1], block=keys[0] // BLOCK)
            text += " FOR SHARE" if self.system.how.locking else ""
            results, _ = await self._done(lambda: self._deployment.execute(text, session=self._caller))
            rows = list(results[0].rows)
        return {key: [*map(int, text.split(","))] for key, text in rows}

    @staticmethod
    def _text(key: int, value: int) -> str:
        return APPEND.format(k=key, block=key // BLOCK, v=value)

    async def write(self, key: int, value: int) -> None:
        await self._done(lambda: self._deployment.execute(self._text(key, value), session=self._caller))

    async def write_plainly(self, key: int, value: int) -> None:
        self._api = await self.system.api()
        await self._ended(lambda: self._deployment.execute(self._text(key, value)))

    async def commit(self) -> None:
        await self.system.pause()
        await self._ended(lambda: self._deployment.sessions.commit(self._id, ""))

    async def _ended(self, act: Callable[[], Awaitable[object]]) -> None:
        try:
            await self._asked(act)
        except (OutcomeUnknown, TimeoutError) as error:
            raise Unknown from error
        except HeadraceError as error:
            self.system.counts[f"commits ended by {type(error).__name__}"] += 1
            raise Aborted from error  # It says that nothing was done.

    async def rollback(self) -> None:
        try:
            await self._asked(lambda: self._deployment.sessions.roll_back(self._id, ""))
        except (HeadraceError, TimeoutError):
            return  # It is over, or will be without this client.

    async def close(self) -> None:
        """There is nothing to close."""
