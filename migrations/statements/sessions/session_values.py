"""What a statement asks of its session: VERSION(), DATABASE(), USER(), ``@@sql_mode``.

These are values of the request, as NOW() is: a statement is planned as if they had been written there, so no view
that is kept of one has another session's. Whoever has a session (a door) gives a :class:`SessionValues` with each
request and keeps it up to date; a request over HTTP has the one of :data:`NO_SESSION`, under its account's name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace

from domains.errors import SqlError, Unsupported
from domains.language.types import Value
from migrations.catalog import unknown
from migrations.parse.grammar import SCHEMA
from migrations.parse.reading import Parsed, exp, nodes
from migrations.statements.constants import keep_names
from migrations.statements.sessions.system_variables import SYSTEM_VARIABLES
from migrations.statements.subqueries import literal_node

MYSQL_VERSION = "8.0.36"
"""The version that is announced unless a setting says another."""


@dataclass(slots=True)
class SessionWarning:
    """A row of SHOW WARNINGS."""

    level: str
    """Note, Warning or Error."""
    code: int
    message: str


@dataclass(slots=True, eq=False)
class SessionValues:
    """The values that a session's statements read; whoever has the session writes them."""

    user: str = "root"
    host: str = "localhost"
    schema: str | None = SCHEMA
    """The current one; None: none was chosen."""
    connection: int = 0
    version: str = MYSQL_VERSION
    last_insert_id: int | None = None
    """None, as of the two below: there is no session, and so no statement before."""
    found_rows: int | None = None
    row_count: int | None = None
    variables: dict[str, Value | bool] = field(default_factory=dict)
    """The system variables that the session has set, by their lower-case names; the others have their defaults."""
    warnings: list[SessionWarning] = field(default_factory=list)
    status: dict[str, str] = field(default_factory=dict)
    """What SHOW STATUS shows."""
    may_show: Callable[[Collection[str]], bool] | None = None
    """Whether a view of these tables may be shown without a wait; None: any."""

    def variable(self, name: str, *, of_all: bool = False) -> Value | bool:
        """The value of ``@@name``, or ``of_all`` of ``@@global.name``.

        :raises UnknownName: there is no such variable."""
        lower = name.lower()
        if not of_all and lower in self.variables:
            return self.variables[lower]
        if lower == "version":
            return self.version
        if lower in ("warning_count", "error_count"):
            return sum(lower == "warning_count" or each.level == "Error" for each in self.warnings)
        if lower in ("last_insert_id", "identity"):
            return _of_statement_before(f"@@{lower}", self.last_insert_id)
        if lower == "pseudo_thread_id":
            return self.connection
        if lower not in SYSTEM_VARIABLES:
            raise unknown("system variable", name, (*SYSTEM_VARIABLES, "version"))
        return SYSTEM_VARIABLES[lower]

    def all_variables(self, *, of_all: bool = False) -> Iterator[tuple[str, str]]:
        """What SHOW VARIABLES shows, in its order."""
        for name in sorted({*SYSTEM_VARIABLES, "version"}):
            value = self.variable(name, of_all=of_all)
            yield name, ("OFF", "ON")[value] if isinstance(value, bool) else "" if value is None else str(value)

    def under(self, account: str) -> SessionValues:
        """The same for another account; "" is nobody's, whom a deployment without accounts takes for its owner."""
        return replace(self, user=account) if account else self


def _of_statement_before(asked: str, value: int | None) -> int:
    if value is None:
        told = "the answer to the statement itself has rows_affected and first_id"
        raise Unsupported(f"{asked} without a session", hint=told)
    return value


NO_SESSION = SessionValues()

_FUNCTIONS: dict[str, Callable[[SessionValues], Value]] = {
    "VERSION": lambda of: of.version,
    "CONNECTION_ID": lambda of: of.connection,
    "LAST_INSERT_ID": lambda of: _of_statement_before("LAST_INSERT_ID()", of.last_insert_id),
    "FOUND_ROWS": lambda of: _of_statement_before("FOUND_ROWS()", of.found_rows),
    "ROW_COUNT": lambda of: _of_statement_before("ROW_COUNT()", of.row_count),
    "CURRENT_ROLE": lambda of: "NONE",
    **dict.fromkeys(("DATABASE", "SCHEMA"), lambda of: of.schema),
    **dict.fromkeys(("USER", "SESSION_USER", "SYSTEM_USER"), lambda of: f"{of.user}@{of.host}"),
    "CURRENT_USER": lambda of: f"{of.user}@%",
}
_MAY_ASK = re.compile(rf"@@|\b(?:(?:{'|'.join(_FUNCTIONS)})\s*\(|CURRENT_USER\b)", re.IGNORECASE)


def may_ask_session(sql: str) -> bool:
    """Whether a text may ask for values of its session: else there is no need to go through its tree."""
    return _MAY_ASK.search(sql) is not None


def with_session_values(parsed: Parsed, session: SessionValues) -> Parsed:
    """A statement that has the session's values where it asks for them, under the names that its columns had; itself
    where it asks for none.

    :raises UnknownName: there is no such variable."""
    if not may_ask_session(parsed.sql) or isinstance(parsed.expression, exp.Set):
        return parsed  # What SET sets is none.
    if not any(map(_is_asked, nodes(parsed.expression))):
        return parsed
    copy = parsed.expression.copy()
    keep_names(copy, _is_asked)
    for node in [node for node in nodes(copy) if _is_asked(node)]:
        node.replace(literal_node(value_asked(node, session)))
    return replace(parsed, expression=copy)


def value_asked(node: exp.Expr, session: SessionValues) -> Value:
    """The value of ``@@name``, or of one of the functions above."""
    if isinstance(node, exp.SessionParameter):
        kind = str(node.args.get("kind") or "").upper()
        value = session.variable(node.name, of_all=kind == "GLOBAL")
        return int(value) if isinstance(value, bool) else value
    name = _called(node)
    if node.args.get("expressions"):
        raise SqlError(f"{name}() with an argument", hint=f"{name}()")
    return _FUNCTIONS[name](session)


def _is_asked(node: exp.Expr) -> bool:
    return isinstance(node, exp.SessionParameter) or _called(node) in _FUNCTIONS


def _called(node: exp.Expr) -> str:
    if isinstance(node, exp.CurrentUser):
        return "CURRENT_USER"
    return str(node.this).upper() if isinstance(node, exp.Anonymous) else ""
