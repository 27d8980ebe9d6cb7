"""Function calls by MySQL's names: aliases, the clock, date arithmetic and the few with a syntax of their own."""

from __future__ import annotations

from domains.errors import SqlError, Unsupported
from domains.language.expressions import Constant, Expression
from domains.language.functions import FUNCTIONS, call
from domains.language.functions.temporal.intervals import COMPOUND, OF_TIMES
from domains.language.types import DATE, TEXT, TIME, Kind
from migrations.parse.policies import CLAIM
from migrations.parse.reading import exp
from migrations.query.expressions.literals import integer

ALIASES = {
    "lcase": "lower",
    "ucase": "upper",
    "mid": "substring",
    "substr": "substring",
    "ceiling": "ceil",
    "power": "pow",
    "sha": "sha1",
    "character_length": "char_length",
    "octet_length": "length",
    "isnull": "is_null",
    "dayofmonth": "day",
    "regexp_like": "regexp",
    "mod": "modulo",
    "position": "locate",
    "atan2": "atan",
    "json_merge": "json_merge_preserve",
}

CLOCK = {
    **dict.fromkeys(("now", "current_timestamp", "localtime", "localtimestamp"), "datetime"),
    **dict.fromkeys(("sysdate", "utc_timestamp"), "datetime"),
    **dict.fromkeys(("curdate", "current_date", "utc_date"), "date"),
    "curtime": "time",
    "current_time": "time",
    "utc_time": "time",
    "unix_timestamp": "seconds",
}
"""Functions of the time at which the statement runs, and what they give. UNIX_TIMESTAMP is one without an argument."""

AGGREGATES = frozenset(
    "any_value bit_and bit_or bit_xor std stddev stddev_pop stddev_samp variance var_pop var_samp "  # noqa: SIM905
    "json_arrayagg json_objectagg".split()
)
"""Aggregates that sqlglot leaves as plain calls."""

OPERATORS = frozenset(
    "and or not xor in between case cast is_null is_not_null is_true is_false eq ne lt le gt ge null_safe_eq "  # noqa: SIM905
    "add subtract multiply divide quotient int_divide modulo negate bit_and bit_or bit_xor bit_not shift_left "
    "shift_right like json_value_as".split()
)
"""Functions of the engine that SQL writes as operators, or with clauses: their names are no functions of MySQL's."""

VOLATILE = frozenset(
    ["rand", "uuid", "uuid_short", "random_bytes", "sleep", "last_insert_id", "connection_id", "row_count"]
)
DRAWN = frozenset(["rand", "uuid"])
"""Of these, those that a SELECT without a view may have."""
SESSION = frozenset(["database", "schema", "user", "current_user", "session_user", "system_user", "version"])

_REFUSED = {
    **dict.fromkeys(("json_storage_size", "json_storage_free"), "LENGTH(document): it is kept as its text"),
    **dict.fromkeys(("json_schema_valid", "json_schema_validation_report"), "JSON_TYPE and JSON_CONTAINS_PATH"),
    "weight_string": "compare and sort by the text itself: its collation's weights count",
    **dict.fromkeys(("load_file", "get_lock", "release_lock", "is_free_lock"), "an answer is made of rows alone"),
    **dict.fromkeys(("aes_encrypt", "aes_decrypt", "compress", "uncompress"), "store what the application makes"),
    **dict.fromkeys(("charset", "collation", "coercibility"), "SHOW FULL COLUMNS names a column's collation"),
}
"""Functions of MySQL's that are not there, and what to use."""

SHIFTS = {"date_add": False, "adddate": False, "date_sub": True, "subdate": True}
"""Date arithmetic with an INTERVAL (or a bare number of days), and whether it goes back."""

_UNITS_FIRST = frozenset(["timestampdiff", "timestampadd", "extract"])
_OTHERS = SHIFTS.keys() | CLOCK.keys() | _UNITS_FIRST
"""Names that stand for a function of another name, or for a constant."""
_TREE_AGGREGATES = frozenset(["count", "sum", "avg", "min", "max", "group_concat", "any_value"])
"""Aggregates for a guess; a right name of theirs is never looked for here."""
UNITS = frozenset(["microsecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year"])

NODES: tuple[type[exp.Expr], ...] = (
    exp.Anonymous,
    exp.Chr,
    exp.Substring,
    exp.Trim,
    exp.StrPosition,
    exp.Extract,
    exp.Soundex,
    exp.CurrentTimestamp,
    exp.CurrentDate,
    exp.CurrentTime,
    exp.CurrentUser,
    exp.Localtime,
    exp.Localtimestamp,
)
"""The tree's nodes that are plain calls."""

_WITHOUT_PARENTHESES: dict[type[exp.Expr], str] = {
    exp.CurrentDate: "curdate",
    exp.CurrentTime: "curtime",
    exp.CurrentUser: "current_user",
    **dict.fromkeys((exp.CurrentTimestamp, exp.Localtime, exp.Localtimestamp), "now"),
}


