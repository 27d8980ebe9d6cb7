"""The load itself: an open loop. Requests go out when they are due, however long the ones before them take.

A closed loop would send nothing while it waits, and so count a pause of a second as one slow request.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any

from loadgen.drills.load import program
from loadgen.drills.load.ledger import Fate, Record, WriteLedger
from loadgen.drills.load.program import NEWEST_ROWS, STORIES, USERS, HttpRequest
from loadgen.peers.headrace import HeadraceConnection, HttpAnswer
from loadgen.peers.store import LoadRunError, Lost, NotSent

TICK = 0.004
"""Seconds between two looks at what is due: a hundredth of what a person notices, and hardly any work."""
WITHIN = 12.0
"""Seconds after which a request is given up. More than a server's own time-out: it is to say what it knows."""

READS = (("StoryTotals", 40), ("Newest", 25), ("UserTotals", 25), ("Totals", 5), ("Top", 5))
WRITES = (("insert", 75), ("revise", 15), ("delete", 10))
"""Kinds with their shares in percent."""
ROWS_MAX = 3
"""Rows of one insert at most."""
OWN_READS = 5
"""One of so many inserts is read back at once, with its token."""
ENTRIES_MAX = 3_000
"""Entries that stand; past that a delete takes the place of an insert. A drill of hundreds of rounds is to end with as
much data as it began with, or it would measure how writes slow down as a story's entries grow in number."""

NOT_DONE = frozenset({"unavailable", "overloaded", "not_served", "not_here"})
"""Codes of answers with status 503 that say that a write was not done."""


CONNECTIONS_MAX = 512
"""Connections to one target. A request that finds none free waits, and its waiting counts."""


