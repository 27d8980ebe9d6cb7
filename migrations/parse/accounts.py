"""Statements about accounts, whose grammar sqlglot does not have: read from tokens, one function a verb.

::

    CREATE USER [IF NOT EXISTS] name
                [IDENTIFIED [WITH plugin] BY 'password' | IDENTIFIED WITH ssl_certificate {CN | SAN} 'name']
                [EXPIRE 'time' | EXPIRE NEVER] [ACCOUNT LOCK | ACCOUNT UNLOCK]              ALTER USER likewise
    DROP USER [IF EXISTS] name, …          CREATE ROLE [IF NOT EXISTS] name, …          DROP ROLE [IF EXISTS] name, …
    GRANT right, … ON {name | *} TO account, … [WITH GRANT OPTION]       GRANT role, … TO account, …
    REVOKE right, … ON {name | *} FROM account, …                        REVOKE role, … FROM account, …
    REVOKE ALL, GRANT OPTION FROM account, …                             SHOW GRANTS [FOR account]
    CREATE API KEY 'label' FOR account [EXPIRE 'time']                   DROP API KEY 'id'      SHOW API KEYS

A name is ``app``, ``'app'`` or ``'app'@'%'``. No error repeats a text in quotes: it may be a password.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from domains.errors import SqlSyntaxError, Unsupported
from migrations.parse.grammar import whole_name
from migrations.parse.syntax import Token, TokenType

PLUGINS = ("caching_sha2_password", "mysql_native_password")
CERTIFICATE = "ssl_certificate"
"""ClickHouse's word for accounts that certificates of clients prove, and its grammar."""
ALTERNATIVES = ("URI", "EMAIL", "DNS")
"""The kinds of names that a certificate has beside its subject."""
NEVER = ""
"""The time of what does not expire."""


@dataclass(frozen=True, slots=True)
class AccountOptions:
    """What CREATE USER and ALTER USER say; None of what they do not."""

    password: str | None = field(default=None, repr=False)
    plugin: str | None = None
    """One of MySQL's, whose verifier is to be kept too."""
    certificate: str | None = None
    """The name that the account's certificate has: ``CN:app``, ``URI:spiffe://example/app``."""
    expires: str | None = None
    """``2027-01-31 08:00:00`` in UTC, or :data:`NEVER`."""
    locked: bool | None = None


@dataclass(frozen=True, slots=True)
class CreateUser:
    name: str
    options: AccountOptions
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class AlterUser:
    name: str
    """"" for the account that asks."""
    options: AccountOptions


@dataclass(frozen=True, slots=True)
class CreateRoles:
    names: tuple[str, ...]
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropAccounts:
    names: tuple[str, ...]
    roles: bool
    """Whether DROP ROLE was written."""
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class Grant:
    """GRANT or, where ``revoked``, REVOKE, of rights by their words (``SHOW VIEW``)."""

    rights: tuple[str, ...]
    on: str
    """The table or view; ``*``: all of them, and what is about the whole deployment."""
    accounts: tuple[str, ...]
    revoked: bool = False


@dataclass(frozen=True, slots=True)
class GrantRoles:
    roles: tuple[str, ...]
    accounts: tuple[str, ...]
    revoked: bool = False


@dataclass(frozen=True, slots=True)
class RevokeAll:
    accounts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShowGrants:
    name: str
    """"" for the account that asks."""


@dataclass(frozen=True, slots=True)
class CreateKey:
    label: str
    account: str
    expires: str = NEVER


@dataclass(frozen=True, slots=True)
class DropKey:
    id: str


@dataclass(frozen=True, slots=True)
class ShowKeys:
    pass


AccountStatement = (
    CreateUser
    | AlterUser
    | CreateRoles
    | DropAccounts
    | Grant
    | GrantRoles
    | RevokeAll
    | ShowGrants
    | CreateKey
    | DropKey
    | ShowKeys
)

Item = TypeVar("Item")
_QUOTED = frozenset((TokenType.STRING, TokenType.IDENTIFIER))


def account_statement(sql: str, tokens: Sequence[Token]) -> AccountStatement | None:
    """The statement about accounts that these tokens of ``sql`` are; None for any other.

    :raises SqlSyntaxError: with line and column.
    :raises Unsupported: hosts, columns and options that are not there.
    """
    words = [token.text.upper() if token.token_type not in _QUOTED else "" for token in tokens[:3]]
    verb, what = " ".join(words[:2]), " ".join(words[:3])
    read = _Reader(sql, tokens)
    for begins, statement in _STATEMENTS.items():
        if begins in (words[0], verb, what):
            read.at = len(begins.split())
            found = statement(read)
            if read.at < len(tokens):
                raise read.unexpected("the end of the statement")
            return found
    return None


