"""Random typed expressions over a scope of columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from random import Random

from tests.campaign.kinds import DATE, DBL, INT, JSON, NOW, TIME, TXT, Kind, Type, dec, draw
from tests.campaign.terms import (
    Term,
    arithmetic,
    as_numbers,
    as_text,
    by_order,
    by_place,
    call,
    constant,
    exact,
    multiple,
    quotient,
    same,
    wider,
)

_PATTERNS = ("a%", "%b", "_", "%a%", "a_c", "%", "2%", "")
_REGULAR = ("(a|bb)", "(b+)", "^(.)", "(a?)", "(é|1)2?")
"""Regular expressions with one group, which mean the same everywhere."""
_WHOLE_DAYS = ("%Y%m%d", "%d.%m.%Y", "%W %D %b %Y", "%M %e, %Y", "%Y %j")
"""Formats that read back what they wrote."""
_PATHS = ("$.k", "$.k", "$.l", "$[0]", "$[1]")
_COMPARISONS = ("=", "=", "=", "<>", "!=", "<", "<=", ">", ">=", "<=>")


def moment(random: Random, type: Type) -> Term:
    """A value that follows from the time of a request: a day or a number."""
    value = draw(random, type)
    if type.kind is Kind.DATE:
        away = (date.fromisoformat(str(value)) - date.fromisoformat(NOW[:10])).days
        text = random.choice(("CURDATE() + INTERVAL {} DAY", "DATE_ADD(CURRENT_DATE, INTERVAL {} DAY)"))
        return Term(DATE, f"({text.format(away)})", f"'{value}'")
    assert isinstance(value, int)
    return Term(INT, f"(YEAR(NOW()) + {value - int(NOW[:4])})", str(value))


def drawn_constant(random: Random, type: Type) -> Term:
    return constant(draw(random, type), dec(2) if type.kind is Kind.DEC else type)


@dataclass
class Expressions:
    """``plain`` leaves out what strict mode makes an error in a write (division by zero, text that is no number)."""

    random: Random
    scope: Sequence[Term]
    plain: bool = False

    # --- values ---------------------------------------------------------------------------------------------------

    def value(self, type: Type, depth: int = 2) -> Term:
        """An expression of exactly this type (a DECIMAL may come with another scale: see ``Term.type``)."""
        if depth <= 0 or self.random.random() < 0.35:
            return self.leaf(type)
        makers: dict[Kind, Callable[[int], Term]] = {
            Kind.INT: self._integer,
            Kind.DEC: self._decimal,
            Kind.DBL: self._double,
            Kind.TXT: self._text,
            Kind.DATE: self._date,
            Kind.TIME: self._time,
            Kind.JSON: self._document,
        }
        if self.random.random() < 0.3:
            return self._choice(type, depth - 1)
        return makers[type.kind](depth - 1)

    def leaf(self, type: Type) -> Term:
        columns = [term for term in self.scope if term.type.kind == type.kind]
        if columns and self.random.random() < 0.8:
            return self.random.choice(columns)
        return drawn_constant(self.random, type)

    def any_type(self) -> Type:
        return self.random.choice(self.scope).type if self.scope else INT

    def exact_number(self, depth: int) -> Term:
        return self.value(self.random.choice((INT, INT, dec(2))), depth)

    def _choice(self, type: Type, depth: int) -> Term:
        """CASE, IF, COALESCE, IFNULL, NULLIF: whatever the type."""
        random = self.random
        one, two = self.value(type, depth), self.value(type, depth)
        result = wider(one.type, two.type)
        match random.randrange(6):
            case 4 if type.kind is not Kind.JSON:
                return same(one.type.plain, "NULLIF({0}, {1})", one, two)
            case 0 | 4:
                text = "CASE WHEN {0} THEN {1} ELSE {2} END"
                return call(result, text, exact(result, text), self.boolean(depth), one, two)
            case 1:
                text = "CASE WHEN {0} THEN {1} END"
                return same(one.type.plain, text, self.boolean(depth), one)
            case 2:
                compared = self.leaf(self.any_type())
                other = constant(draw(random, compared.type), compared.type)
                text = "CASE {0} WHEN {1} THEN {2} ELSE {3} END"
                return call(result, text, exact(result, text), compared, other, one, two)
            case 3:
                judged = "CASE WHEN {0} THEN {1} ELSE {2} END"
                return call(result, "IF({0}, {1}, {2})", exact(result, judged), self.boolean(depth), one, two)
            case _:
                name = random.choice(("COALESCE", "IFNULL"))
                return call(result, name + "({0}, {1})", exact(result, name + "({0}, {1})"), one, two)

    def _integer(self, depth: int) -> Term:
        random = self.random
        match random.randrange(17):
            case 15 | 16 if (told := self._told(depth)) is not None:
                return told
            case 14:
                text, judged = random.choice(
                    (
                        ("HOUR({0})", "(abs({0}) / 3600)"),
                        ("MINUTE({0})", "(abs({0}) / 60 % 60)"),
                        ("TIME_TO_SEC({0})", "{0}"),
                        ("TIMESTAMPDIFF(MINUTE, {0}, TIME'10:00:00')", "((36000 - {0}) / 60)"),
                    )
                )
                return call(INT, text, judged, self.value(TIME, depth))
            case 0 | 1 | 2:
                return arithmetic(random.choice("+-*"), self.value(INT, depth), self.value(INT, min(depth, 1)))
            case 3:
                return call(INT, "(- {0})", "(- {0})", self.value(INT, depth))
            case 4:
                return same(INT, "ABS({0})", self.value(INT, depth))
            case 5:
                return call(INT, "CHAR_LENGTH({0})", "length({0})", self.value(TXT, depth))
            case 6:
                name = random.choice(("FLOOR", "CEIL"))
                return call(INT, name + "({0})", f"my_{name.lower()}({{0}})", self.value(dec(2), depth))
            case 7:
                part = random.choice(("YEAR", "MONTH", "DAYOFMONTH", "DAYOFWEEK", "DAYOFYEAR", "QUARTER", "WEEKDAY"))
                return call(INT, part + "({0})", f"my_date_part({{0}}, '{part}')", self.value(DATE, depth))
            case 8:
                return call(
                    INT, "DATEDIFF({0}, {1})", "my_datediff({0}, {1})", self.value(DATE, depth), self.leaf(DATE)
                )
            case 9:
                if random.random() < 0.3:
                    pattern = random.choice(_REGULAR)
                    text, judged = f"REGEXP_INSTR({{0}}, '{pattern}')", f"my_regexp_instr({{0}}, '{pattern}')"
                    return call(INT, text, judged, self.value(TXT, depth))
                return call(INT, "LOCATE({0}, {1})", "my_locate({0}, {1})", self.leaf(TXT), self.value(TXT, depth))
            case 10:
                name = random.choice(("GREATEST", "LEAST"))
                judged = ("max" if name == "GREATEST" else "min") + "({0}, {1})"
                return call(INT, name + "({0}, {1})", judged, self.value(INT, depth), self.value(INT, depth))
            case 11:
                return call(INT, "SIGN({0})", "my_sign({0})", self.exact_number(depth))
            case 12 if not self.plain:
                return self._divided(depth)
            case 13:
                return self.boolean(depth)
            case _:
                return call(INT, "CAST({0} AS SIGNED)", "my_int({0})", self.exact_number(depth))

    def _divided(self, depth: int) -> Term:
        """Whole numbers out of a division, or out of text; NULL where the divisor is zero."""
        one, two = self.value(INT, depth), self.value(INT, 0)
        match self.random.randrange(5):
            case 0:
                return call(INT, "({0} DIV {1})", "my_div({0}, {1})", one, two)
            case 1:
                one, two = (self.value(self.random.choice((DBL, dec(2))), 0) for _ in range(2))
                return call(INT, "({0} DIV {1})", "my_div({0}, {1})", one, two)
            case 2:
                return call(INT, "({0} % {1})", "my_mod({0}, {1}, 0)", one, two)
            case 3:
                return call(INT, "MOD({0}, {1})", "my_mod({0}, {1}, 0)", one, two)
            case _:
                text = self.value(TXT, depth)
                judged = "my_text_int({0})"
                if text.type.members:
                    text, judged = by_place(text), "{0}"
                return call(INT, "CAST({0} AS SIGNED)", judged, text)

    def _told(self, depth: int) -> Term | None:
        """A number that is told of a document, an ENUM or a SET."""
        random = self.random
        listed = [term for term in self.scope if term.type.members]
        if any(term.type.kind is Kind.JSON for term in self.scope) and random.random() < 0.6:
            text, judged = random.choice(
                (("JSON_LENGTH({0})", "my_json_length({0})"), ("JSON_CONTAINS({0}, '1')", "my_json_holds({0}, '1')"))
            )
            return call(INT, text, judged, self.value(JSON, depth))
        if not listed:
            return None
        term = random.choice(listed)
        if term.type.is_set and random.random() < 0.5:
            member = constant(random.choice(term.type.members), TXT)
            return call(
                INT, "FIND_IN_SET({1}, {0})", f"my_found({{1}}, {{0}}, '{','.join(term.type.members)}')", term, member
            )
        return call(INT, "CAST({0} AS SIGNED)", "{0}", by_place(term))

    def _document(self, depth: int) -> Term:
        random = self.random
        one = self.value(JSON, min(depth, 0))
        value = self.leaf(random.choice((INT, TXT)))
        match random.randrange(4):
            case 0:
                return call(JSON, "JSON_OBJECT('k', {0})", "my_json_object('k', {0})", value)
            case 1:
                return call(JSON, "JSON_ARRAY({0}, {1})", "my_json_array({0}, {1})", value, self.leaf(INT))
            case 2:
                return call(JSON, "JSON_SET({0}, '$.k', {1})", "my_json_set({0}, 'k', {1})", one, value)
            case _:
                path = random.choice(_PATHS)
                return call(JSON, f"JSON_EXTRACT({{0}}, '{path}')", f"my_json_extract({{0}}, '{path}')", one)

    def _decimal(self, depth: int) -> Term:
        random = self.random
        one = self.value(dec(2), depth)
        match random.randrange(6):
            case 0 | 1:
                result = arithmetic(random.choice("+-*"), one, self.exact_number(min(depth, 0)))
                return result if result.type.scale <= 6 else one
            case 2:
                scale = random.choice((0, 1))
                return call(dec(scale), f"ROUND({{0}}, {scale})", f"my_round({{0}}, {scale})", one)
            case 3:
                return call(
                    dec(2),
                    "CAST({0} AS DECIMAL(12,2))",
                    "my_dec({0}, 2)",
                    self.value(random.choice((INT, dec(2))), depth),
                )
            case 4:
                return same(one.type, "ABS({0})", one)
            case _:
                other = self.leaf(dec(2))
                type = wider(one.type, other.type)
                name = random.choice(("GREATEST", "LEAST"))
                judged = ("max" if name == "GREATEST" else "min") + "({0}, {1})"
                return call(type, name + "({0}, {1})", exact(type, judged), one, other)

    def _double(self, depth: int) -> Term:
        random = self.random
        if random.random() < 0.7:
            result = arithmetic(random.choice("+-*"), self.value(DBL, min(depth, 1)), self.leaf(INT))
            return Term(DBL, result.text, result.judged, result.arguments)
        return same(DBL, "ABS({0})", self.value(DBL, depth))

    def _text(self, depth: int) -> Term:
        random = self.random
        if random.random() < 0.25 and any(term.type.kind is Kind.JSON for term in self.scope):
            path, document = random.choice(_PATHS), self.value(JSON, depth)
            text, judged = random.choice(
                (
                    (
                        f"JSON_UNQUOTE(JSON_EXTRACT({{0}}, '{path}'))",
                        f"my_json_unquote(my_json_extract({{0}}, '{path}'))",
                    ),
                    ("JSON_TYPE({0})", "my_json_type({0})"),
                )
            )
            return call(TXT, text, judged, document)
        one = self.value(TXT, depth)
        match random.randrange(10):
            case 0:
                return call(TXT, "CONCAT({0}, {1})", "({0} || {1})", one, self.leaf(TXT))
            case 1:
                number = as_text(self.leaf(random.choice((INT, dec(2), DATE, TIME))))
                return call(TXT, "CONCAT({0}, '-', {1})", "({0} || '-' || {1})", one, number)
            case 2:
                name = random.choice(("UPPER", "LOWER"))
                return call(TXT, name + "({0})", name + "(replace({0}, 'é', 'e'))", self._ascii(one))
            case 3:
                start, length = random.choice((1, 2, -1, 0)), random.choice((1, 2))
                arguments = f"({{0}}, {start}, {length})"
                return call(TXT, "SUBSTRING" + arguments, "my_substring" + arguments, one)
            case 4:
                name, length = random.choice(("LEFT", "RIGHT")), random.choice((0, 1, 2))
                return call(TXT, f"{name}({{0}}, {length})", f"my_{name.lower()}({{0}}, {length})", one)
            case 5:
                return call(TXT, "TRIM(CONCAT(' ', {0}, '  '))", "trim(' ' || {0} || '  ')", one)
            case 6:
                if random.random() < 0.3:
                    arguments = f"({{0}}, '{random.choice(_REGULAR)}', '<$1>')"
                    return call(TXT, "REGEXP_REPLACE" + arguments, "my_regexp_replace" + arguments, one)
                return call(TXT, "REPLACE({0}, 'a', 'bb')", "my_replace({0}, 'a', 'bb')", one)
            case 7:
                return call(TXT, "LPAD({0}, 3, '*')", "my_lpad({0}, 3, '*')", one)
            case 8:
                number = as_text(self.value(random.choice((INT, dec(2))), 0))
                return call(TXT, "CAST({0} AS CHAR)", "{0}", number)
            case _:
                form = random.choice(("%Y-%m", "%d.%m.%Y", "%y/%m/%d"))
                return call(TXT, f"DATE_FORMAT({{0}}, '{form}')", f"my_date_format({{0}}, '{form}')", self.leaf(DATE))

    def _ascii(self, term: Term) -> Term:
        """UPPER and LOWER beyond ASCII are no subject of this campaign: SQLite knows only ASCII."""
        return call(TXT, "REPLACE({0}, 'é', 'e')", "{0}", term)

    def _date(self, depth: int) -> Term:
        random = self.random
        one = self.value(DATE, min(depth, 0))
        if random.random() < 0.2:
            return call(DATE, "LAST_DAY({0})", "my_last_day({0})", one)
        if random.random() < 0.2:
            form = random.choice(_WHOLE_DAYS)
            return call(DATE, f"STR_TO_DATE(DATE_FORMAT({{0}}, '{form}'), '{form}')", "{0}", one)
        count, unit = random.choice((1, 2, 30)), random.choice(("DAY", "MONTH", "YEAR"))
        text, sign = random.choice(
            ((f"DATE_ADD({{0}}, INTERVAL {count} {unit})", 1), (f"DATE_SUB({{0}}, INTERVAL {count} {unit})", -1),
             (f"({{0}} + INTERVAL {count} {unit})", 1))
        )  # fmt: skip
        return call(DATE, text, f"my_date_add({{0}}, {sign * count}, '{unit}')", one)

    def _time(self, depth: int) -> Term:
        random = self.random
        one, two = self.value(TIME, min(depth, 0)), self.leaf(TIME)
        match random.randrange(5):
            case 0:
                return call(TIME, "SEC_TO_TIME({0})", "my_clipped({0})", self.value(INT, min(depth, 0)))
            case 1:
                return call(TIME, "ADDTIME({0}, {1})", "my_clipped({0} + {1})", one, two)
            case 2:
                return call(TIME, "SUBTIME({0}, {1})", "my_clipped({0} - {1})", one, two)
            case 3:
                return call(TIME, "TIMEDIFF({0}, {1})", "my_clipped({0} - {1})", one, two)
            case _:
                return call(TIME, "CAST(CONCAT({0}) AS TIME)", "{0}", one)

    # --- conditions -----------------------------------------------------------------------------------------------

    def boolean(self, depth: int = 2) -> Term:
        """A condition: 1, 0 or NULL."""
        random = self.random
        if depth > 0 and random.random() < 0.35:
            one, two = self.boolean(depth - 1), self.boolean(depth - 1)
            match random.randrange(4):
                case 0:
                    return same(INT, "({0} AND {1})", one, two)
                case 1:
                    return same(INT, "({0} OR {1})", one, two)
                case 2:
                    return same(INT, "(NOT {0})", one)
                case _:
                    return call(INT, "({0} XOR {1})", "(({0}) <> ({1}))", one, two)
        type = self.any_type()
        one = self.value(type, depth - 1)
        if type.kind is Kind.JSON and random.random() < 0.7:
            return self.comparison(one, self.value(JSON, depth - 1))
        match random.randrange(9):
            case 0:
                return same(INT, random.choice(("({0} IS NULL)", "({0} IS NOT NULL)")), one)
            case 1 if type.kind is not Kind.JSON:
                return self._member(one)
            case 2 if type.kind is not Kind.JSON:
                text = random.choice(("({0} BETWEEN {1} AND {2})", "({0} NOT BETWEEN {1} AND {2})"))
                return same(INT, text, one, self.leaf(type), self.leaf(type))
            case 3:
                pattern = random.choice(_PATTERNS)
                judged = f"my_like({{0}}, '{pattern}')"
                if random.random() < 0.3:
                    return call(INT, f"({{0}} NOT LIKE '{pattern}')", f"(NOT {judged})", self.value(TXT, depth - 1))
                return call(INT, f"({{0}} LIKE '{pattern}')", judged, self.value(TXT, depth - 1))
            case 4 if not self.plain:
                operator = random.choice(("=", "<", ">"))
                return same(INT, f"({{0}} {operator} {{1}})", *as_numbers(self.leaf(TXT), self.leaf(INT)))
            case 5 if not self.plain and type.kind is not Kind.JSON:
                other = self.any_type()
                other = INT if other.kind is Kind.JSON else other
                operator = random.choice(("<", "<=", ">", ">=", "=", "<>"))
                parts = one, self.leaf(other), self.leaf(type), self.leaf(other)
                rows = f"({{0}}, {{1}}) {operator} ({{2}}, {{3}})"
                return call(INT, f"(ROW{rows.replace(f'{operator} ', f'{operator} ROW')})", f"({rows})", *parts)
            case _:
                return self.comparison(one, self.value(self._comparable(type), depth - 1))

    def comparison(self, one: Term, two: Term, operator: str | None = None) -> Term:
        operator = operator or self.random.choice(_COMPARISONS)
        judged = "IS" if operator == "<=>" else operator
        if one.type.kind is Kind.JSON:
            one, two = by_order(one), by_order(two)
        return call(INT, f"({{0}} {operator} {{1}})", f"({{0}} {judged} {{1}})", one, two)

    def _comparable(self, type: Type) -> Type:
        return self.random.choice((INT, dec(2))) if type.kind in (Kind.INT, Kind.DEC) else type

    def _member(self, one: Term) -> Term:
        values = [constant(draw(self.random, one.type), one.type) for _ in range(self.random.randint(1, 3))]
        if self.random.random() < 0.15:
            values.append(constant(None, one.type))
        slots = ", ".join(f"{{{i + 1}}}" for i in range(len(values)))
        operator = "IN" if self.random.random() < 0.7 else "NOT IN"
        return same(INT, f"({{0}} {operator} ({slots}))", one, *values)

    def output(self) -> Term:
        """What a SELECT may show: a column, an expression, or a quotient or a multiple of one, as they are."""
        random = self.random
        if self.scope and random.random() < 0.6:
            return random.choice(self.scope)
        if not self.plain and random.random() < 0.15:
            left = self.value(random.choice((INT, INT, dec(2), DBL)), 1)
            right = self.value(INT, 0)
            if left.type.kind is not Kind.DBL and random.random() < 0.4:
                return multiple(left, right, self.leaf(INT))
            return quotient(left, right)
        return self.value(self.any_type(), 2)
