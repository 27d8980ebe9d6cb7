"""What all connections of a port share, and what the commands of one need of it."""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic
from typing import Protocol

from api.auditing import HttpAudit
from api.doors.tls import Tls
from api.endpoints import Endpoints, RequestMetrics
from api.limits import Admission
from api.mysql.packets import STATUS_AUTOCOMMIT, eof, ok
from api.mysql.proving import ClientAnswer
from api.mysql.values import Charset, RowWriter
from controller.deployment import Deployment
from domains.language.types import Column

ROUTE = "mysql"
"""What metrics and the audit log call it."""


class MysqlClient(Protocol):
    """A connection, as its commands see it; ``connection.py`` implements it."""

    id: int
    address: str
    is_full: bool
    """The client does not read what was sent."""

    def send(self, payloads: Iterable[bytes]) -> None: ...

    def write(self, data: bytes) -> None:
        """An answer as packets, numbered from 1 on."""

    async def drained(self) -> None:
        """When the client has read enough of what was sent. One that does not read is given up."""

    async def log_in(self, answer: ClientAnswer, nonce: bytes, *, secure: bool) -> None:
        """Raises HeadraceError: the client is not let in."""

    def end(self) -> None:
        """After the command that is being answered."""

    def give_up(self) -> None:
        """At once."""


WRITERS = 1_000
"""Makers of answers that are kept: each takes some 50 µs to be made, and a kB for a few columns."""
ANSWERS_BYTES = 16 * 2**20
"""Bytes of answers that are kept, with the pages that they were made of."""
ANSWER_OVERHEAD = 300
"""Bytes that one takes beside."""


class WholeAnswers:
    """Answers of the short way as packets, by the very page of a view that they were made of: so none is ever behind.

    They are in no transaction, and of sessions that commit by themselves, so nothing else in them is a connection's
    own. To write one of a row anew takes some 12 µs."""

    def __init__(self) -> None:
        self._writers: dict[tuple[int, str, int, bool, bool], RowWriter] = {}
        self._kept: dict[tuple[RowWriter, bytes], tuple[bytes, int]] = {}
        self._size = 0

    def writer(self, columns: tuple[Column, ...], charset: Charset, *, binary: bool, is_short: bool) -> RowWriter:
        """The one that was made for these very columns before, which a plan has as long as it is kept. ``is_short``:
        there is no EOF between columns and rows (CLIENT_DEPRECATE_EOF)."""
        name = id(columns), charset.name, charset.collation, binary, is_short
        known = self._writers.get(name)
        if known is not None and known.columns is columns:
            return known
        if len(self._writers) >= WRITERS:
            self._writers.clear()
        between = b"" if is_short else eof(STATUS_AUTOCOMMIT)
        last = ok(head=0xFE) if is_short else eof(STATUS_AUTOCOMMIT)
        made = self._writers[name] = RowWriter(columns, charset, binary=binary, between=between, last=last)
        return made

    def of(self, writer: RowWriter, page: bytes) -> tuple[bytes, int] | None:
        """See :meth:`RowWriter.answer`."""
        found = self._kept.get((writer, page))
        if found is None:
            found = writer.answer(page)
            if found is not None:
                self._size += len(page) + len(found[0]) + ANSWER_OVERHEAD
                if self._size > ANSWERS_BYTES:
                    self._kept.clear()
                    self._size = len(page) + len(found[0]) + ANSWER_OVERHEAD
                self._kept[writer, page] = found
        return found


class MysqlShared:
    """Of one port of one process."""

    def __init__(
        self,
        deployment: Deployment,
        endpoints: Endpoints,
        requests: RequestMetrics,
        *,
        tls: Tls | None = None,
        version: str,
        max_prepared: int,
    ) -> None:
        """``endpoints``: those of HTTP, whose limits and accounts are the same. ``version``: the announced one.
        ``max_prepared``: prepared statements of a connection."""
        self.deployment = deployment
        self.authentication = endpoints.authentication
        self.admission: Admission = endpoints.admission
        self.tls = tls
        self.version = version
        self.max_prepared = max_prepared
        self.times = requests.route(ROUTE)
        log = None if deployment.accounts is None else deployment.accounts.audit
        self.audit = None if log is None else HttpAudit(log, deployment.migration, ROUTE)
        self.answers = WholeAnswers()
        self.began = monotonic()
        self.questions = 0
        self.connections: dict[int, MysqlClient] = {}

    def statistics(self) -> str:
        """What COM_STATISTICS tells."""
        uptime = monotonic() - self.began
        return (
            f"Uptime: {int(uptime)}  Threads: {len(self.connections)}  Questions: {self.questions}  Slow queries: 0  "
            f"Opens: 0  Flush tables: 0  Open tables: {len(self.deployment.tables())}  "
            f"Queries per second avg: {self.questions / max(uptime, 1):.3f}"
        )
