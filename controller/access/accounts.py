"""Accounts as values: users and roles, their rights and keys, as documents that a store keeps.

A role is an account that has members instead of a password. Members name it by its **id**, which no other role gets:
one that is dropped and made anew has no members. A document that says something unknown is refused, since what was not
understood may be a limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import inf
from types import MappingProxyType
from typing import Any

from domains.errors import BadRequest, StorageFailure
from migrations.access.rights import ADMINISTRATOR, ALL, ALL_WORDS, EVERYTHING, NO_RIGHTS, Privilege, Rights


@dataclass(frozen=True, slots=True)
class ApiKey:
    id: str
    label: str
    digest: str = field(repr=False)
    expires: str = ""
    """``2027-01-31 08:00:00``; "" never."""


@dataclass(frozen=True, slots=True)
class Account:
    name: str
    id: str
    is_role: bool = False
    password: str | None = field(default=None, repr=False)
    """argon2's text."""
    verifiers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    """By MySQL's plugins."""
    certificate: str = ""
    """The name that a client's certificate has: ``CN:app``, ``URI:spiffe://example/app``. One is enough to enter."""
    expires: str = ""
    locked: bool = False
    rights: Rights = NO_RIGHTS
    """Its own."""
    roles: tuple[str, ...] = ()
    """The ids of those that it is a member of."""
    keys: tuple[ApiKey, ...] = ()

    def document(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"id": self.id}
        if self.is_role:
            shown["role"] = True
        plain = {
            "password": self.password,
            "certificate": self.certificate,
            "expires": self.expires,
            "locked": self.locked,
        }
        shown |= {name: value for name, value in plain.items() if value}
        if self.verifiers:
            shown["verifiers"] = dict(self.verifiers)
        if self.rights.held:
            shown["rights"] = {name: _words(privileges) for name, privileges in sorted(self.rights.held.items())}
        if self.roles:
            shown["roles"] = list(self.roles)
        if self.keys:
            shown["keys"] = [
                {
                    "id": key.id,
                    "label": key.label,
                    "sha256": key.digest,
                    **({"expires": key.expires} if key.expires else {}),
                }
                for key in self.keys
            ]
        return shown

    @classmethod
    def of(cls, name: str, document: Mapping[str, Any]) -> Account:
        """:raises StorageFailure: it says what this version does not know."""
        try:
            unknown = set(document) - _MEMBERS
            if unknown:
                raise ValueError(f"it has {', '.join(sorted(unknown))}")
            return cls(
                name,
                str(document["id"]),
                bool(document.get("role")),
                document.get("password"),
                MappingProxyType(dict(document.get("verifiers", {}))),
                str(document.get("certificate", "")),
                _time(document.get("expires", "")),
                bool(document.get("locked")),
                Rights({on: _privileges(words) for on, words in document.get("rights", {}).items()}),
                tuple(map(str, document.get("roles", ()))),
                tuple(
                    ApiKey(each["id"], each["label"], each["sha256"], _time(each.get("expires", "")))
                    for each in document.get("keys", ())
                ),
            )
        except (ValueError, KeyError, TypeError, AttributeError, BadRequest) as error:
            raise StorageFailure(
                f'account "{name}" cannot be read: {error}', hint="a later version of Headrace may have written it"
            ) from error


_MEMBERS = {"id", "role", "password", "verifiers", "certificate", "expires", "locked", "rights", "roles", "keys"}


def _words(privileges: frozenset[Privilege]) -> list[str]:
    if privileges >= ALL:
        return ["ALL", *sorted(privileges - ALL)]
    return sorted(privileges)


def _privileges(words: list[str]) -> frozenset[Privilege]:
    found = {Privilege(word) for word in words if word not in ALL_WORDS}
    return frozenset(found | ALL if found != set(words) else found)


def _time(text: str) -> str:
    seconds(text)
    return text