class HttpTarget:
    """Connections to one server."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self._idle: list[HeadraceConnection] = []
        self._free = asyncio.Semaphore(CONNECTIONS_MAX)

    async def ask(self, request: HttpRequest, within: float) -> HttpAnswer:
        """The answer, whatever its status. Raises NotSent, Lost."""
        sent = False
        try:
            async with asyncio.timeout(within), self._free:
                connection, used = await self._connection()
                sent = True
                try:
                    (answer,) = await connection.ask([request.data])
                except Lost:
                    if not (used and request.again):
                        raise
                    connection = await self._connect()
                    (answer,) = await connection.ask([request.data])
                if connection.open:
                    self._idle.append(connection)
                return answer
        except TimeoutError:
            raise (Lost if sent else NotSent)(f"no answer within {within:g} s") from None

    async def _connection(self) -> tuple[HeadraceConnection, bool]:
        """One that is open, and whether it has been used before."""
        while self._idle:
            connection = self._idle.pop()
            if connection.open:
                return connection, True
        return await self._connect(), False

    async def _connect(self) -> HeadraceConnection:
        try:
            return await HeadraceConnection.connect(self.host, self.port)
        except LoadRunError as error:
            raise NotSent(error.message) from error

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


@dataclass(slots=True)
class Rates:
    """Requests a second."""

    reads: float = 200.0
    writes: float = 50.0


@dataclass
class DrillLoad:
    targets: list[HttpTarget]
    rates: Rates
    random: Random
    ledger: WriteLedger = field(default_factory=WriteLedger)
    marked: WriteLedger = field(default_factory=WriteLedger)
    """The ledger at the time when a copy was asked for."""
    records: list[Record] = field(default_factory=list)
    unseen: int = 0
    """Reads with a write's token that did not see the write. Must be 0."""
    problems: Counter[str] = field(default_factory=Counter)
    """Failures, in the words of the answers, and their number."""
    resting: bool = False
    """Nothing is written, reads go on."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _running: asyncio.Task[None] | None = None
    _revising: set[int] = field(default_factory=set)
    _deletable: deque[int] = field(default_factory=deque)
    """Entries that were acknowledged and that nobody has asked to delete."""
    _turn: int = 0

    def go(self) -> None:
        if self._running is None:
            self._running = asyncio.create_task(self._run())

    async def pause(self) -> None:
        """Returns when nothing is under way any more."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
            self._running = None
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def rest(self) -> None:
        """Returns when no write is under way any more; reads go on."""
        self.resting = True
        before = set(self._tasks)
        if before:
            await asyncio.wait(before)

    async def ask(self, request: HttpRequest, within: float = WITHIN) -> HttpAnswer:
        """Each target in turn. Raises NotSent, Lost."""
        self._turn += 1
        return await self.targets[self._turn % len(self.targets)].ask(request, within)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        due_read = due_write = 0
        while True:
            now = loop.time() - began
            while due_read < now * self.rates.reads:
                self._begin(self._read, began + due_read / self.rates.reads)
                due_read += 1
            while due_write < now * self.rates.writes:
                if not self.resting:  # What was not written meanwhile is not made up for.
                    self._begin(self._write, began + due_write / self.rates.writes)
                due_write += 1
            await asyncio.sleep(TICK)

    def _begin(self, act: Callable[[float], Coroutine[Any, Any, None]], due: float) -> None:
        task = asyncio.create_task(act(due))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.problems[f"fault of the load: {error!r}"] += 1

    def _note(self, due: float, kind: str, key: int | None, outcome: str) -> None:
        latency = asyncio.get_running_loop().time() - due
        self.records.append(Record(due, latency, kind, -1 if key is None else key, outcome))

    # --- reads ------------------------------------------------------------------------------------------------

    async def _read(self, due: float) -> None:
        view = _drawn(self.random, READS)
        key = self.random.choice(program.keys_of(view))
        try:
            answer = await self.ask(program.read(view, key))
        except (NotSent, Lost) as error:
            self._problem(view, str(error))
            self._note(due, view, key, "error")
            return
        if answer.status != 200:
            self._problem(view, _said(answer)[1])
            self._note(due, view, key, "error")
            return
        self._note(due, view, key, "ok")
        if view == "Newest":
            self.ledger.saw(row["id"] for row in json.loads(answer.body)["rows"])

    async def _read_own(self, story: int, number: int, token: str) -> None:
        due = asyncio.get_running_loop().time()
        try:
            answer = await self.ask(program.read("Newest", story, token))
        except (NotSent, Lost) as error:
            self._problem("own", str(error))
            self._note(due, "own", story, "error")
            return
        if answer.status != 200:
            self._problem("own", _said(answer)[1])
            self._note(due, "own", story, "error")
            return
        numbers = [row["id"] for row in json.loads(answer.body)["rows"]]
        newer = len(numbers) == NEWEST_ROWS and min(numbers) > number
        deleted = self.ledger.entries[number].deleted is not Fate.REFUSED
        seen = number in numbers or newer or deleted
        if not seen:
            self.unseen += 1
            self._problem("own", f"entry {number} of story {story} is not among {numbers}")
        self._note(due, "own", story, "ok" if seen else "wrong")

    # --- writes -----------------------------------------------------------------------------------------------

    async def _write(self, due: float) -> None:
        kind = _drawn(self.random, WRITES)
        story = self.random.randrange(STORIES)
        full = kind == "insert" and len(self._deletable) >= ENTRIES_MAX
        if full or (kind == "delete" and self._deletable):
            await self._delete(due)
        elif kind == "revise" and story not in self._revising:
            await self._revise(due, story)
        else:
            await self._insert(due, story)

    async def _insert(self, due: float, story: int) -> None:
        ledger, random = self.ledger, self.random
        rows = [(random.randrange(USERS), random.randrange(1, 100)) for _ in range(random.randint(1, ROWS_MAX))]
        numbers = ledger.ask(story, rows)
        given = [(number, *row) for number, row in zip(numbers, rows, strict=True)]
        fate, answer = await self._send("insert", story, due, program.insert(story, given))
        ledger.written(numbers, fate)
        if fate is Fate.DONE:
            self._deletable.extend(numbers)
            if random.randrange(OWN_READS) == 0:
                await self._read_own(story, numbers[-1], answer["token"])

    async def _delete(self, due: float) -> None:
        place = self.random.randrange(len(self._deletable))
        number = self._deletable[place]
        del self._deletable[place]
        self.ledger.ask_delete(number)
        story = self.ledger.entries[number].story
        fate, answer = await self._send("delete", story, due, program.delete(story, number))
        self.ledger.deleted(number, fate)
        if fate is Fate.DONE and answer["rows_affected"] != 1:
            self._problem("delete", f"entry {number} was there {answer['rows_affected']} times")

    async def _revise(self, due: float, story: int) -> None:
        revision = self.ledger.ask_revision(story)
        self._revising.add(story)
        fate, _ = await self._send("revise", story, due, program.revise(story, revision))
        self._revising.discard(story)
        self.ledger.revised(story, revision, fate)

    async def _send(self, kind: str, story: int, due: float, request: HttpRequest) -> tuple[Fate, dict[str, Any]]:
        try:
            answer = await self.ask(request)
        except NotSent as error:
            self._problem(kind, str(error))
            self._note(due, kind, story, "refused")
            return Fate.REFUSED, {}
        except Lost as error:
            self._problem(kind, str(error))
            self._note(due, kind, story, "unknown")
            return Fate.UNKNOWN, {}
        if answer.status == 200:
            self._note(due, kind, story, "ok")
            return Fate.DONE, json.loads(answer.body)
        code, message = _said(answer)
        refused = answer.status < 500 or (answer.status == 503 and code in NOT_DONE)
        self._problem(kind, message)
        self._note(due, kind, story, "refused" if refused else "unknown")
        return (Fate.REFUSED if refused else Fate.UNKNOWN), {}

    def _problem(self, kind: str, text: str) -> None:
        self.problems[f"{kind}: {text}"] += 1


def _drawn(random: Random, shares: tuple[tuple[str, int], ...]) -> str:
    at = random.randrange(100)
    for kind, share in shares:
        at -= share
        if at < 0:
            return kind
    raise AssertionError("the shares are percent")


def _said(answer: HttpAnswer) -> tuple[str, str]:
    """Code and message of an error."""
    try:
        error = json.loads(answer.body)["error"]
        return str(error["code"]), f"{answer.status} {error['code']}: {error['message']}"
    except (ValueError, KeyError, TypeError):
        return "", f"{answer.status}: {answer.body[:200]!r}"