def spelled(node: exp.Expr) -> tuple[str, list[exp.Expr]]:
    """A call's name in lower case and its arguments, in MySQL's order."""
    if isinstance(node, exp.Anonymous):
        name = str(node.this.name if isinstance(node.this, exp.Expr) else node.this).lower()
        return ALIASES.get(name, name), list(node.expressions)
    if isinstance(node, exp.Chr):
        charset = node.args.get("charset") or None
        return "char", [exp.Literal.string("" if charset is None else charset.name), *node.expressions]
    if isinstance(node, exp.Substring):
        return "substring", [part for part in (node.this, node.args.get("start"), node.args.get("length")) if part]
    if isinstance(node, exp.Trim):
        name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position") or "").upper(), "trim")
        return name, [part for part in (node.this, node.args.get("expression")) if part]
    if isinstance(node, exp.StrPosition):
        return "locate", [part for part in (node.args.get("substr"), node.this, node.args.get("position")) if part]
    if isinstance(node, exp.Soundex):  # a SOUNDS LIKE b
        return "soundex", [node.this]
    if isinstance(node, exp.Extract):
        return "extract", [node.this, node.args["expression"]]
    return _WITHOUT_PARENTHESES[type(node)], []


def asks_time(node: exp.Expr) -> bool:
    """Whether a node is a call whose value is the time of the statement."""
    if not isinstance(node, NODES):
        return False
    name, parts = spelled(node)
    return name in CLOCK and not (parts and name in FUNCTIONS)


def is_drawn(node: exp.Expr) -> bool:
    """Whether a node is a call that has another value for each row."""
    return isinstance(node, exp.Anonymous) and spelled(node)[0] in DRAWN


def check(name: str) -> None:
    """:raises Unsupported: the function has another value each time it is asked, is of a session, or is not there."""
    if name == CLAIM.lower():
        raise Unsupported(f"{CLAIM}() here", hint=f"column = {CLAIM}('sub') in a policy")
    if name in DRAWN:
        raise Unsupported(
            f"{name.upper()}() in a view, below the outermost SELECT, or here in a write: it has no value to be kept",
            hint="the list, WHERE and ORDER BY of a SELECT without a view, and INSERT's VALUES may have it; or give a "
            "value for ?",
        )
    if name in VOLATILE:
        raise Unsupported(f"{name.upper()}(): it has no value that could be kept up to date")
    if name in SESSION:
        raise Unsupported(f"{name.upper()}(): there are no sessions")
    if name in _REFUSED:
        raise Unsupported(f"function {name.upper()}", hint=_REFUSED[name])
    if name not in FUNCTIONS and name not in _OTHERS:
        near = _near(name)
        raise Unsupported(f'function "{name}" is not supported', hint=f"did you mean {near.upper()}?" if near else None)


def _near(name: str) -> str | None:
    """The function that a mistyped name means. Less than a quarter of the letters may differ: JSON_EXTRACT shares most
    of its letters with SUBTRACT and LEAD with LPAD, and neither is meant."""
    known = (FUNCTIONS.keys() - OPERATORS) | ALIASES.keys() | _OTHERS | _TREE_AGGREGATES
    edits, near = min((_edits(name, each), each) for each in known)
    return near if 4 * edits < max(len(name), len(near)) else None


def _edits(a: str, b: str) -> int:
    """How many letters are put in, left out, changed, or swapped with the next one."""
    above: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        above, last, row = row, above, [i]
        for j, y in enumerate(b, 1):
            edits = min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                edits = min(edits, last[j - 2] + 1)
            row.append(edits)
    return row[-1]


def leading_unit(name: str, parts: list[exp.Expr]) -> str | None:
    """The unit that ``TIMESTAMPDIFF(DAY, …)`` and ``EXTRACT(DAY FROM …)`` start with."""
    if name not in _UNITS_FIRST:
        return None
    if not parts:
        raise SqlError(f"{name.upper()} wants a unit")
    return unit_name(parts[0])


def unit_name(node: exp.Expr | None) -> str:
    name = (node.name if node is not None else "day").lower().removeprefix("sql_tsi_")
    if name not in UNITS and name.upper() not in COMPOUND:
        raise Unsupported(f'the interval unit "{name}"', hint="units are " + ", ".join(sorted(UNITS)))
    return name


def ordered(name: str, unit: str | None, arguments: list[Expression]) -> tuple[str, list[Expression]]:
    """The function's name and arguments in the order of ``domains/functions``."""
    if unit is None:
        return name, arguments
    text = Constant(unit, TEXT)
    if (
        name == "extract"
        and unit in UNITS
        and (arguments[0].type.kind is not Kind.TIME or unit.upper() not in OF_TIMES)
    ):
        return unit, arguments
    if name == "timestampadd" and len(arguments) == 2:
        return "date_add", [arguments[1], arguments[0], text]
    return name, [text, *arguments]


def shifted(value: Expression, amount: Expression, by: exp.Expr, *, back: bool) -> Expression:
    """``value ± INTERVAL amount unit``."""
    unit = Constant(unit_name(by.args.get("unit") if isinstance(by, exp.Interval) else None), TEXT)
    if isinstance(amount, Constant) and isinstance(amount.value, str) and unit.value in UNITS:
        amount = _whole(amount.value) or amount
    return call("date_sub" if back else "date_add", value, amount, unit)


def _whole(text: str) -> Constant | None:
    """sqlglot writes the 1 of ``INTERVAL 1 DAY`` as a text."""
    return integer(int(text)) if text.strip().lstrip("+-").isdigit() else None


def clock(name: str, now: Expression) -> Expression:
    """The value of a function of the clock, given the time of the statement."""
    what = CLOCK[name]
    if what == "datetime":
        return now
    if what == "seconds":
        return call("unix_timestamp", now)
    return call("cast", now, type=DATE if what == "date" else TIME)