class _Reader:
    """Tokens one after the other."""

    def __init__(self, sql: str, tokens: Sequence[Token]) -> None:
        self.at = 0
        self._sql = sql
        self._tokens = tokens

    def word(self, ahead: int = 0) -> str:
        """The word that comes, in capitals; "" for a quoted text and at the end."""
        at = self.at + ahead
        if at >= len(self._tokens) or self._tokens[at].token_type in _QUOTED:
            return ""
        return self._tokens[at].text.upper()

    def takes(self, *words: str) -> bool:
        """Whether these words come; then they are read."""
        if any(self.word(ahead) != word for ahead, word in enumerate(words)):
            return False
        self.at += len(words)
        return True

    def expect(self, *words: str) -> None:
        if not self.takes(*words):
            raise self.unexpected(" ".join(words))

    def unexpected(self, expected: str, *, tell: bool = True) -> SqlSyntaxError:
        """What is found is told, unless it may be a secret, as what is quoted."""
        ends = self.at >= len(self._tokens)
        place = self._tokens[-1].end + 1 if ends else self._tokens[self.at].start
        shown = f'found "{self.word()}"' if tell and self.word() else "found something else"
        found = "but the text ends" if ends else shown
        before = self._sql[:place]
        line, column = before.count("\n") + 1, place - (before.rfind("\n") + 1) + 1
        return SqlSyntaxError(f"expected {expected}, {found}", line=line, column=column)

    def text(self, what: str) -> str:
        """A text in quotes."""
        if self.at >= len(self._tokens) or self._tokens[self.at].token_type != TokenType.STRING:
            raise self.unexpected(f"{what} in quotes", tell=False)
        self.at += 1
        return str(self._tokens[self.at - 1].text)

    def name(self, what: str) -> str:
        if self.at >= len(self._tokens):
            raise self.unexpected(what)
        token = self._tokens[self.at]
        if token.token_type not in _QUOTED and not (token.text[:1].isalpha() or token.text[:1] == "_"):
            raise self.unexpected(what)
        if not token.text.strip():
            raise self.unexpected(what)
        self.at += 1
        return str(token.text)

    def account(self) -> str:
        """``app`` or ``'app'@'%'``."""
        name = self.name("the name of an account")
        if self.takes("@") and self.name_of_host() != "%":
            raise Unsupported(
                "accounts that come from one host", hint=f"'{name}'@'%'; a firewall says who reaches the server"
            )
        return name

    def name_of_host(self) -> str:
        if self.takes("%"):
            return "%"
        return self.name("'%'")

    def several(self, item: Callable[[], Item]) -> tuple[Item, ...]:
        found = [item()]
        while self.takes(","):
            found.append(item())
        return tuple(found)

    def options(self) -> AccountOptions:
        password = plugin = certificate = expires = locked = None
        while self.at < len(self._tokens):
            if self.takes("IDENTIFIED"):
                if self.takes("WITH"):
                    plugin = self.name("a plugin").lower()
                    if plugin not in (*PLUGINS, CERTIFICATE):
                        known = ", ".join((*PLUGINS, CERTIFICATE))
                        raise Unsupported(f'the plugin "{plugin}"', hint=f"{known} are there")
                if plugin == CERTIFICATE:
                    plugin, password, certificate = None, None, self.certificate()
                else:
                    self.expect("BY")
                    password, certificate = self.text("a password"), None
            elif self.takes("EXPIRE", "NEVER"):
                expires = NEVER
            elif self.takes("EXPIRE"):
                expires = self.text("a time")
            elif self.takes("ACCOUNT", "LOCK"):
                locked = True
            elif self.takes("ACCOUNT", "UNLOCK"):
                locked = False
            else:
                raise self.unexpected("IDENTIFIED BY, EXPIRE or ACCOUNT LOCK")
        return AccountOptions(password, plugin, certificate, expires, locked)

    def certificate(self) -> str:
        """``CN 'app'`` or ``SAN 'URI:spiffe://example/app'``."""
        if self.takes("CN"):
            return f"CN:{self.text('the common name of the subject')}"
        self.expect("SAN")
        kind, colon, name = self.text("an alternative name").partition(":")
        if kind.upper() not in ALTERNATIVES or not colon or not name:
            raise Unsupported(
                "this alternative name of a certificate", hint=f"'{ALTERNATIVES[0]}:…'; {', '.join(ALTERNATIVES)} count"
            )
        return f"{kind.upper()}:{name}"

    def rights(self) -> list[str]:
        """Words between commas, up to ON, TO or FROM."""
        found: list[str] = []
        while True:
            if not self.word():  # A role in quotes.
                found.append(self.account())
            else:
                words: list[str] = []
                while self.word() and self.word() not in (",", "ON", "TO", "FROM", "(", "@"):
                    words.append(self._tokens[self.at].text)
                    self.at += 1
                if self.word() == "(":
                    raise Unsupported("rights on columns", hint="make a view of these columns, and grant SELECT on it")
                if self.takes("@"):
                    self.name_of_host()
                if not words:
                    raise self.unexpected("a right or a role")
                found.append(" ".join(words))
            if not self.takes(","):
                return found

    def target(self) -> str:
        """``*``, ``*.*``, ``database.*`` or a name, behind ON."""
        if self.takes("*"):
            if self.takes("."):
                self.expect("*")
            return "*"
        if self.word(1) not in ("TO", "FROM", "."):
            self.takes("TABLE")
        name = self.name("a table, a view or *")
        if self.takes("."):
            return f"{name}.*" if self.takes("*") else whole_name(name, self.name("a table, a view or *"))
        return name


