"""The audit log: who did what from where, and what became of it, as lines of JSON that a thread writes.

::

    a door, a statement ──AuditEvent──► queue: bounded ──thread──► cut, secrets out, JSON ──► AuditFile
                                          │ full, or the disk is
                                          └──► AuditLog.check refuses changes, or the event is lost and counted

Definitions, accounts, operations and refusals are always recorded; data where the setting ``audit_data`` says so. A
request costs the event loop an object and a lock; one that changed definitions or accounts is answered when its line
is written.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from threading import Condition, Thread
from time import monotonic, time
from typing import Any

from controller.access.audit_file import AuditFile
from domains.errors import Unavailable
from migrations.access.secrets import hidden, without_keys, without_values

QUEUE_EVENTS = 10_000
QUEUE_BYTES = 16_000_000
"""Of texts that wait: what the thread writes in a fraction of a second."""
EVENT_BYTES = 1_000
"""Of an event beside its text."""
FOR_CHANGES = 2
"""One part in so many of the queue is for all but refusals: whoever floods with wrong keys fills not all of it."""
REFUSALS_MAX = 60
"""Lines about refusals of one address, and of all others together, in a minute; the rest is one line, with its number.
Else whoever is refused often enough turns the files over, and what stands in them is gone."""
ADDRESSES_MAX = 1_000
MINUTE = 60.0
AGAIN_SECONDS = 1.0
"""Between two attempts at a disk that is full."""
SETTLE_SECONDS = 5.0
"""The longest that an answer waits for its line: a disk may hang."""
LOG_SECONDS = 60.0
NAME_SHOWN = 500
"""Characters of a name, path or reason in a line."""
NAMES = ("address", "account", "subject", "tried", "route", "on", "code", "why")

_log = logging.getLogger("headrace.access")


class AuditKind(StrEnum):
    DEFINITION = "definition"
    ACCOUNT = "account"
    OPERATION = "operation"
    REFUSAL = "refusal"
    DATA = "data"
    LOG = "log"
    """Of the log itself: it begins, it ends, lines were lost."""


@dataclass(slots=True)
class AuditEvent:
    """What is none of these is left out of the line: "", None."""

    kind: AuditKind
    door: str = ""
    address: str = ""
    account: str = ""
    subject: str = ""
    """The claim ``sub`` of a token."""
    tried: str = ""
    """The name that was not let in."""
    route: str = ""
    on: str = ""
    """The view or table in the path."""
    statement: str = ""
    length: int = 0
    """Characters of the whole statement, where it is cut."""
    code: str = "ok"
    status: int | None = None
    why: str = ""
    rows: int | None = None
    ms: float | None = None
    times: int | None = None
    time: float = 0.0

    def line(self, values: bool) -> bytes:
        """``values``: literals are shown of data statements, and of those that were refused, which may be such."""
        text = self.statement
        if self.kind in (AuditKind.DATA, AuditKind.REFUSAL) and not values:
            text = without_values(text)
        shown: dict[str, Any] = {
            "time": datetime.fromtimestamp(self.time, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "kind": self.kind.value,
        }
        told = {
            "door": self.door,
            "address": self.address,
            "account": self.account,
            "subject": self.subject,
            "tried": self.tried,
            "route": self.route,
            "on": self.on,
            "statement": hidden(text),
            "length": self.length or None,
            "code": self.code,
            "status": self.status,
            "why": self.why,
            "rows": self.rows,
            "ms": None if self.ms is None else round(self.ms, 3),
            "times": self.times,
        }
        for name, value in told.items():
            if value not in (None, ""):
                shown[name] = without_keys(value) if isinstance(value, str) else value
        # All that is not ASCII is escaped, so nothing in it ends a line or moves a terminal's cursor.
        return json.dumps(shown, separators=(",", ":")).replace("\x7f", "\\u007f").encode() + b"\n"


class AuditLog:
    """Its methods are called on one event loop; the thread is its own."""

    def __init__(
        self,
        file: AuditFile,
        *,
        data: str = "off",
        refuses: bool = True,
        statement_size: int = 16_000,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """``data``: ``off``, ``statements``, or ``values``; ``refuses``: changes are, while they cannot be recorded."""
        self.records_data = data != "off"
        self.statement_size = statement_size
        self.shows_values = data == "values"
        self._refuses = refuses
        self._file = file
        self._clock = clock
        self._more = Condition()
        """Holds the lock of all that follows."""
        self._queue: list[AuditEvent] = []
        self._events = self._bytes = 0
        """That are not written yet."""
        self._added = self._written = self._lost = self._told_lost = 0
        self._waiters: list[tuple[int, asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._failing = ""
        self._logged = -LOG_SECONDS
        self._minute = clock()
        self._refusals: Counter[str] = Counter()
        """Of this minute, by address."""
        self._ending = False
        self._thread = Thread(target=self._run, name="audit log", daemon=True)

    def begin(self) -> None:
        self._thread.start()
        self.add(AuditEvent(AuditKind.LOG, code="begins"))

    async def close(self) -> None:
        self.add(AuditEvent(AuditKind.LOG, code="ends"))
        with self._more:
            self._ending = True
            self._more.notify()
        await asyncio.to_thread(self._thread.join)
        self._file.close()

    def check(self) -> None:
        """:raises Unavailable: what is about to be done could not be recorded."""
        full = self._events >= QUEUE_EVENTS or self._bytes >= QUEUE_BYTES or not self._thread.is_alive()
        if self._refuses and (self._failing or full):
            raise Unavailable(
                f"the audit log cannot be written ({self._failing or 'too much waits'}): what it records is not done",
                hint="make room on its disk; with audit_failure = continue it would be done, and its line lost",
            )

    def add(self, event: AuditEvent) -> None:
        event.time = event.time or time()
        length = max(event.length, len(event.statement))
        event.statement = event.statement[: self.statement_size]
        event.length = length if length > self.statement_size else 0
        for name in NAMES:
            setattr(event, name, getattr(event, name)[:NAME_SHOWN])
        size = EVENT_BYTES + len(event.statement)
        with self._more:
            if event.kind is AuditKind.REFUSAL and not event.times and not self._is_told(event.address):
                return
            part = FOR_CHANGES if event.kind is AuditKind.REFUSAL else 1
            if self._events >= QUEUE_EVENTS // part or self._bytes + size > QUEUE_BYTES // part:
                self._lost += 1
                return
            self._events += 1
            self._bytes += size
            self._added += 1
            self._queue.append(event)
            self._more.notify()

    async def settled(self) -> None:
        """Return when all that was added is written, or cannot be now."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        with self._more:
            if self._written >= self._added or self._failing:
                return
            self._waiters.append((self._added, loop, waiter))
        await asyncio.wait([waiter], timeout=SETTLE_SECONDS)

    def status(self) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "written": self._written,
            "waiting": self._events,
            "lost": self._lost,
            "failing": int(bool(self._failing)),
        }
        if self._failing:
            shown["alarm"] = f"the audit log cannot be written: {self._failing}"
        return shown

    # --- refusals -------------------------------------------------------------------------------------------------

    def _is_told(self, address: str) -> bool:
        """Whether a refusal gets a line of its own."""
        where = address if address in self._refusals or len(self._refusals) < ADDRESSES_MAX else ""
        self._refusals[where] += 1
        return self._refusals[where] <= REFUSALS_MAX

    def _sum_up(self) -> list[AuditEvent]:
        """The lines about those of the last minute that got none."""
        over = self._clock() - self._minute >= MINUTE or self._ending
        if not over:
            return []
        counted, self._refusals, self._minute = self._refusals, Counter(), self._clock()
        return [
            AuditEvent(AuditKind.REFUSAL, address=address, code="more", times=count - REFUSALS_MAX, time=time())
            for address, count in counted.items()
            if count > REFUSALS_MAX
        ]

    # --- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._more:
                if not self._queue and not self._ending:
                    self._more.wait(AGAIN_SECONDS)
                batch, self._queue = self._queue, []
                sums = self._sum_up()
                self._events += len(sums)
                self._bytes += EVENT_BYTES * len(sums)
                self._added += len(sums)
                batch += sums
                ending = self._ending
            self._write(batch)
            if ending:
                return

    def _write(self, batch: list[AuditEvent]) -> None:
        """All of it; again and again while the disk takes nothing, until the end."""
        for event in batch:
            line = event.line(self.shows_values)
            while not self._is_written(line):
                with self._more:
                    if self._ending:
                        return
                    self._more.wait_for(lambda: self._ending, AGAIN_SECONDS)
            with self._more:
                self._written += 1
                self._events -= 1
                self._bytes -= EVENT_BYTES + len(event.statement)
                self._wake(self._written)

    def _is_written(self, line: bytes) -> bool:
        try:
            if self._lost > self._told_lost:
                lost = self._lost
                event = AuditEvent(AuditKind.LOG, code="lost", times=lost - self._told_lost, time=time())
                self._file.write(event.line(False))
                self._told_lost = lost
            self._file.write(line)
        except OSError as error:
            with self._more:
                self._failing = error.strerror or str(error)
                self._wake(self._added)
            if self._clock() - self._logged >= LOG_SECONDS:
                self._logged = self._clock()
                what = "changes are refused" if self._refuses else "lines will be lost"
                _log.error('the audit log "%s" cannot be written: %s; %s', self._file.path, self._failing, what)
            return False
        self._failing = ""
        return True

    def _wake(self, written: int) -> None:
        """Those that wait for so many."""
        left = []
        for target, loop, waiter in self._waiters:
            if target <= written:
                loop.call_soon_threadsafe(_end, waiter)
            else:
                left.append((target, loop, waiter))
        self._waiters = left


def _end(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