def seconds(text: str) -> float:
    """The time of an expiry since 1970; endless for "".

    :raises BadRequest: it is no time.
    """
    if not text:
        return inf
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise BadRequest(f'"{text}" is no time', hint="write it in UTC: '2027-01-31 08:00:00'") from None
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()


def time_text(since_1970: float | None) -> str | None:
    """The reverse of :func:`seconds`; None for what is endless or not there."""
    if since_1970 is None or since_1970 == inf:
        return None
    return datetime.fromtimestamp(since_1970, UTC).strftime("%Y-%m-%d %H:%M:%S")


NAME_MAX = 64


def checked_name(name: str) -> str:
    """:raises BadRequest: no account can have this name: Basic ends it with a colon."""
    if not name or len(name) > NAME_MAX or any(ord(each) < 32 for each in name) or ":" in name:
        raise BadRequest(f'an account\'s name has 1 to {NAME_MAX} characters, and no ":"')
    return name


class Accounts:
    """All accounts as they are at one time; each change makes another value."""

    def __init__(self, accounts: Mapping[str, Account]) -> None:
        self._by_name = dict(accounts)
        self._roles = {each.id: each for each in accounts.values() if each.is_role}
        self._keys = {key.digest: (each.name, key) for each in accounts.values() for key in each.keys}
        self._certificates: dict[str, str | None] = {}
        """The accounts by the names of certificates; None: several, made by processes that did not see each other."""
        for each in accounts.values():
            if each.certificate:
                self._certificates[each.certificate] = None if each.certificate in self._certificates else each.name

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[Account]:
        return iter(self._by_name.values())

    def get(self, name: str) -> Account | None:
        return self._by_name.get(name)

    def role(self, id: str) -> Account | None:
        return self._roles.get(id)

    def key(self, digest: str) -> tuple[str, ApiKey] | None:
        """The account of a key, and the key."""
        return self._keys.get(digest)

    def of_key(self, id: str) -> tuple[str, ApiKey] | None:
        return next(((name, key) for name, key in self._keys.values() if key.id == id), None)

    def of_certificate(self, name: str) -> str | None:
        """The account of a certificate that has this name."""
        return self._certificates.get(name)

    def having(self, changes: Mapping[str, Account | None]) -> Accounts:
        known: dict[str, Account] = dict(self._by_name)
        for name, account in changes.items():
            if account is None:
                known.pop(name, None)
            else:
                known[name] = account
        return Accounts(known)

    def rights(self, account: Account) -> Rights:
        """Its own, and those of its roles and theirs."""
        found = account.rights
        for role in self.roles(account):
            found = found | role.rights
        return found

    def roles(self, account: Account, *, over: bool = False) -> list[Account]:
        """The roles that it has, directly or through others; those that are locked or have expired, and theirs, only
        where ``over`` is set."""
        found: list[Account] = []
        seen, pending = {account.id}, list(account.roles)
        while pending:
            role = self._roles.get(pending.pop())
            if role is not None and role.id not in seen and (over or not is_over(role)):
                seen.add(role.id)
                found.append(role)
                pending += role.roles
        return found

    def administrators(self) -> list[str]:
        """The accounts that can let others in again."""
        return [each.name for each in self if can_enter(each) and self.rights(each).cover(ADMINISTRATOR, to_grant=True)]


def can_enter(account: Account) -> bool:
    return bool(account.password or account.keys) and not is_over(account)


def is_over(account: Account) -> bool:
    return account.locked or (bool(account.expires) and seconds(account.expires) <= datetime.now(UTC).timestamp())


def administrator(name: str, id: str, password: str, before: Account | None) -> Account:
    """``headrace admin``: an account that may do everything, also where it was locked out."""
    account = before or Account(name, id)
    return replace(
        account,
        is_role=False,
        password=password,
        verifiers=MappingProxyType({}),
        certificate="",
        expires="",
        locked=False,
        rights=account.rights | Rights({EVERYTHING: frozenset(Privilege)}),
    )
