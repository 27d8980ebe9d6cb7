"""What api processes watch here: a *session* for each, which shows it what has changed when it asks.

::

    api ── BeginWatch, EndWatch ──► session ── Watch ──► dataflow          (``worker/dataflow/watches.py``)
        ── ShowRequest ───────────► session ◄── Mailbox ── flusher
        ◄── Shown: what each look-up shows now, and the clocks

An api process always has one request here. Of what changes meanwhile only the last state is kept, so a session grows
with what is watched and not with what is written, however slowly it is asked. All methods are for the event loop's
thread.
"""

from __future__ import annotations

import asyncio

from domains.errors import HeadraceError
from domains.store.storage import refusal
from worker.dataflow.batch import Ended, Watch
from worker.dataflow.thread import DataflowThread
from worker.dataflow.watches import Mailbox
from worker.protocol.operations import BeginWatch, Shown

PATIENCE = 15.0
"""Seconds without a request after which a session has ended: its api process is gone, or has lost its way here."""
LONGEST_WAIT = 5.0
"""Seconds that a request may wait for news."""


class _Session:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.mailbox = Mailbox(self._wake)
        self.numbers: dict[Watch, int] = {}
        self.watches: dict[int, Watch] = {}
        self.lost: list[tuple[int, str]] = []
        """Watches that did not begin."""
        self.news = asyncio.Event()
        self.timer: asyncio.TimerHandle | None = None
        self._loop = loop

    def _wake(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.news.set)

    def shown(self) -> Shown:
        self.news.clear()
        seen, clocks = self.mailbox.take()
        known = [(self.numbers[watch], rows) for watch, rows in seen.items() if watch in self.numbers]
        lost, self.lost = self.lost, []
        return Shown(
            rows=tuple((number, rows) for number, rows in known if isinstance(rows, list)),
            holes=tuple(number for number, rows in known if rows is None),
            ended=(*lost, *((number, rows.value) for number, rows in known if isinstance(rows, Ended))),
            clocks=tuple((*reader, clock) for reader, clock in clocks.items()),
        )


class WatchSessions:
    def __init__(self, dataflow: DataflowThread) -> None:
        self._dataflow = dataflow
        self._client = dataflow.client()
        self._loop = asyncio.get_running_loop()
        self._sessions: dict[int, _Session] = {}

    def _session(self, number: int) -> _Session:
        session = self._sessions.get(number)
        if session is None:
            session = self._sessions[number] = _Session(self._loop)
        if session.timer is not None:
            session.timer.cancel()
        session.timer = self._loop.call_later(PATIENCE, self._forget, number)
        return session

    def begin(self, asked: BeginWatch) -> None:
        session = self._session(asked.session)
        layout = self._dataflow.layouts.get((asked.domain, asked.reader))
        try:
            if layout is None or asked.number in session.watches:
                raise refusal(KeyError(asked.number))
            try:
                asked.lookup.parts(self._client, layout)
            except Exception as raised:  # What it asks fits nothing here.
                raise refusal(raised) from raised
            watch = Watch((asked.domain, asked.reader), layout, asked.lookup, session.mailbox)
            self._dataflow.watches.begin(watch)
        except HeadraceError:
            session.lost.append((asked.number, Ended.GONE.value))
            session.news.set()
            return
        session.watches[asked.number] = watch
        session.numbers[watch] = asked.number

    def end(self, number: int, watch: int) -> None:
        session = self._sessions.get(number)
        found = None if session is None else session.watches.pop(watch, None)
        if session is not None and found is not None:
            del session.numbers[found]
            self._dataflow.watches.end(found)

    async def show(self, number: int, within: float) -> Shown:
        session = self._session(number)
        try:
            async with asyncio.timeout(max(0.0, min(within, LONGEST_WAIT))):
                await session.news.wait()
        except TimeoutError:
            pass
        return session.shown()

    def _forget(self, number: int) -> None:
        session = self._sessions.pop(number, None)
        if session is not None:
            for watch in session.watches.values():
                self._dataflow.watches.end(watch)
