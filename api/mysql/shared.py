"""What all connections of a port share, and what the commands of one need of it."""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic
from typing import Protocol

from api.auditing import HttpAudit
from api.doors.tls import Tls
from api.endpoints import Endpoints, RequestMetrics
from api.limits import Admission
from api.mysql.proving import ClientAnswer
from controller.deployment import Deployment

ROUTE = "mysql"
"""What metrics and the audit log call it."""


class MysqlClient(Protocol):
    """A connection, as its commands see it; ``connection.py`` implements it."""

    id: int
    address: str

    def send(self, payloads: Iterable[bytes]) -> None: ...

    async def drained(self) -> None:
        """When the client has read enough of what was sent. One that does not read is given up."""

    async def log_in(self, answer: ClientAnswer, nonce: bytes, *, secure: bool) -> None:
        """Raises HeadraceError: the client is not let in."""

    def end(self) -> None:
        """After the command that is being answered."""

    def give_up(self) -> None:
        """At once."""


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