def _create_user(read: _Reader) -> AccountStatement:
    if_not_exists = read.takes("IF", "NOT", "EXISTS")
    name = read.account()
    return CreateUser(name, read.options(), if_not_exists)


def _alter_user(read: _Reader) -> AccountStatement:
    if read.takes("USER", "(", ")") or read.takes("CURRENT_USER", "(", ")") or read.takes("CURRENT_USER"):
        return AlterUser("", read.options())
    name = read.account()
    return AlterUser(name, read.options())


def _create_role(read: _Reader) -> AccountStatement:
    if_not_exists = read.takes("IF", "NOT", "EXISTS")
    return CreateRoles(read.several(read.account), if_not_exists)


def _drop(roles: bool) -> Callable[[_Reader], AccountStatement]:
    def read_drop(read: _Reader) -> AccountStatement:
        if_exists = read.takes("IF", "EXISTS")
        return DropAccounts(read.several(read.account), roles, if_exists)

    return read_drop


def _granted(revoked: bool) -> Callable[[_Reader], AccountStatement]:
    def read_grant(read: _Reader) -> AccountStatement:
        rights, preposition = read.rights(), "FROM" if revoked else "TO"
        if read.takes("ON"):
            on = read.target()
            read.expect(preposition)
            accounts = read.several(read.account)
            if not revoked and read.takes("WITH", "GRANT", "OPTION"):
                rights.append("GRANT OPTION")
            return Grant(tuple(" ".join(right.upper().split()) for right in rights), on, accounts, revoked)
        read.expect(preposition)
        accounts = read.several(read.account)
        if revoked and [right.upper() for right in rights] in (
            ["ALL", "GRANT OPTION"],
            ["ALL PRIVILEGES", "GRANT OPTION"],
        ):
            return RevokeAll(accounts)
        return GrantRoles(tuple(rights), accounts, revoked)

    return read_grant


def _show_grants(read: _Reader) -> AccountStatement:
    if not read.takes("FOR") or read.takes("CURRENT_USER", "(", ")") or read.takes("CURRENT_USER"):
        return ShowGrants("")
    return ShowGrants(read.account())


def _create_key(read: _Reader) -> AccountStatement:
    label = read.text("a label")
    read.expect("FOR")
    account = read.account()
    return CreateKey(label, account, read.text("a time") if read.takes("EXPIRE") else NEVER)


_STATEMENTS: dict[str, Callable[[_Reader], AccountStatement]] = {
    "CREATE USER": _create_user,
    "ALTER USER": _alter_user,
    "DROP USER": _drop(roles=False),
    "CREATE ROLE": _create_role,
    "DROP ROLE": _drop(roles=True),
    "GRANT": _granted(revoked=False),
    "REVOKE": _granted(revoked=True),
    "SHOW GRANTS": _show_grants,
    "CREATE API KEY": _create_key,
    "DROP API KEY": lambda read: DropKey(read.text("the id of a key")),
    "SHOW API KEYS": lambda read: ShowKeys(),
}
