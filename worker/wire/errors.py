"""Errors between two processes.

::

    HeadraceError
    ├── ProtocolError           what came is not of our protocol, or of another version of it
    ├── WrongDeployment         right protocol, but the process belongs to another deployment
    ├── RemoteFault             the other side met an error that it did not expect; its log has it
    └── Unavailable
        └── ConnectionLost      with ``sent``: whether the request may have been done
"""

from __future__ import annotations

from domains.errors import HeadraceError, Unavailable


class ProtocolError(HeadraceError):
    code = "protocol_error"


class WrongDeployment(HeadraceError):
    code = "wrong_deployment"


class RemoteFault(HeadraceError):
    code = "remote_fault"


class ConnectionLost(Unavailable):
    """There is no connection (any more). ``sent`` is False where the request surely was not done."""

    code = "connection_lost"

    def __init__(self, message: str, *, hint: str | None = None, sent: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.sent = sent
