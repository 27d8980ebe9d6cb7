"""SET of system variables in a session that remembers them: what is set, and what each takes.

::

    SET autocommit = 1, sql_mode = CONCAT(@@sql_mode, ',STRICT_TRANS_TABLES'), @a = 7
         └── Assigned ──┘                └── a SELECT computes it ──┘            └── a user variable
    SET NAMES latin1 COLLATE latin1_bin     is four of them

All values are computed before any is set, as in MySQL. A value that would have statements mean something else than they
do here is refused, by the name of the variable: none is taken and then ignored. Taken are limits of time and size that
clients set for themselves, and what is heeded (``foreign_key_checks``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from domains.errors import LimitExceeded, Unsupported
from domains.language.types import Value
from domains.plan.packets import Insert
from migrations.catalog import Catalog, unknown
from migrations.parse.reading import Parsed, exp
from migrations.statements.sessions.session_values import SessionValues
from migrations.statements.sessions.show import check_reach, check_variable
from migrations.statements.sessions.system_variables import SYSTEM_VARIABLES
from migrations.statements.statement import WriteStatement

AUTOCOMMIT = "autocommit"
ISOLATION = ("transaction_isolation", "tx_isolation")
READ_ONLY = ("transaction_read_only", "tx_read_only")
LOCK_WAIT = "innodb_lock_wait_timeout"
LEVELS = ("SERIALIZABLE", "REPEATABLE-READ", "READ-COMMITTED", "READ-UNCOMMITTED")
CHARACTER_SETS = ("utf8mb4", "utf8mb3", "utf8", "latin1", "ascii", "binary")
"""Those that a connection's texts may be in."""
_OF_TEXTS = ("character_set_client", "character_set_connection", "character_set_results")
_COLLATION = "collation_connection"
_READ_ONLY = (
    *("hostname", "license", "lower_case_table_names", "performance_schema", "port", "protocol_version", "socket"),
    *("system_time_zone", "version", "version_comment", "version_compile_machine", "version_compile_os"),
)
_ON, _OFF = ("1", "ON", "TRUE"), ("0", "OFF", "FALSE")
USER_VARIABLES_MAX = 1_000
"""Of one session."""
USER_VARIABLE_MAX = 1_000_000
"""Characters of one."""


@dataclass(frozen=True, slots=True)
class Assigned:
    """``value``: what computes it; a ``str`` is a word, such as ON or a character set; None: DEFAULT."""

    name: str
    value: exp.Expr | str | None
    is_user: bool = False


def assigned(parsed: Parsed) -> list[Assigned]:
    """What SET sets, in its order; nothing, of another statement."""
    if not isinstance(parsed.expression, exp.Set):
        return []
    return [each for item in parsed.expression.expressions for each in _of_item(item)]


def check_size(held: Mapping[str, Value], made: Mapping[str, Value]) -> None:
    """:raises LimitExceeded: these are too many user variables, or too long."""
    if len({*held, *made}) > USER_VARIABLES_MAX:
        raise LimitExceeded(f"a session has at most {USER_VARIABLES_MAX:,} user variables")
    if any(isinstance(value, str | bytes) and len(value) > USER_VARIABLE_MAX for value in made.values()):
        raise LimitExceeded(f"a user variable has at most {USER_VARIABLE_MAX:,} characters")


NO_ZERO = "NO_AUTO_VALUE_ON_ZERO"
"""The mode of a dump that is loaded: a 0 in an AUTO_INCREMENT column is a value, and does not ask for one."""


def refuse_zeros(session: SessionValues, statement: WriteStatement, catalog: Catalog) -> None:
    """:raises Unsupported: rows ask for numbers in this mode: whether by NULL or by 0 is not known here."""
    operation = statement.operation
    if NO_ZERO not in str(session.variables["sql_mode"]).upper() or not isinstance(operation, Insert):
        return
    columns = catalog.tables[operation.table.lower()].columns
    at = next((at for at, each in enumerate(columns) if each.auto_increment and not each.dropped), None)
    if at is not None and any(row[at] is None for row in operation.rows):
        raise Unsupported(
            f'rows without a value of the AUTO_INCREMENT column "{columns[at].name}" in the mode {NO_ZERO}',
            hint="give its values, none of them 0, or set sql_mode without it",
        )


def _of_item(item: exp.Expr) -> Iterator[Assigned]:
    check_reach(item)
    kind = str(item.args.get("kind") or "").upper()
    target = item.this
    if kind in ("NAMES", "CHARACTER SET"):
        word = _word(target)
        names = _OF_TEXTS if kind == "NAMES" else (_OF_TEXTS[0], _OF_TEXTS[2])
        yield from (Assigned(name, word) for name in names)
        if (collation := item.args.get("collate")) is not None:
            yield Assigned(_COLLATION, _word(collation))
        return
    if isinstance(target, exp.EQ):
        name, is_user = target.this.name.lower(), isinstance(target.this, exp.Parameter)
        yield Assigned(name, target.expression if is_user else _value(target.expression), is_user)


def _word(node: exp.Expr | str) -> str | None:
    word = node if isinstance(node, str) else node.name
    return None if word.upper() == "DEFAULT" else word.lower()


def _value(node: exp.Expr) -> exp.Expr | str | None:
    """A bare word is a text in SET."""
    if isinstance(node, exp.Var) or (isinstance(node, exp.Column) and not node.table):
        return None if node.name.upper() == "DEFAULT" else node.name
    return node


def taken(name: str, value: Value) -> Value | bool:
    """The value that a session has for a system variable that was set so.

    :raises UnknownName: there is no such variable. :raises Unsupported: it does not take the value."""
    if name in _READ_ONLY:
        raise Unsupported(f"SET {name}: it is read-only")
    if name not in SYSTEM_VARIABLES:
        raise unknown("system variable", name, SYSTEM_VARIABLES)
    if name in _OF_TEXTS:
        if value is None and name == _OF_TEXTS[2]:
            return None
        if str(value).lower() not in CHARACTER_SETS:
            raise Unsupported(f"the character set {value!s}", hint=f"{', '.join(CHARACTER_SETS)} are there")
        return "utf8mb3" if str(value).lower() == "utf8" else str(value).lower()
    default = SYSTEM_VARIABLES[name]
    if name in ISOLATION:
        word = str(value).upper().replace(" ", "-")
        if word not in LEVELS:
            raise Unsupported(f"SET {name} = {value!r}", hint=f"{', '.join(LEVELS)} are there")
        return word
    if value is None or isinstance(value, bytes):
        raise _wrong(name, value)
    if name != AUTOCOMMIT:
        check_variable(name, str(value).upper())
    if isinstance(default, bool):
        word = str(value).upper()
        if word not in (*_ON, *_OFF):
            raise _wrong(name, value)
        return word in _ON
    if isinstance(default, int) and not isinstance(value, int):
        raise _wrong(name, value)
    return value


def _wrong(name: str, value: Value) -> Unsupported:
    return Unsupported(f"SET {name} = {value!r}", hint=f"@@{name} is {SYSTEM_VARIABLES[name]} here")
