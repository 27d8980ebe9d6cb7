"""The notifications view under its heaviest writer: read ribbons, as fast as they come, in batches.

Every Story page moves a ribbon, and the view of unread replies sees each: in the published runs that was what bounded
the whole site (about 4,300 updates a second). Here are nothing but those updates, beside a reader of notifications now
and then, so that the view has keys to keep::

    95 % a batch of ribbons (one statement)      5 % notifications of as many users (one look-up each)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from loadgen.lobsters import words
from loadgen.lobsters.data import Data
from loadgen.lobsters.visits import Visits
from loadgen.lobsters.workload import natural
from loadgen.pace.jobs import Job
from loadgen.peers.store import Lookup, Session, Upsert

WRITES_PERCENT = 95
USERS_READ = 20
"""Notifications asked for at once."""


@dataclass(frozen=True, slots=True)
class _Move:
    change: Upsert

    async def __call__(self, session: Session) -> None:
        await session.write([self.change])


@dataclass(frozen=True, slots=True)
class _Ask:
    lookups: list[Lookup]

    async def __call__(self, session: Session) -> None:
        await session.read(self.lookups)


class RibbonsWorkload:
    """Of the Lobsters site: prime it with ``lobsters``."""

    name = "ribbons"
    unit = "updates"

    def __init__(self, *, data_scale: float = 1.0, data_seed: int = 1, seed: int = 1, batch: int = 100) -> None:
        self.program = natural()
        self._data = Data(data_scale, data_seed)
        self._scale, self._data_seed, self._batch = data_scale, data_seed, batch
        self._visits = Visits(self._data, seed, 0.0)
        self._random = Random(seed)
        self._gathered = 0.0

    def begin(self, rate: float) -> float:
        self._gathered = self._batch / rate
        return rate / self._batch * 100 / WRITES_PERCENT

    def draw(self, at: float) -> Job:
        if self._random.randrange(100) >= WRITES_PERCENT:
            query = self.program.queries["notifications_of_user"]
            return Job(
                "notifications", _Ask([Lookup(query, (self._visits.draw(at).user,)) for _ in range(USERS_READ)]), 0
            )
        now = words.sql_time(self._data.until + 1 + int(at))
        pairs = {((visit := self._visits.draw(at)).user, visit.story) for _ in range(self._batch)}
        rows = [
            {"user_id": user, "story_id": story, "is_following": 1, "created_at": now, "updated_at": now}
            for user, story in pairs
        ]
        change = Upsert("read_ribbons", rows, ("user_id", "story_id"), ("updated_at",))
        return Job("ribbons", _Move(change), len(rows), self._gathered)

    def probe(self) -> Lookup:
        return Lookup(self.program.queries["story_by_short_id"], (words.story_short_id(self._data.shape.stories),))

    def rows(self) -> tuple[Iterator[tuple[str, list[dict[str, Any]]]], int]:
        data = Data(self._scale, self._data_seed)
        return data.batches(), sum(data.totals.values())
