"""Typed expressions as Spark's text. A ``Field`` is whatever text stands at its position in ``names``.

A condition has two forms: ``truth`` is Spark's BOOLEAN, for WHERE and ON, and ``value`` the number that MySQL makes
of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from domains.errors import Unsupported
from domains.language.expressions import Call, Constant, Expression, Field
from domains.language.functions import common_type
from domains.language.functions.comparands import comparable, settled
from domains.language.types import DOUBLE, TEXT, Kind, SqlType
from migrations.spark_sql.functions import FUNCTIONS
from migrations.spark_sql.values import compared_with, converted, exact_literal, literal

_COMPARISONS = {"eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "null_safe_eq": "<=>"}


@dataclass(slots=True)
class Names:
    """The texts of fields. ``conditions`` are those whose text is a BOOLEAN."""

    texts: list[str] = field(default_factory=list)
    conditions: set[int] = field(default_factory=set)

    def add(self, text: str, type: SqlType, *, condition: bool = False) -> Field:
        self.texts.append(text)
        place = len(self.texts) - 1
        if condition:
            self.conditions.add(place)
        return Field(place, type)

    # --- values -------------------------------------------------------------------------------------------------

    def value(self, e: Expression) -> str:
        """The expression as a value of its type.

        :raises Unsupported: it cannot be said in Spark's SQL so that it means the same.
        """
        if isinstance(e, Constant):
            return literal(e.value, e.type)
        if isinstance(e, Field):
            text = self.texts[e.position]
            return f"CAST({text} AS BIGINT)" if e.position in self.conditions else text
        if self._is_condition(e):
            return f"CAST({self.truth(e)} AS BIGINT)"
        branches = _BRANCHES.get(e.function)
        if branches is not None:
            return branches(self, e)
        written = FUNCTIONS.get(e.function)
        if written is None or (e.function == "find_in_set" and e.arguments[1].type.is_set):
            raise Unsupported(f"{e.function.upper()}(), which the judge does not know")
        return written(e, [self.value(a) for a in e.arguments])

    def as_type(self, e: Expression, type: SqlType) -> str:
        return converted(self.value(e), e.type, type)

    # --- conditions ---------------------------------------------------------------------------------------------

    def truth(self, e: Expression) -> str:
        """The expression as a condition: TRUE, FALSE or NULL."""
        if isinstance(e, Field) and e.position in self.conditions:
            return self.texts[e.position]
        if isinstance(e, Call) and self._is_condition(e):
            return f"({self._condition(e)})"
        if e.type.kind in (Kind.TEXT, Kind.BLOB, Kind.JSON, Kind.NULL):
            return f"({self.as_type(e, DOUBLE)} <> 0)"
        return f"({self.value(e)} <> 0)"

    def _is_condition(self, e: Expression) -> bool:
        return isinstance(e, Call) and (e.function in _COMPARISONS or e.function in _CONDITIONS)

    def _condition(self, e: Call) -> str:
        symbol = _COMPARISONS.get(e.function)
        if symbol is not None:
            return self._compared(e.arguments[0], symbol, e.arguments[1])
        return _CONDITIONS[e.function](self, e)

    def _compared(self, left: Expression, symbol: str, right: Expression) -> str:
        left, right = settled(left, right), settled(right, left)
        return f"{self.comparable(left, right.type)} {symbol} {self.comparable(right, left.type)}"

    def comparable(self, e: Expression, other: SqlType) -> str:
        """The expression as Spark compares it with one of another type: converted where the engine converts.

        :raises Unsupported: Spark would compare otherwise.
        """
        if isinstance(e, Constant) and e.value is not None and other.kind in (Kind.INTEGER, Kind.DECIMAL):
            convert = comparable(e.type, other)
            value = e.value if convert is None else convert(e.value)
            if isinstance(value, (int, Decimal)):
                return exact_literal(value)
        return compared_with(self.value(e), e.type, other)

    def all_true(self, conditions: Sequence[Expression]) -> str:
        return " AND ".join(self.truth(each) for each in conditions) or "TRUE"


# --- conditions by name -----------------------------------------------------------------------------------------


def _chained(word: str, names: Names, e: Call) -> str:
    return f" {word} ".join(names.truth(a) for a in e.arguments)


def _xor(names: Names, e: Call) -> str:
    one, other = (names.truth(a) for a in e.arguments)
    return f"{one} <> {other}"


def _between(names: Names, e: Call) -> str:
    value, low, high = e.arguments
    return f"{names._compared(value, '>=', low)} AND {names._compared(value, '<=', high)}"


def _in(names: Names, e: Call) -> str:
    return " OR ".join(f"({names._compared(e.arguments[0], '=', each)})" for each in e.arguments[1:])


def _like(names: Names, e: Call) -> str:
    if any(argument.type.kind is Kind.BLOB for argument in e.arguments):
        raise Unsupported("LIKE of a BLOB, which the judge does not know")
    if len(e.arguments) > 2:
        escape = e.arguments[2]
        if not isinstance(escape, Constant) or not isinstance(escape.value, str) or len(escape.value) != 1:
            raise Unsupported("LIKE with an ESCAPE that is not one character, which the judge does not know")
        ending = f" ESCAPE {literal(escape.value, TEXT)}"
    else:
        ending = ""
    return f"{names.as_type(e.arguments[0], TEXT)} LIKE {names.as_type(e.arguments[1], TEXT)}{ending}"


def _regexp(names: Names, e: Call) -> str:
    pattern = e.arguments[1]
    written = pattern.arguments[0] if isinstance(pattern, Call) else pattern
    if isinstance(written, Constant) and isinstance(written.value, str) and written.value.startswith("(?"):
        raise Unsupported("REGEXP with flags, which Java reads otherwise")
    return f"{names.as_type(e.arguments[0], TEXT)} RLIKE {names.as_type(e.arguments[1], TEXT)}"


_CONDITIONS = {
    "and": lambda names, e: _chained("AND", names, e),
    "or": lambda names, e: _chained("OR", names, e),
    "xor": _xor,
    "not": lambda names, e: f"NOT {names.truth(e.arguments[0])}",
    "is_null": lambda names, e: f"{names.value(e.arguments[0])} IS NULL",
    "is_not_null": lambda names, e: f"{names.value(e.arguments[0])} IS NOT NULL",
    "is_true": lambda names, e: f"COALESCE({names.truth(e.arguments[0])}, FALSE)",
    "is_false": lambda names, e: f"COALESCE(NOT {names.truth(e.arguments[0])}, FALSE)",
    "between": _between,
    "in": _in,
    "like": _like,
    "regexp": _regexp,
}


# --- branches: conditions inside, a common type outside ---------------------------------------------------------


def _case(names: Names, e: Call) -> str:
    pairs = zip(e.arguments[:-1:2], e.arguments[1::2], strict=False)
    written = " ".join(f"WHEN {names.truth(c)} THEN {names.as_type(v, e.type)}" for c, v in pairs)
    ending = f" ELSE {names.as_type(e.arguments[-1], e.type)}" if len(e.arguments) % 2 else ""
    return f"CASE {written}{ending} END"


def _if(names: Names, e: Call) -> str:
    condition, one, other = e.arguments
    return f"IF({names.truth(condition)}, {names.as_type(one, e.type)}, {names.as_type(other, e.type)})"


def _coalesce(names: Names, e: Call) -> str:
    return f"COALESCE({', '.join(names.as_type(a, e.type) for a in e.arguments)})"


def _nullif(names: Names, e: Call) -> str:
    one, other = e.arguments
    return f"CASE WHEN {names._compared(one, '=', other)} THEN NULL ELSE {names.as_type(one, e.type)} END"


def _extreme(word: str, names: Names, e: Call) -> str:
    """NULL where any of them is NULL; Spark would pass over it."""
    type = common_type([a.type for a in e.arguments])
    parts = [names.as_type(a, type) for a in e.arguments]
    some = " OR ".join(f"{part} IS NULL" for part in parts)
    return converted(f"CASE WHEN {some} THEN NULL ELSE {word}({', '.join(parts)}) END", type, e.type)


def _field(names: Names, e: Call) -> str:
    wanted, *others = e.arguments
    cases = " ".join(f"WHEN {names._compared(wanted, '=', each)} THEN {i}L" for i, each in enumerate(others, 1))
    return f"CASE {cases} ELSE 0L END"


def _strcmp(names: Names, e: Call) -> str:
    one, other = (names.as_type(a, TEXT) for a in e.arguments)
    return f"CASE WHEN {one} < {other} THEN -1L WHEN {one} = {other} THEN 0L WHEN {one} > {other} THEN 1L END"


_BRANCHES = {
    "case": _case,
    "if": _if,
    "coalesce": _coalesce,
    "ifnull": _coalesce,
    "nullif": _nullif,
    "greatest": lambda names, e: _extreme("greatest", names, e),
    "least": lambda names, e: _extreme("least", names, e),
    "field": _field,
    "strcmp": _strcmp,
}
