"""Statements about transactions, which are a few words each: read from tokens.

::

    BEGIN [WORK]                             START TRANSACTION [READ WRITE | READ ONLY | WITH CONSISTENT SNAPSHOT, …]
    COMMIT [WORK]                            ROLLBACK [WORK]
    SAVEPOINT name                           ROLLBACK [WORK] TO [SAVEPOINT] name          RELEASE SAVEPOINT name
    LOCK TABLES name READ, …                 UNLOCK TABLES           ALTER TABLE name {DISABLE | ENABLE} KEYS
    SET [SESSION] autocommit = {0 | 1}       SET [SESSION | GLOBAL] TRANSACTION [ISOLATION LEVEL level] [, READ ONLY]
    SHOW TRANSACTIONS
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from domains.errors import SqlSyntaxError, Unsupported
from migrations.parse.syntax import Token, TokenType


class TransactionDeed(Enum):
    BEGIN = "BEGIN"
    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"
    SAVEPOINT = "SAVEPOINT"
    ROLLBACK_TO = "ROLLBACK TO"
    RELEASE = "RELEASE SAVEPOINT"
    AUTOCOMMIT = "SET autocommit"
    ISOLATION = "SET TRANSACTION"
    SHOW = "SHOW TRANSACTIONS"


@dataclass(frozen=True, slots=True)
class TransactionStatement:
    deed: TransactionDeed
    name: str = ""
    """Of a savepoint."""
    on: bool = False
    """Of ``SET autocommit``, its value."""
    read_only: bool | None = None
    """READ ONLY, or READ WRITE."""
    snapshot: bool = False
    """WITH CONSISTENT SNAPSHOT."""
    level: str = ""
    """READ COMMITTED, …"""
    scope: str = ""
    """SESSION, or GLOBAL; else it is of the next transaction alone."""


_STARTS = r"(?:READ WRITE|READ ONLY|WITH CONSISTENT SNAPSHOT)"
_LEVELS = r"(?:SERIALIZABLE|REPEATABLE READ|READ COMMITTED|READ UNCOMMITTED)"
_SETS = rf"(?:ISOLATION LEVEL {_LEVELS}|READ WRITE|READ ONLY)"
_LEVEL = re.compile(rf"ISOLATION LEVEL ({_LEVELS})", re.IGNORECASE)
_FORMS: tuple[tuple[TransactionDeed, str], ...] = (
    (TransactionDeed.BEGIN, rf"BEGIN(?: WORK)?|START TRANSACTION(?P<more>(?: {_STARTS})?(?:, ?{_STARTS})*)"),
    # In MySQL LOCK and KEYS commit as well. Nobody is kept out: transactions are for that.
    (
        TransactionDeed.COMMIT,
        r"COMMIT(?: WORK)?|LOCK TABLES? .+|UNLOCK TABLES?|ALTER TABLE (?:`[^`]+`|\S+) (?:DISABLE|ENABLE) KEYS",
    ),
    (TransactionDeed.ROLLBACK, r"ROLLBACK(?: WORK)?"),
    (TransactionDeed.SAVEPOINT, r"SAVEPOINT (?P<name>\S+)"),
    (TransactionDeed.ROLLBACK_TO, r"ROLLBACK(?: WORK)? TO(?: SAVEPOINT)? (?P<name>\S+)"),
    (TransactionDeed.RELEASE, r"RELEASE SAVEPOINT (?P<name>\S+)"),
    (
        TransactionDeed.AUTOCOMMIT,
        r"SET (?:SESSION |LOCAL |@@(?:SESSION\.|LOCAL\.)?)?AUTOCOMMIT ?:?= ?(?:0|OFF|FALSE|(?P<on>1|ON|TRUE))",
    ),
    (
        TransactionDeed.ISOLATION,
        rf"SET (?:(?P<scope>SESSION|LOCAL|GLOBAL) )?TRANSACTION (?P<more>{_SETS}(?: ?, ?{_SETS})?)",
    ),
    (TransactionDeed.SHOW, r"SHOW TRANSACTIONS"),
)
_KNOWN = tuple((deed, re.compile(form, re.IGNORECASE)) for deed, form in _FORMS)
_VERBS = frozenset(("BEGIN", "START", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "SET", "SHOW"))
_LOCKS = frozenset(("LOCK", "UNLOCK", "ALTER"))
LONGEST = 16
"""Tokens of such a statement, at most."""

_REFUSED: tuple[tuple[str, str, str], ...] = (
    (r"(?:COMMIT|ROLLBACK)(?: WORK)? (?:AND|NO|RELEASE)\b", "CHAIN and RELEASE", "COMMIT, and then BEGIN"),
    (
        r"SET .*\bTRANSACTION ISOLATION LEVEL",
        "another isolation level than MySQL's four",
        "SERIALIZABLE, REPEATABLE READ, READ COMMITTED and READ UNCOMMITTED are there",
    ),
)
_OTHERS = tuple((re.compile(form, re.IGNORECASE), what, hint) for form, what, hint in _REFUSED)


def transaction_statement(sql: str, tokens: Sequence[Token]) -> TransactionStatement | None:
    """None: it is about something else.

    :raises SqlSyntaxError: it begins as one, and goes on otherwise. :raises Unsupported: MySQL has it.
    """
    verb = tokens[0].text.upper().partition(" ")[0]
    if verb not in (*_VERBS, *_LOCKS) or tokens[0].token_type in (TokenType.STRING, TokenType.IDENTIFIER):
        return None
    if len(tokens) > LONGEST:
        return None
    text = re.sub(r"\s+", " ", sql[tokens[0].start : tokens[-1].end + 1]).strip()
    for deed, form in _KNOWN:
        found = form.fullmatch(text)
        if found is not None:
            given = found.groupdict()
            more, level = (given.get("more") or "").upper(), _LEVEL.search(text)
            return TransactionStatement(
                deed,
                (given.get("name") or "").strip("`"),
                given.get("on") is not None,
                "READ ONLY" in more if re.search("READ (?:ONLY|WRITE)", more) else None,
                "SNAPSHOT" in more,
                level[1].upper() if level is not None else "",
                (given.get("scope") or "").upper().replace("LOCAL", "SESSION"),
            )
    for form, what, hint in _OTHERS:
        if form.match(text) is not None:
            raise Unsupported(what, hint=hint)
    if verb in ("SET", "SHOW", *_LOCKS):
        return None
    last = tokens[min(1, len(tokens) - 1)]
    raise SqlSyntaxError(
        f'unexpected "{last.text}" behind {verb}', line=last.line, column=max(1, last.col - len(last.text) + 1)
    )
