"""Bringing to an end what a commit over several shards has left: its coordinator went, or a shard was away.

::

    each base shard ─► what is prepared here, and who decides; what was decided here, and who has to hear of it
    prepared for long  ─► the decider: roll back, unless committed ─► commit or roll back here
    decided for long   ─► the others: commit                       ─► forget it at the decider
    open, and begun by an api process that is gone, or has left it ─► roll back here
    stands still       ─► for a snapshot that was given up: go on

Anybody may do this, and several at once: each act is one that changes nothing where it was done before, and **a decider
that was asked has decided**, since what it had not committed it has rolled back then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from time import time
from typing import Any

from controller.transactions.sessions import TransactionInfo, process_of
from controller.transactions.transaction import Transacting
from domains.errors import HeadraceError
from domains.plan.graph import DomainIndex
from domains.plan.packets import Commit, ForgetDecision, InTransaction, RollBack, TransactionAct, Written
from domains.plan.snapshots import DropSnapshot
from worker.protocol.messages import KeptSnapshots, KnownTransaction

_log = logging.getLogger("headrace.controller")

DOUBT_SECONDS = 5.0
"""After so long a transaction that is prepared counts as left by whoever commits it. Where it was not, it is ended."""
STILL_SECONDS = 2.0
"""The same of a snapshot that is being taken: twice as long as whoever takes one waits."""
LOOK_SECONDS = 0.5
OTHERS_SECONDS = 30.0
"""Between two looks at what others may have left, where nobody has met it."""
ALARM_SECONDS = 10.0
"""One that is in doubt for longer is an alarm: twice what ends it where all its shards are there."""
LIST_SECONDS = 1.0
"""For a list, a shard has so long to tell what it knows."""
MOST_LISTED = 1_000
"""Transactions in a list of those in doubt, the longest first."""


class InDoubt:
    """It looks while it has a reason to: something may have been left, or was found."""

    def __init__(
        self,
        act: Transacting,
        known: Callable[[DomainIndex], Awaitable[Sequence[KnownTransaction]]],
        kept: Callable[[DomainIndex], Awaitable[KeptSnapshots]],
        bases: Callable[[], Sequence[DomainIndex]],
        patience: float = DOUBT_SECONDS,
    ) -> None:
        """``known``, ``kept``: what a base shard knows of transactions and snapshots; see
        :class:`controller.hosts.Hosts`. ``patience``: seconds after which one that is prepared counts as left."""
        self._patience = patience
        self._transact = act
        self._known = known
        self._kept_at = kept
        self._bases = bases
        self._seen: dict[tuple[DomainIndex, str], float] = {}
        """When what is known of a transaction was first seen."""
        self._task: asyncio.Task[None] | None = None
        self._again = False
        self.alive: Callable[[], Awaitable[frozenset[int] | None]] | None = None
        """In a cluster, the api processes that are there; None: that is not known."""
        self.has_left: Callable[[str], bool] = lambda id: False
        """Whether this process has begun a transaction and goes on with it no more: what it had asked of a shard that
        was away may have come there later than the end."""
        self._timer: asyncio.TimerHandle | None = None

    def look(self, *, at_once: bool = False) -> None:
        """Something may have been left; ``at_once``: nobody else is at work on it."""
        self._again = True
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(0.0 if at_once else self._patience))

    def look_now_and_then(self) -> None:
        """Others, who may go at any moment, commit transactions too."""
        self.look()
        self._timer = asyncio.get_running_loop().call_later(OTHERS_SECONDS, self.look_now_and_then)

    async def listed(self, open: Sequence[TransactionInfo]) -> tuple[list[TransactionInfo], list[DomainIndex]]:
        """``open``, those of this process, with what each shard knows, the oldest first; and the shards that do not
        tell."""
        bases = self._bases()
        told = await asyncio.gather(*(self._told(base) for base in bases if len(bases) > 1))
        parts: dict[str, dict[DomainIndex, KnownTransaction]] = {}
        for base, known in zip(bases, told, strict=False):
            for each in known or ():
                if each.is_open:
                    continue
                parts.setdefault(each.id, {})[base] = each
        found, now = {each.id: each for each in open}, time()
        doubted = sorted((_info(id, known, now) for id, known in parts.items()), key=lambda each: -each.seconds)
        for info in doubted[:MOST_LISTED]:
            own = found.get(info.id)
            found[info.id] = (
                info if own is None else replace(own, state=info.state, shards=info.shards, holds=info.holds)
            )
        missing = [base for base, known in zip(bases, told, strict=False) if known is None]
        return sorted(found.values(), key=lambda each: -each.seconds), missing

    async def _told(self, base: DomainIndex) -> Sequence[KnownTransaction] | None:
        try:
            async with asyncio.timeout(LIST_SECONDS):
                return await self._known(base)
        except (HeadraceError, TimeoutError):
            return None

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, patience: float) -> None:
        while self._again or self._seen:
            self._again = False
            alive = None if self.alive is None else await self.alive()
            for base in self._bases():
                try:
                    await self._look_at(base, patience, alive)
                except (HeadraceError, TimeoutError) as error:
                    self._again = True
                    _log.debug("what domain %d knows of transactions is not known: %s", base, error)
            if self._again or self._seen:
                await asyncio.sleep(LOOK_SECONDS)

    async def _look_at(self, base: DomainIndex, patience: float, alive: frozenset[int] | None) -> None:
        told = await self._known(base)
        known: dict[str, KnownTransaction | None] = {}
        left = [each for each in told if not each.is_open or _is_orphan(each.id, alive) or self.has_left(each.id)]
        known |= {each.id: each for each in left}
        if still := (await self._kept_at(base)).still:
            known[still] = None
        for place in [place for place in self._seen if place[0] == base and place[1] not in known]:
            del self._seen[place]
        now = asyncio.get_running_loop().time()
        for id, each in known.items():
            seen = self._seen.setdefault((base, id), now)
            if each is None and now - seen >= min(patience, STILL_SECONDS):
                await self._act(DropSnapshot(), id, base)
                _log.warning('domain %d stood still for snapshot "%s", which was given up, and goes on', base, id)
                del self._seen[base, id]
            elif each is not None and now - seen >= patience:
                await self._settle(base, each)
                del self._seen[base, id]

    async def _settle(self, base: DomainIndex, known: KnownTransaction) -> None:
        if known.is_open:
            await self._act(RollBack(), known.id, base)
            return
        if known.others:
            commit = Commit(decided=True, copies=(await self._act(RollBack(), known.id, base)).copies)
            for other in known.others:
                await self._act(commit, known.id, other)
            await self._act(ForgetDecision(), known.id, base)
            return
        told = await self._act(RollBack(), known.id, known.decider)
        commit = Commit(decided=True, copies=told.copies)
        await self._act(commit if told.rows_affected else RollBack(), known.id, base)
        how = "committed" if told.rows_affected else "rolled back"
        _log.warning('transaction "%s", which was left in doubt, was %s in domain %d', known.id, how, base)

    async def _act(self, act: TransactionAct, id: str, domain: DomainIndex) -> Written:
        return await self._transact(act, InTransaction(id, domain=domain), None)


def _is_orphan(id: str, alive: frozenset[int] | None) -> bool:
    """Whether the api process that has begun it is gone: nobody can go on with it."""
    return alive is not None and process_of(id) != 0 and process_of(id) not in alive


def _info(id: str, parts: Mapping[DomainIndex, KnownTransaction], now: float) -> TransactionInfo:
    """By what its shards know. It is as old as it has been prepared."""
    since = min((each.since for each in parts.values() if each.since), default=now)
    shards = {*parts, *(shard for each in parts.values() for shard in (each.decider, *each.others))}
    held = [what for each in parts.values() for what in each.holds]
    state = "committed" if any(each.others for each in parts.values()) else "in doubt"
    seconds = round(max(0.0, now - since), 3)
    return TransactionInfo(id, "", seconds, seconds, 0, False, state, tuple(sorted(shards)), tuple(held))


def told_of_doubt(prepared: Mapping[str, float], open: int) -> dict[str, Any]:
    """For a status: how many are in doubt, and since when the first of them is; and an alarm where that is long ago.

    ``prepared``: when each of them was. ``open``: how many this process has open."""
    now = time()
    ages = {id: max(0.0, now - (since or now)) for id, since in prepared.items()}
    oldest = max(ages, key=lambda id: ages[id], default="")
    seconds = ages.get(oldest, 0.0)
    shown = {"open": open, "in_doubt": len(ages), "in_doubt_seconds": round(seconds, 3)}
    if seconds <= ALARM_SECONDS:
        return shown
    others = f", and {len(ages) - 1} more are in doubt" if len(ages) > 1 else ""
    told = (
        f'transaction "{oldest}" has been in doubt for {seconds:.0f} s{others}: what it has read and changed is held '
        "until the shard that decides answers. SHOW TRANSACTIONS names its shards"
    )
    return {**shown, "alarm": told}
