"""Errors between Headrace and the place where its state is kept.

::

    AuthorityError
    ├── StateConflict          the state was replaced by another since it was read
    ├── AuthorityUnavailable   it cannot be reached now, or has no quorum; what runs goes on, and it may be tried again
    ├── NotZooKeeper           what answers at the address is no ZooKeeper
    ├── WrongDeployment        there is no deployment of that name, or it is not the one that the data belongs to
    ├── AccessRefused          the access list of a znode keeps us out
    ├── NameTaken              another live process is registered under the name
    │   └── Superseded         and it is this worker, started again
    ├── StateTooLarge          a named limit was passed
    ├── SlotsDamaged           the file of a single process's state is damaged
    └── ServerFailed           the bundled server does not start

This room stands on the same floor as ``domains``, so it has a tree of its own; whoever answers a user turns these into
a ``HeadraceError`` (``Unavailable``, ``StartFailed``) with the same message and hint. The form is the same: lower-case
message, identifiers in double quotes, a hint that says what to do.
"""

from __future__ import annotations


class AuthorityError(Exception):
    """Base of all errors of this room."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class StateConflict(AuthorityError):
    """The state was replaced by another since it was read; read it again."""


class AuthorityUnavailable(AuthorityError):
    """Nothing was done, unless ``maybe_done``: then the connection broke while the answer to a write was on its way.

    Reading again tells: a read that comes after such a write sees it, if it was done or will be.
    """

    def __init__(self, message: str, *, hint: str | None = None, maybe_done: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.maybe_done = maybe_done


class NotZooKeeper(AuthorityError):
    pass


class ForeignDeployment(AuthorityError):
    pass


class AccessRefused(AuthorityError):
    pass


class NameTaken(AuthorityError):
    pass


class Superseded(NameTaken):
    pass


class StateTooLarge(AuthorityError):
    pass


class ServerFailed(AuthorityError):
    pass


class SlotsDamaged(AuthorityError):
    """The changes after the file's state cannot be read."""
