"""How far each database elsewhere is followed, and waiting for a position of one.

A position is in ``headrace_upstream`` as soon as one shard has its part of the follower's transaction. A cut that is
made after it was seen has that transaction wholly, so the positions of the followed tables in that cut are the token by
which any read of them reflects it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from controller.deployment import StatementResult
from controller.upstreams.positions import Position, position_of
from domains.engine.clock import latest
from domains.errors import BadRequest, HeadraceError, NotFound, ReadTimeout, Unavailable
from domains.language.types import FOLLOWS, TableSchema
from domains.plan.packets import Clock

TABLE = "headrace_upstream"
"""Of the followers' making: a row for each database that is followed."""
READ = (
    "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION READ ONLY;"
    f" SELECT source, reached, written, applied, lag, held, stopped FROM {TABLE}; COMMIT"
)
CUT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION READ ONLY;"
"""What it reads is of one moment, and in conflict with nothing."""
AGAIN_SECONDS = 0.01
"""Between two looks, while somebody waits."""
SILENT_SECONDS = 15.0
"""A follower says every 5 s that there is nothing to do. One that is silent for longer than this is gone."""


@dataclass(frozen=True, slots=True)
class FollowedUpstream:
    """``headrace_upstream``'s row."""

    source: str
    reached: str
    written: str | None
    applied: str | None
    lag: float | None
    held: int | None
    stopped: str | None

    def silent(self, now: datetime) -> float | None:
        """Seconds since its follower has last written, or found nothing to do."""
        if self.applied is None:
            return None
        return max(0.0, (now - datetime.fromisoformat(self.applied)).total_seconds())

    def shown(self, now: datetime) -> dict[str, Any]:
        silent = self.silent(now)
        told = {"position": self.reached, "written": self.written, "lag": self.lag, "silent": silent, "held": self.held}
        alarms = [self.stopped or ""]
        if silent is not None and silent > SILENT_SECONDS and not self.stopped:
            alarms.append(f"its follower has said nothing for {silent:.0f} s")
        return {name: value for name, value in told.items() if value is not None} | {
            "alarm": "; ".join(filter(None, alarms))
        }


class UpstreamPort(Protocol):
    """A deployment, as far as it is asked here."""

    read_timeout: float

    def tables(self) -> list[TableSchema]: ...

    async def execute(self, sql: str) -> tuple[list[StatementResult], Clock]: ...


class FollowedUpstreams:
    """Of one deployment; whoever waits at the same time looks once."""

    def __init__(self, port: UpstreamPort) -> None:
        self._port = port
        self._looking: asyncio.Future[tuple[Mapping[str, FollowedUpstream], Clock]] | None = None

    async def look(self) -> tuple[Mapping[str, FollowedUpstream], Clock]:
        """All that are followed, by name, and the token of what they have brought."""
        if not any(each.name.lower() == TABLE for each in self._port.tables()):
            return {}, {}
        results, clock = await self._port.execute(READ)
        rows: Sequence[Sequence[Any]] = next(each.rows for each in results if each.columns)
        return {str(row[0]): FollowedUpstream(*row) for row in rows}, clock

    async def _look_together(self) -> tuple[Mapping[str, FollowedUpstream], Clock]:
        if self._looking is None:
            self._looking = asyncio.ensure_future(self.look())
            self._looking.add_done_callback(self._looked)
        return await asyncio.shield(self._looking)

    def _looked(self, _: object) -> None:
        self._looking = None

    def following(self, source: str) -> list[TableSchema]:
        return [schema for schema in self._port.tables() if schema.comment == f"{FOLLOWS}{source}"]

    async def positions(self, tables: Iterable[TableSchema]) -> Clock:
        """Of tables, in one cut of now."""
        texts = [
            f"SELECT 1 FROM `{schema.name}` WHERE `{schema.columns[schema.primary_key[0]].name}` = NULL;"
            for schema in tables
        ]
        return (await self._port.execute(f"{CUT} {' '.join(texts)} COMMIT"))[1] if texts else {}

    async def reach(self, source: str, position: str) -> Clock:
        """Wait until what the database had written at the position is here; the token of it.

        :raises NotFound: nothing follows it. :raises BadRequest: it is no position of it.
        :raises Unavailable: its follower has stopped, and why. :raises ReadTimeout: it takes longer than a read may."""
        wanted = position_of(position)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._port.read_timeout
        while True:
            found, clock = await self._look_together()
            there = found.get(source)
            if there is None:
                hint = f"followed are {', '.join(sorted(found))}" if found else "headrace import"
                raise NotFound(f'no database "{source}" is followed here', hint=hint)
            if there.reached and _covers(position_of(there.reached), wanted, source):
                return latest((clock, await self.positions(self.following(source))))
            if there.stopped:
                raise Unavailable(f'"{source}" is not followed any more: {there.stopped}')
            if loop.time() >= deadline:
                at = there.reached or "its beginning"
                message = f'"{source}" did not reach {position} within {self._port.read_timeout:g} s: it is at {at}'
                silent = there.silent(datetime.now(UTC).replace(tzinfo=None))
                is_gone = silent is None or silent > SILENT_SECONDS
                raise ReadTimeout(message, hint="start headrace follow" if is_gone else "try again")
            await asyncio.sleep(AGAIN_SECONDS)

    async def status(self) -> dict[str, Any]:
        """JSON-ready, by name; what cannot be read now is told as that."""
        try:
            found, _ = await self.look()
        except HeadraceError as error:
            return {TABLE: {"alarm": f"it cannot be read: {error.message}"}}
        now = datetime.now(UTC).replace(tzinfo=None)
        return {source: each.shown(now) for source, each in sorted(found.items())}


def _covers(reached: Position, wanted: Position, source: str) -> bool:
    if type(reached) is not type(wanted):
        raise BadRequest(f'{wanted} is no position of "{source}", which is at {reached}')
    return reached.covers(wanted)


async def wait_for_upstream(deployment: Any, source: str, position: str) -> Clock:
    """Wait until what the database ``source`` had written at a position (a GTID, an LSN) is here. A read that waits for
    the token that this answers reflects it. Raises what :meth:`FollowedUpstreams.reach` raises."""
    upstreams: FollowedUpstreams = deployment.upstreams
    return await upstreams.reach(source, position)
