"""Typed SQL expressions that print themselves twice: as MySQL for the subject, as SQLite for the judge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType

from tests.campaign.kinds import INT, SECOND, Kind, Type, Value, dec, literal

NOTHING_MOVED: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Parameter:
    """One ``?``. ``kind`` is how it constrains: ``=``, ``in``, ``<``, ``<=``, ``>``, ``>=``, ``limit``, ``offset``."""

    id: int
    kind: str
    type: Type

    @property
    def marker(self) -> str:
        """Stands in the MySQL text until it is complete, so that the order of parameters is the text's own."""
        return f"⟦{self.id}⟧"

    @property
    def placeholder(self) -> str:
        return f":p{self.id}"


@dataclass(frozen=True, slots=True)
class Term:
    """An expression. ``text`` and ``judged`` hold ``{0}``, ``{1}`` … where the arguments' texts go."""

    type: Type
    text: str
    judged: str
    arguments: tuple[Term, ...] = ()
    column: tuple[str, str] | None = None
    """(alias, column) where this is a bare column."""
    constant: bool = False
    aggregate: bool = False
    parameter: Parameter | None = None
    nested: tuple[object, ...] = field(default=())
    """Queries inside (IN, EXISTS): their tables count as read."""

    def mysql(self) -> str:
        return self.text.format(*(argument.mysql() for argument in self.arguments)) if self.arguments else self.text

    def judge(self, moved: Mapping[str, str] = NOTHING_MOVED) -> str:
        """``moved``: aliases that stand inside another one by now, as ``alias_column``."""
        if self.arguments:
            return self.judged.format(*(argument.judge(moved) for argument in self.arguments))
        if self.column is not None and self.column[0] in moved:
            return f"{moved[self.column[0]]}.{self.column[0]}_{self.column[1]}"
        return self.judged

    def walk(self) -> Iterator[Term]:
        yield self
        for argument in self.arguments:
            yield from argument.walk()


def column(alias: str, name: str, type: Type) -> Term:
    return Term(type, f"{alias}.{name}", f"{alias}.{name}", column=(alias, name))


def constant(value: Value, type: Type) -> Term:
    text = literal(value)
    if type.kind is Kind.DATE and value is not None:
        return Term(type, f"CAST({text} AS DATE)", text, constant=True)
    if type.kind is Kind.JSON and value is not None:
        return Term(type, f"CAST({text} AS JSON)", text, constant=True)
    if isinstance(value, timedelta):
        return Term(type, f"CAST({text} AS TIME)", str(value // SECOND), constant=True)
    return Term(type.plain, text, text, constant=True)


def call(type: Type, text: str, judged: str, *arguments: Term) -> Term:
    return Term(type, text, judged, arguments)


def same(type: Type, text: str, *arguments: Term) -> Term:
    """A call that is written alike on both sides."""
    return Term(type, text, text, arguments)


def placeholder(parameter: Parameter) -> Term:
    return Term(parameter.type, parameter.marker, parameter.placeholder, parameter=parameter)


def exact(type: Type, judged: str) -> str:
    """The judge computes decimals as floats and rounds every result to its scale, which keeps them canonical."""
    return f"my_dec({judged}, {type.scale})" if type.kind is Kind.DEC else judged


def wider(*types: Type) -> Type:
    """The type that holds values of all of these, as MySQL's CASE, COALESCE, UNION and ``+`` choose it."""
    kinds = {type.kind for type in types}
    if len(kinds) == 1:
        return dec(max(type.scale for type in types)) if kinds == {Kind.DEC} else types[0].plain
    if kinds == {Kind.INT, Kind.DEC}:
        return dec(max(type.scale for type in types))
    if Kind.DBL in kinds and all(type.numeric for type in types):
        return Type(Kind.DBL)
    raise AssertionError(f"no common type of {types}")


def arithmetic(operator: str, left: Term, right: Term) -> Term:
    """``+``, ``-`` or ``*`` on numbers."""
    type = wider(left.type, right.type)
    if operator == "*" and type.kind is Kind.DEC:
        type = dec(left.type.scale + right.type.scale)
    text = f"({{0}} {operator} {{1}})"
    return Term(type, text, exact(type, text), (left, right))


def quotient(left: Term, right: Term) -> Term:
    """``/``: of exact numbers a DECIMAL with four digits more than the left one."""
    if Kind.DBL in (left.type.kind, right.type.kind):
        return Term(Type(Kind.DBL), "({0} / {1})", "my_fdiv({0}, {1})", (left, right))
    type = dec(left.type.scale + 4)
    return Term(type, "({0} / {1})", f"my_quot({{0}}, {{1}}, {type.scale})", (left, right))


def multiple(left: Term, right: Term, factor: Term) -> Term:
    """``left / right * factor`` of exact numbers, where ``right`` and ``factor`` are integers.

    The quotient has whole words of nine digits while it is computed with; what is shown has four more than ``left``.
    """
    type = dec(left.type.scale + 4)
    digits = 9 * -(-type.scale // 9)
    judged = f"my_multiple({{0}}, {{1}}, {{2}}, {digits}, {type.scale})"
    return Term(type, "({0} / {1} * {2})", judged, (left, right, factor))


def as_text(term: Term) -> Term:
    """What the term looks like inside CONCAT."""
    if term.type.kind in (Kind.TXT, Kind.DATE):
        return term
    if term.type.kind is Kind.TIME:
        return Term(term.type, "{0}", "my_time_text({0})", (term,))
    return Term(term.type, "{0}", f"my_text({{0}}, {term.type.scale})", (term,))


def as_numbers(*terms: Term) -> tuple[Term, ...]:
    """Terms as they are compared where some are texts and some are numbers."""
    return tuple(
        by_place(term)
        if term.type.members
        else Term(term.type, "{0}", "my_num({0})", (term,))
        if term.type.kind is Kind.TXT
        else term
        for term in terms
    )


def by_place(term: Term) -> Term:
    """A column that is an ENUM or a SET as a number: its member's place from 1 on, or a bit for each member."""
    name = "my_bits" if term.type.is_set else "my_place"
    return Term(INT, "{0}", f"{name}({{0}}, '{','.join(term.type.members)}')", (term,))


def by_order(term: Term) -> Term:
    """The term where it is sorted by."""
    if term.type.members:
        return by_place(term)
    return Term(term.type, "{0}", "my_json_key({0})", (term,)) if term.type.kind is Kind.JSON else term


def unnamed(term: Term) -> Term:
    """A column as an expression that is written like it, and has lost its members."""
    return Term(term.type.plain, "{0}", "{0}", (term,)) if term.type.members else term


def both(terms: tuple[Term, ...] | list[Term]) -> Term | None:
    """The conjunction, None of nothing."""
    if not terms:
        return None
    text = " AND ".join(f"{{{i}}}" for i in range(len(terms)))
    return Term(INT, text, text, tuple(terms))
