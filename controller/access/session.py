"""The session: who asks, and what they may. A value that goes with each request, through every door."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf
from time import time
from types import MappingProxyType
from typing import Any, Protocol

from domains.errors import BadRequest, Forbidden, Unauthenticated, Unsupported
from domains.language.types import Value
from migrations.access.rights import EVERYTHING, NO_RIGHTS, Privilege, Right, Rights
from migrations.parse.grammar import SCHEMA
from migrations.statements.sessions.session_values import NO_SESSION, SessionValues

ASK = "send a key (Authorization: Bearer) or a name and password (Basic); headrace admin NAME makes an administrator"


FOUND_MAX = 1_000
NAME_LENGTH = 200


class Witness(Protocol):
    """Records what is done for a session, statement by statement."""

    def check(self) -> None:
        """:raises Unavailable: it could not be recorded, so it is not to be done."""

    def saw(self, kind: str, statement: str, seconds: float, error: BaseException | None) -> None:
        """A definition, a change of accounts or an operation was performed, or has failed."""


class InSession(Protocol):
    """The statements of one client that follow one another; ``controller/transactions/sessions.py`` implements it."""

    name: str
    """Of a transaction that is all of it, the id; "" where it ends with the request."""
    autocommit: bool
    number: int
    """Of the connection that it is of, under which its statements are listed; 0: of none."""
    variables: dict[str, Value]
    """The user variables of a connection."""
    seen: float
    """When its latest statement came, by ``monotonic``."""
    temporary: Any
    """Its ``OwnTables``, of that package, once it has asked for one."""

    @property
    def transaction(self) -> Any:
        """The open ``Transaction``, of that package, or None."""

    isolation: Any
    """The ``Isolation``, of that package, of its transactions; and of the next one alone, where that is another."""
    next_isolation: Any
    read_only: bool
    next_read_only: bool | None
    lock_wait: float
    """Seconds that a statement waits for a lock."""

    def begin(self, *, read_only: bool | None = None, isolation: Any = None) -> Any:
        """The same, begun."""

    async def commit(self) -> tuple[int, dict[str, int]]:
        """Rows that were affected, and the token; (0, {}) where nothing is open. Raises HeadraceError; then it is over,
        too."""

    async def roll_back(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Caller:
    account: str
    """"" for nobody."""
    rights: Rights | None
    """None: it may do everything."""
    expires: float = inf
    """Seconds since 1970."""
    claims: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """What a token says of the user that an application asks for."""
    refresh: Callable[[], Caller] | None = field(default=None, compare=False, repr=False)
    """The same session with the rights of now. Raises Unauthenticated: it has ended."""

    witness: Witness | None = field(default=None, compare=False, repr=False)
    """Of one request, where there is an audit log."""
    found: set[tuple[Privilege, str]] = field(default_factory=set, compare=False, repr=False)
    """What was found to be allowed: an endpoint looks here first. At most :data:`FOUND_MAX`."""
    session: InSession | None = field(default=None, compare=False, repr=False)
    """The statements that this one is among, where the request says so."""
    claimed: bool = False
    """The request itself said who it is for, and be it nobody: so policies apply, whatever the rights."""
    values: SessionValues = field(default=NO_SESSION, compare=False, repr=False)
    """What its statements ask of the session: ``@@variables``, DATABASE() and the like. A door that has sessions gives
    its own."""

    follows: bool = False
    """It may write to tables that follow a database elsewhere."""

    @property
    def transaction(self) -> Any:
        """The open ``Transaction`` that it is in; None: each statement is by itself."""
        return None if self.session is None else self.session.transaction

    def may(self, privilege: Privilege | None, on: str = EVERYTHING) -> bool:
        return self.rights is None or self.rights.allow(privilege, on.lower())

    def check(self, privilege: Privilege | None, on: str = EVERYTHING) -> None:
        """:raises Unauthenticated, Forbidden: it may not."""
        if self.rights is None:
            return
        if not self.rights.allow(privilege, on.lower()):
            raise self.refusal(Right(privilege, on))
        if privilege is not None and len(self.found) < FOUND_MAX and len(on) < NAME_LENGTH:
            self.found.add((privilege, on))

    @property
    def policy_claims(self) -> Mapping[str, Any] | None:
        """What policies compare; None: no policy applies."""
        return None if not (self.claims or self.claimed) and self.may(Privilege.BYPASS_POLICIES) else self.claims

    def check_unfiltered(self, tables: Sequence[str]) -> None:
        """Of what comes to tables with policies, and would not apply them.

        :raises Unauthenticated, Forbidden: they apply."""
        if not tables or self.policy_claims is None:
            return
        if not self.account and self.rights is not None:
            raise self.refusal(Right(Privilege.BYPASS_POLICIES))
        named = ", ".join(f'"{table}"' for table in tables)
        raise Forbidden(
            f"policies of {named} apply to who asks, and are not applied to this: it would tell of other rows, or "
            "change them",
            hint="SELECT and look-ups show what they let through; who has the right "
            f"{Privilege.BYPASS_POLICIES}, and sends no claims, does without them",
        )

    def with_claims(self, header: bytes) -> Caller:
        """For whom ``Headrace-Claims`` says that the request is.

        :raises BadRequest: it is no object of JSON. :raises Unauthenticated, Forbidden: it may not say so."""
        self.check(Privilege.SET_CLAIMS)
        if self.claims and not self.claimed:
            raise Forbidden("the claims of this session come of its token", hint="leave Headrace-Claims out")
        claims, refresh = claims_of(header), self.refresh
        again = None if refresh is None else lambda: refresh().with_claims(header)
        return replace(self, claims=claims, claimed=True, refresh=again)

    def use(self, schema: str) -> None:
        """:raises Unsupported: a request is alone, and nothing would come after."""
        if self.values is not NO_SESSION:
            self.values.schema = schema
        elif schema != SCHEMA:
            raise Unsupported(f"USE {schema} without a session", hint=f"write {schema}. before the names")

    def check_known(self) -> None:
        """:raises Unauthenticated: it is nobody's."""
        if self.rights is not None and not self.account:
            raise Unauthenticated("nothing is answered without an account", hint=ASK)

    def check_all(self, needed: Iterable[Right]) -> None:
        """Names are in lower case."""
        if self.rights is not None:
            for right in sorted(needed, key=str):
                if not self.rights.allow(*right):
                    raise self.refusal(right)

    def refusal(self, right: Right) -> Unauthenticated | Forbidden:
        if not self.account:
            return Unauthenticated("nothing is answered without an account", hint=ASK)
        words = right.privilege or Privilege.SELECT
        return Forbidden(
            f'account "{self.account}" has no {right}',
            hint=f"an administrator: GRANT {words} ON {right.on} TO {self.account}",
        )

    def renewed(self) -> Caller:
        """As it is now, for what lasts long: a stream looks again and again. Raises Unauthenticated."""
        if self.expires <= time():
            raise Unauthenticated("the session has expired", hint=ASK)
        return self if self.refresh is None else self.refresh()


CLAIMS_MAX = 4_096
"""Bytes of claims: those of a token are some hundred."""


@lru_cache(1_000)
def claims_of(header: bytes) -> Mapping[str, Any]:
    """:raises BadRequest: it is no object of JSON."""
    claims: Any = None
    if len(header) <= CLAIMS_MAX:
        with suppress(ValueError, RecursionError):
            claims = json.loads(header)
    if not isinstance(claims, dict):
        raise BadRequest(
            f"Headrace-Claims is no object of JSON of at most {CLAIMS_MAX} bytes", hint='Headrace-Claims: {"sub": 7}'
        )
    return MappingProxyType(claims)


OPEN = Caller("", None)
"""Of a deployment without accounts, and of whoever has it in the own process."""
ANONYMOUS = Caller("", NO_RIGHTS)
"""Of who says nothing about who they are."""
