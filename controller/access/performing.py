"""Statements about accounts, performed: each checks what the one who asks may do, then changes accounts one by one.

Nobody gives what they have not: GRANT and REVOKE need the rights themselves with GRANT OPTION. And nobody gets what
they have not by way of another's account: to change an account, to drop it or to make a key for it needs CREATE USER
and all rights that it has.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import assert_never

from controller.access.accounts import NAME_MAX, Account, Accounts, ApiKey, checked_name, seconds
from controller.access.keeper import Keeper
from controller.access.passwords import key_digest, new_id, new_key, verifier
from controller.access.session import Caller
from domains.errors import AlreadyExists, BadRequest, Forbidden, NotFound
from migrations.access.rights import EVERYTHING, Privilege, Rights, rights_of_words
from migrations.catalog import Catalog
from migrations.parse.accounts import (
    AccountOptions,
    AccountStatement,
    AlterUser,
    CreateKey,
    CreateRoles,
    CreateUser,
    DropAccounts,
    DropKey,
    Grant,
    GrantRoles,
    RevokeAll,
    ShowGrants,
    ShowKeys,
)

KEYS_MAX = 100
"""Keys of one account."""
HOST = "%"


@dataclass(frozen=True, slots=True)
class Told:
    """What a statement answers."""

    columns: tuple[str, ...] = ()
    rows: list[tuple[str | None, ...]] = field(default_factory=list)
    done: str | None = None


async def perform(statement: AccountStatement, keeper: Keeper, session: Caller, catalog: Catalog) -> Told:
    """:raises Unauthenticated, Forbidden: the one who asks may not.
    :raises NotFound, AlreadyExists, BadRequest, SqlError: what it names is not there, is there, or cannot be.
    """
    one = _Performing(keeper, session)
    match statement:
        case CreateUser(name=name, options=options, if_not_exists=lenient):
            return await one.create_user(name, options, lenient)
        case AlterUser(name=name, options=options):
            return await one.alter_user(name or session.account, options)
        case CreateRoles(names=names, if_not_exists=lenient):
            return await one.create_roles(names, lenient)
        case DropAccounts(names=names, roles=roles, if_exists=lenient):
            return await one.drop(names, roles, lenient)
        case Grant():
            return await one.grant(statement, catalog)
        case GrantRoles(roles=roles_, accounts=accounts, revoked=revoked):
            return await one.grant_roles(roles_, accounts, revoked)
        case RevokeAll(accounts=accounts):
            return await one.revoke_all(accounts)
        case ShowGrants(name=name):
            return one.grants(name or session.account)
        case CreateKey():
            return await one.create_key(statement)
        case DropKey(id=id):
            return await one.drop_key(id)
        case ShowKeys():
            return one.keys()
        case _:
            assert_never(statement)


class _Performing:
    def __init__(self, keeper: Keeper, session: Caller) -> None:
        self._keeper = keeper
        self._session = session

    @property
    def _accounts(self) -> Accounts:
        return self._keeper.accounts

    # --- who may ----------------------------------------------------------------------------------------------------

    def _account(self, name: str) -> Account:
        found = self._accounts.get(name)
        if found is None:
            near = difflib.get_close_matches(name, [each.name for each in self._accounts], 1)
            hint = f'did you mean "{near[0]}"?' if near and self._session.may(Privilege.CREATE_USER) else None
            raise NotFound(f'there is no account "{name}"', hint=hint)
        return found

    def _managed(self, name: str) -> Account:
        """The account, if the one who asks may change it."""
        self._session.check(Privilege.CREATE_USER)
        account = self._account(name)
        self._check_cover(self._rights_to_come(account), f'account "{name}" has rights that you do not have')
        return account

    def _rights_to_come(self, account: Account) -> Rights:
        """Also of roles that are locked or over: they may be let in again."""
        found = account.rights
        for role in self._accounts.roles(account, over=True):
            found = found | role.rights
        return found

    def _check_cover(self, rights: Rights, message: str, *, to_grant: bool = False) -> None:
        if self._session.rights is not None and not self._session.rights.cover(rights, to_grant=to_grant):
            raise Forbidden(message, hint="ask an administrator")

    def _needs_administrator(self) -> None:
        """The first account is an administrator: whoever made another one would be locked out."""
        if not self._accounts.administrators():
            raise BadRequest(
                "the first account is an administrator", hint="headrace admin NAME makes it, on the server's machine"
            )

    def _keep_administrator(self, changed: dict[str, Account | None]) -> None:
        """:raises BadRequest: nobody would be left who can let others in."""
        if self._accounts.administrators() and not self._accounts.having(changed).administrators():
            raise BadRequest(
                "this is the last administrator",
                hint="make another one first, that has a password or a key: GRANT ALL ON * TO name WITH GRANT OPTION",
            )

    async def _change(self, name: str, edit: Callable[[Account], Account]) -> None:
        def edited(account: Account | None) -> Account:
            if account is None:
                raise NotFound(f'there is no account "{name}"')
            return edit(account)

        self._keep_administrator({name: edit(self._account(name))})
        await self._keeper.change(name, edited)

    # --- accounts ---------------------------------------------------------------------------------------------------

    async def create_user(self, name: str, options: AccountOptions, lenient: bool) -> Told:
        self._session.check(Privilege.CREATE_USER)
        self._needs_administrator()
        self._check_certificate(name, options)
        made = await self._with_options(Account(checked_name(name), new_id()), options)
        return await self._create(made, lenient)

    async def create_roles(self, names: Sequence[str], lenient: bool) -> Told:
        self._session.check(Privilege.CREATE_USER)
        self._needs_administrator()
        for name in names:
            await self._create(Account(checked_name(name), new_id(), is_role=True), lenient)
        return Told(done=f"role {', '.join(names)} created")

    async def _create(self, made: Account, lenient: bool) -> Told:
        def edit(account: Account | None) -> Account:
            if account is not None and not lenient:
                raise AlreadyExists(f'there is an account "{made.name}"', hint="CREATE … IF NOT EXISTS, or ALTER USER")
            return account or made

        await self._keeper.change(made.name, edit)
        return Told(done=f"{'role' if made.is_role else 'user'} {made.name} created")

    async def alter_user(self, name: str, options: AccountOptions) -> Told:
        own = name == self._session.account and self._session.rights is not None
        if not (own and options.expires is None and options.locked is None and options.certificate is None):
            self._managed(name)
        if self._account(name).is_role and (options.password is not None or options.certificate is not None):
            raise BadRequest(
                f'"{name}" is a role, which has no password and no certificate', hint="CREATE USER, and GRANT the role"
            )
        self._check_certificate(name, options)
        changed = await self._with_options(self._account(name), options)

        def edit(account: Account) -> Account:
            new = options.password is not None or options.certificate is not None
            return replace(
                account,
                password=changed.password if new else account.password,
                verifiers=changed.verifiers if new else account.verifiers,
                certificate=changed.certificate if new else account.certificate,
                expires=account.expires if options.expires is None else options.expires,
                locked=account.locked if options.locked is None else options.locked,
            )

        await self._change(name, edit)
        return Told(done=f"user {name} altered")

    async def _with_options(self, account: Account, options: AccountOptions) -> Account:
        if options.expires is not None:
            seconds(options.expires)
            account = replace(account, expires=options.expires)
        if options.locked is not None:
            account = replace(account, locked=options.locked)
        if options.certificate is not None:  # What IDENTIFIED says replaces what it has said.
            return replace(account, password=None, verifiers=MappingProxyType({}), certificate=options.certificate)
        if options.password is None:
            return account
        kept = await self._keeper.passwords.made(options.password)
        plugins = {} if options.plugin is None else {options.plugin: verifier(options.plugin, options.password)}
        return replace(account, password=kept, verifiers=MappingProxyType(plugins), certificate="")

    def _check_certificate(self, name: str, options: AccountOptions) -> None:
        """:raises AlreadyExists: it would prove two accounts."""
        found = next((each for each in self._accounts if each.certificate == options.certificate), None)
        if options.certificate and found is not None and found.name != name:
            raise AlreadyExists(
                f'certificates of "{options.certificate}" identify another account', hint="one certificate, one account"
            )

    async def drop(self, names: Sequence[str], roles: bool, lenient: bool) -> Told:
        self._session.check(Privilege.CREATE_USER)
        kind = "role" if roles else "user"
        for name in names:
            found = self._accounts.get(name)
            if found is None or found.is_role != roles:
                if not lenient:
                    raise NotFound(f'there is no {kind} "{name}"')
                continue
            self._managed(name)
            self._keep_administrator({name: None})
            await self._keeper.change(name, lambda account: None)
        return Told(done=f"{kind} {', '.join(names)} dropped")

    # --- rights -----------------------------------------------------------------------------------------------------

    async def grant(self, statement: Grant, catalog: Catalog) -> Told:
        # A right on what was dropped can be taken away.
        known = statement.revoked or statement.on == EVERYTHING
        schema, dot, name = statement.on.partition(".")
        if dot and name == EVERYTHING:
            known = bool(catalog.known_schema(schema))
        on = statement.on if known else catalog.relation(statement.on).title
        rights = rights_of_words(statement.rights, on)
        self._check_cover(rights, "you do not hold these rights with GRANT OPTION", to_grant=True)
        for name in statement.accounts:
            self._account(name)
        for name in statement.accounts:
            if statement.revoked:
                await self._change(name, lambda account: replace(account, rights=account.rights - rights))
            else:
                await self._change(name, lambda account: replace(account, rights=account.rights | rights))
        return Told(done=f"{', '.join(statement.rights)} {'revoked' if statement.revoked else 'granted'}")

    async def grant_roles(self, roles: Sequence[str], names: Sequence[str], revoked: bool) -> Told:
        ids = []
        for name in roles:
            role = self._accounts.get(name)
            if role is None or not role.is_role:
                raise NotFound(
                    f'there is no role "{name}"', hint="CREATE ROLE; rights need ON: GRANT SELECT ON name TO …"
                )
            self._check_cover(
                self._rights_to_come(role),
                f'you do not hold all rights of role "{name}" with GRANT OPTION',
                to_grant=True,
            )
            ids.append(role.id)
        for name in names:
            if any(self._reaches(self._accounts.get(role), name) for role in roles) and not revoked:
                raise BadRequest(f'role "{name}" would be a member of itself')
        for name in names:

            def edit(account: Account) -> Account:
                left = tuple(each for each in account.roles if each not in ids)
                return replace(account, roles=left if revoked else (*left, *ids))

            await self._change(name, edit)
        return Told(done=f"role {', '.join(roles)} {'revoked' if revoked else 'granted'}")

    def _reaches(self, role: Account | None, name: str) -> bool:
        return role is not None and (
            role.name == name or any(each.name == name for each in self._accounts.roles(role, over=True))
        )

    async def revoke_all(self, names: Sequence[str]) -> Told:
        for name in names:
            self._managed(name)
        for name in names:
            await self._change(name, lambda account: replace(account, rights=Rights({})))
        return Told(done="all rights revoked")

    def grants(self, name: str) -> Told:
        if name != self._session.account or not name:
            self._session.check(Privilege.CREATE_USER)
        if not name:
            raise BadRequest("there is no account to show the rights of", hint="SHOW GRANTS FOR name")
        rows = grants_of(self._account(name), self._accounts)
        return Told((f"Grants for {name}@{HOST}",), [(row,) for row in rows])

    # --- keys -------------------------------------------------------------------------------------------------------

    async def create_key(self, statement: CreateKey) -> Told:
        name = statement.account
        if name != self._session.account or self._session.rights is None:
            self._managed(name)
        seconds(statement.expires)
        key = new_key()
        kept = ApiKey(new_id(), statement.label[:NAME_MAX], key_digest(key), statement.expires)

        def edit(account: Account) -> Account:
            if len(account.keys) >= KEYS_MAX:
                raise BadRequest(f'account "{name}" has {KEYS_MAX} keys', hint="SHOW API KEYS; DROP API KEY 'id'")
            return replace(account, keys=(*account.keys, kept))

        await self._change(name, edit)
        return Told(("id", "key"), [(kept.id, key)], done=f"key {kept.id} created; it is shown this once")

    async def drop_key(self, id: str) -> Told:
        found = self._accounts.of_key(id)
        if found is None or (found[0] != self._session.account and not self._session.may(Privilege.CREATE_USER)):
            raise NotFound(f'there is no key "{id}"', hint="SHOW API KEYS lists those that are there")
        name, _ = found
        if name != self._session.account:
            self._managed(name)
        await self._change(name, lambda account: replace(account, keys=tuple(k for k in account.keys if k.id != id)))
        return Told(done=f"key {id} dropped")

    def keys(self) -> Told:
        """One's own; with CREATE USER all."""
        if not self._session.account:
            self._session.check(Privilege.CREATE_USER)
        all_of_them = self._session.may(Privilege.CREATE_USER)
        rows: list[tuple[str | None, ...]] = [
            (key.id, key.label, account.name, key.expires or None)
            for account in sorted(self._accounts, key=lambda each: each.name)
            for key in account.keys
            if all_of_them or account.name == self._session.account
        ]
        return Told(("id", "label", "account", "expires"), rows)


def grants_of(account: Account, accounts: Accounts) -> list[str]:
    """The statements that give an account what it has."""
    shown = f"`{account.name}`@`{HOST}`" if not account.is_role else f"`{account.name}`"
    lines = [
        f"GRANT {words} ON {_quoted(on)} TO {shown}{' WITH GRANT OPTION' if option else ''}"
        for words, on, option in account.rights.lines()
    ]
    known = [accounts.role(id) for id in account.roles]
    roles = ", ".join(sorted(f"`{role.name}`" for role in known if role is not None))
    return [*(lines or [f"GRANT USAGE ON *.* TO {shown}"]), *([f"GRANT {roles} TO {shown}"] if roles else [])]


def _quoted(on: str) -> str:
    return "*.*" if on == EVERYTHING else f"`{on}`"
