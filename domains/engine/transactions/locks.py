"""What transactions hold against others, and those who wait for it, each in its turn.

A lock is a look-up that was made to write: of a key by some columns, of a range, of a table whole. It is met by whoever
changes a row that it would find, and by whoever looks up, to write, what its holder has changed, or has read
``FOR UPDATE``. So there are no other locks than what is looked up, and no table of them beside ``TableLookUps``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from domains.engine.transactions.look_ups import WHOLE, TableLookUps, Touched
from domains.engine.transactions.open_transaction import OpenTransaction
from domains.errors import Conflict, HeadraceError, Locked
from domains.language.types import Delta, Row
from domains.plan.graph import DomainIndex
from domains.plan.packets import FIRST_DOMAIN, Failed, InTransaction, Reply, RequestId, Write

Changed = Mapping[str, Sequence[Delta]]
"""Rows by table."""


@dataclass(frozen=True, slots=True)
class Met:
    """What a statement has met that others hold."""

    table: str
    touched: Touched
    said: str
    holders: frozenset[str]


class HeldByLocks(Locked):
    """Transactions hold it that take their time: whoever wants it stands in line, in this domain."""

    def __init__(self, message: str, *, hint: str | None = None, domain: DomainIndex = FIRST_DOMAIN) -> None:
        super().__init__(message, hint=hint)
        self.domain = domain


class Waits(Exception):
    """A statement is to wait: nothing of it was done."""

    def __init__(self, met: Met) -> None:
        super().__init__(met.said)
        self.met = met


@dataclass(frozen=True, slots=True)
class WaitingWrite:
    packet: Write
    id: str
    met: Met
    refused: HeadraceError | None = None
    """It waits in vain."""


class Locks:
    """Of one domain."""

    def __init__(self, look_ups: Mapping[str, TableLookUps]) -> None:
        self._look_ups = look_ups
        self.holders: dict[str, OpenTransaction] = {}
        """Those whose look-ups are locks: who is prepared, and who takes locks and has some."""
        self.waiting: dict[RequestId, WaitingWrite] = {}
        """In the order in which they came."""
        self.waits_for: Callable[[str], Collection[str]] = self.waited_for
        """Of all shards that are known here: whoever hosts several sets it."""
        self._line: list[RequestId] = []
        """Who is to be looked at, since something was let go."""
        self._asked: RequestId | None = None
        """Who is being tried: it is answered with that, unless it waits again."""

    def known(self) -> Iterator[tuple[str, RequestId, str]]:
        """Who waits here, the number of the wait, which is of no other one, and for whom."""
        for request, each in self.waiting.items():
            if each.refused is None:
                yield from ((each.id, request, holder) for holder in each.met.holders)

    def waited_for(self, id: str) -> frozenset[str]:
        """For whom a transaction waits in this domain."""
        found = [each.met.holders for each in self.waiting.values() if each.id == id and each.refused is None]
        return frozenset().union(*found)

    # --- what is held ---------------------------------------------------------------------------------------------

    def met(self, own: OpenTransaction, look_ups: Mapping[str, TableLookUps], changed: Changed) -> Met | None:
        """What the changes of a statement, or a transaction, meet, and its look-ups, by the oldest of those who hold
        it."""
        found: dict[str, tuple[str, Touched]] = {}
        if not self.holders or self.holders.keys() == {own.id}:
            return None
        for name, deltas in changed.items():
            if (known := self._look_ups.get(name)) is not None:
                for id, touched in known.touched(deltas).items():
                    if id != own.id and id in self.holders:
                        found.setdefault(id, (name, touched))
        for name, looked_up in look_ups.items():
            for id, other in self.holders.items():
                if id != own.id and id not in found and (met := self._taken(other, name, looked_up, own.id)):
                    found[id] = name, met
        if not found:
            return None
        name, touched = found[min(found)]
        return Met(name, touched, self._look_ups[name].said(touched), frozenset(found))

    @staticmethod
    def _taken(other: OpenTransaction, name: str, looked_up: TableLookUps, id: str) -> Touched | None:
        """What another has changed, or reserved, of what was looked up."""
        for changed in other.taken(name):
            if (met := looked_up.meets(id, changed)) is not None:
                return met
        return Touched(WHOLE) if name in other.reserved.whole and looked_up.have(id) else None

    def is_free(self, own: OpenTransaction, name: str, row: Row, *, exclusive: bool) -> bool:
        """Whether no other holds a row, or only as one that reads it, too, where it is not to be had alone."""
        others = [other for id, other in self.holders.items() if id != own.id]
        if any(name in each.reserved.whole or any(row in rows.deltas for rows in each.taken(name)) for each in others):
            return False
        if not exclusive or not others or (known := self._look_ups.get(name)) is None:
            return True
        return not any(id != own.id and id in self.holders for id in known.touched([(row, 1)]))

    def behind(self, own: OpenTransaction, look_ups: Mapping[str, TableLookUps], changed: Changed) -> Met | None:
        """Who holds nothing here yet stands behind all who wait for the same: so nobody is overtaken for ever. (Who
        holds something would often be waited for by those.)"""
        if own.id in self.holders:
            return None
        for waiting in self.waiting.values():
            if waiting.id == own.id:
                return None
            if waiting.refused is None:
                (columns, key), name = waiting.met.touched.look_up, waiting.met.table
                deltas, looked_up = changed.get(name, ()), look_ups.get(name)
                if key is None:
                    wants = bool(deltas)
                else:
                    wants = looked_up is not None and looked_up.finds(own.id, columns, key, deltas)
                if wants:
                    return replace(waiting.met, holders=frozenset((waiting.id,)))
        return None

    def _busy(self, waiting: WaitingWrite) -> frozenset[str]:
        """Who has changed, or reserved, what it waits for: then there is no need to try it."""
        name, look_up = waiting.met.table, waiting.met.touched.look_up
        return frozenset(
            id for id, other in self.holders.items() if id != waiting.id and other.has_taken(name, look_up)
        )

    # --- those who wait -------------------------------------------------------------------------------------------

    def park(self, packet: Write, within: InTransaction, met: Met) -> str | None:
        """It waits, in its old place if it has one. The transaction that is to end, where all in a ring wait for one
        another: the youngest of those that wait here."""
        self.waiting[packet.request] = WaitingWrite(packet, within.id, met)
        if packet.request == self._asked:
            self._asked = None
        ring = self._ring(within.id)
        here = {each.id for each in self.waiting.values() if each.refused is None}
        return max((id for id in ring if id in here), default=None)

    def _ring(self, start: str) -> list[str]:
        """The way from a transaction to itself, by those for whom each waits."""
        way: list[str] = [start]
        left: list[Iterator[str]] = [iter(self.waits_for(start))]
        seen: set[str] = set()
        while left:
            id = next(left[-1], None)
            if id is None:
                left.pop()
                way.pop()
            elif id == start:
                return way
            elif id not in seen:
                seen.add(id)
                way.append(id)
                left.append(iter(self.waits_for(id)))
        return []

    def go_on(self) -> Iterator[Write | Reply]:
        """Those of them that may, one after the other: each is done before the next one is asked for."""
        while self._line:
            request = self._line.pop(0)
            waiting = self.waiting.get(request)
            if waiting is None:
                continue
            if waiting.refused is not None:
                del self.waiting[request]
                yield Reply(request, Failed(waiting.refused))
            elif (holders := self._busy(waiting)) and not self._closes_ring(request, waiting, holders):
                continue
            else:
                self._asked = request
                yield waiting.packet
                if self._asked is not None:
                    del self.waiting[request]
                    self._look_at(waiting.id)  # Whoever stood behind it may have the same: both may only read.
                self._asked = None

    def _closes_ring(self, request: RequestId, waiting: WaitingWrite, holders: frozenset[str]) -> bool:
        """Whether all wait for one another, now that these have what it waits for: they may have come to it while they
        wait elsewhere. It is tried then, and meets that."""
        self.waiting[request] = replace(waiting, met=replace(waiting.met, holders=holders))
        return bool(self._ring(waiting.id))

    def let_go(self, id: str) -> None:
        """A transaction holds nothing any more."""
        if self.holders.pop(id, None) is not None:
            self._look_at(id)

    def _look_at(self, id: str) -> None:
        """Those who wait for a transaction may go on. They are few, where many wait."""
        line = set(self._line)
        self._line = [request for request, each in self.waiting.items() if request in line or id in each.met.holders]

    def stop(self, id: str, error: HeadraceError | None = None) -> None:
        """What the transaction waits for it does not get, since that takes too long, or since it has ended."""
        for request, waiting in self.waiting.items():
            if waiting.id == id and request != self._asked:
                self.waiting[request] = replace(waiting, refused=error or held(waiting.met))
                self._line = list(self.waiting)


def deadlock(id: str, met: str) -> Conflict:
    return Conflict(
        f'transaction "{id}" was rolled back: in a deadlock, it waited for others, and these for it: {met}',
        hint="begin it again",
    )


def held(met: Met, domain: DomainIndex = FIRST_DOMAIN) -> HeldByLocks:
    return HeldByLocks(
        f'transaction "{min(met.holders)}" holds {met.said}',
        hint="the lock was not free in time: try again when that transaction is over",
        domain=domain,
    )


def in_line(met: Met, within: InTransaction) -> Exception:
    """It waits, or it is refused at once."""
    return Waits(met) if within.patience > 0 else held(met, within.domain)
