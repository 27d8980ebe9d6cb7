"""The accounts of a deployment as this process knows them, and their changes, whoever makes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import time
from typing import Any, Protocol

from controller.access.accounts import Account, Accounts, is_over, seconds
from controller.access.audit_log import AuditLog
from controller.access.passwords import Passwords
from controller.access.session import ASK, Caller
from domains.errors import Overloaded, StorageFailure, Unauthenticated, Unavailable
from migrations.access.rights import ADMINISTRATOR
from zookeeper.accounts import AccountDocument, AccountStore
from zookeeper.errors import AccountsDamaged, AuthorityError, StateConflict

EditOfAccount = Callable[[Account | None], Account | None]


class TokenExpired(Unauthenticated):
    """The issuer signed it, so that nobody has guessed: it is not counted for the address, which may be a server that
    passes on what its users have."""


class TokenVerifier(Protocol):
    """See :class:`controller.access.web_tokens.WebTokens`."""

    async def session(self, token: str, keeper: Keeper) -> Caller:
        """:raises Unauthenticated, TokenExpired: it is not valid. :raises Overloaded, Unavailable: nobody can say."""

    def forgetting(self, forget: Callable[[], None]) -> None:
        """Call this whenever what was verified is outdated."""

    def status(self) -> dict[str, Any]: ...

    async def close(self) -> None: ...


class Keeper:
    """Follows the store. Lives on one event loop."""

    def __init__(self, store: AccountStore, passwords: Passwords | None = None) -> None:
        self.passwords = passwords or Passwords()
        self.tokens: TokenVerifier | None = None
        """Those of an issuer are taken beside keys and passwords."""
        self.audit: AuditLog | None = None
        """Where it is recorded what accounts do."""
        self.accounts = Accounts({})
        self.closed = False
        """There are accounts, or were since the start: nothing is answered without one."""
        self.listeners: list[Callable[[], None]] = []
        """Called with each change: what they remember of accounts is outdated."""
        self._store = store
        self._damaged: dict[str, StorageFailure] = {}

    async def start(self) -> None:
        """:raises StorageFailure, Unavailable: the accounts cannot be read: a deployment does not open without."""
        try:
            await self._store.start(self._changed)
        except AuthorityError as error:
            raise told(error) from error
        if self._damaged:
            raise next(iter(self._damaged.values()))

    async def close(self) -> None:
        if self.tokens is not None:
            await self.tokens.close()
        await self._store.close()
        self.passwords.close()
        if self.audit is not None:
            await self.audit.close()

    def _changed(self, documents: Mapping[str, AccountDocument | None]) -> None:
        changes: dict[str, Account | None] = {}
        for name, document in documents.items():
            self._damaged.pop(name, None)
            try:
                changes[name] = None if document is None else Account.of(name, document)
            except StorageFailure as error:
                self._damaged[name], changes[name] = error, None  # It lets nobody in.
        self.accounts = self.accounts.having(changes)
        self.closed = self.closed or bool(documents)
        for listener in self.listeners:
            listener()

    async def change(self, name: str, edit: EditOfAccount) -> None:
        """Replace an account; in effect here when this returns, and in the other processes within a second.

        :raises Unavailable: it cannot be kept now.
        """

        def edited(document: AccountDocument | None) -> AccountDocument | None:
            after = edit(None if document is None else Account.of(name, document))
            return None if after is None else after.document()

        try:
            await self._store.change(name, edited)
        except AuthorityError as error:
            raise told(error) from error

    def session(self, name: str, expires: float, proof: Callable[[Account], bool], claims: Mapping[str, Any]) -> Caller:
        """The session of an account now. ``proof`` says whether what let it in still does.

        :raises Unauthenticated: it does not, or the account is gone, locked or has expired.
        """
        account = self.accounts.get(name)
        if account is None or is_over(account) or not proof(account) or expires <= time():
            raise refused()
        # The rights of a role end with it, and those of the session are made anew then.
        ends = min(
            [expires, seconds(account.expires), *(seconds(role.expires) for role in self.accounts.roles(account))]
        )
        rights = self.accounts.rights(account)
        held = None if rights.cover(ADMINISTRATOR) else rights
        return Caller(name, held, ends, claims, lambda: self.session(name, expires, proof, claims))


def refused() -> Unauthenticated:
    """The same for an unknown name, a wrong password and an account that is locked: who guesses learns nothing."""
    return Unauthenticated("the key, the token, or the name and password are not valid here", hint=ASK)


def told(error: AuthorityError) -> StorageFailure | Unavailable | Overloaded:
    if isinstance(error, AccountsDamaged):
        return StorageFailure(error.message, hint=error.hint)
    if isinstance(error, StateConflict):
        return Overloaded(error.message, hint=error.hint)
    return Unavailable(error.message, hint=error.hint)
