"""Errors between Headrace and the place where its state is kept.

::

    AuthorityError
    ├── StateConflict          the state was replaced by another since it was read
    ├── AuthorityUnavailable   it cannot be reached now, or has no quorum; reads and writes of rows go on
    ├── NotZooKeeper           another program answers at the address
    ├── ForeignDeployment      there is no deployment of that name, or it is not the one that the data belongs to
    ├── AccessRefused          the access list of a znode keeps us out
    ├── NameTaken              another live process is registered under the name
    │   └── Superseded         and it is this worker, started again
    ├── StateTooLarge          ZooKeeper takes no state of this size
    ├── SlotsDamaged           the states after that of an embedded deployment's file cannot be read
    ├── AccountsDamaged        the file of accounts, or a znode of them, cannot be read
    ├── SecretUnusable         the file with the deployment's secret cannot be read, or others may read it
    └── ServerFailed           the bundled server does not start

This room is on the same floor as ``domains`` and so has a tree of its own. Before a user sees one, it is turned into a
``HeadraceError`` (``Unavailable``, ``StartFailed``) with the same message and hint.
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
    pass


class AuthorityUnavailable(AuthorityError):
    """Nothing was done, unless ``maybe_done``: then the connection broke before the answer to a write came, and a later
    read tells whether it was done."""

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
    pass


class AccountsDamaged(AuthorityError):
    pass


class SecretUnusable(AuthorityError):
    pass
