"""Random aggregation: GROUP BY columns, expressions and positions; every aggregate function; HAVING."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from random import Random

from tests.campaign.expressions import Expressions
from tests.campaign.kinds import DBL, INT, JSON, TXT, Kind, dec
from tests.campaign.queries import Output, Select, Source
from tests.campaign.terms import Parameter, Term, by_order, constant, exact, placeholder, same


@dataclass
class Aggregates:
    random: Random
    expressions: Expressions
    parameters: count[int] | None

    def select(self, sources: tuple[Source, ...], where: tuple[Term, ...]) -> Select:
        random = self.random
        group = tuple(self._group_term() for _ in range(random.choices((0, 1, 2), (2, 7, 3))[0]))
        calls = [self.call() for _ in range(random.choices((0, 1, 2, 3), (1, 6, 4, 1))[0])]
        if not calls and not group:
            calls = [self.call()]
        shown: list[Term] = [*(term for term in group if random.random() < 0.9), *calls]
        if calls and random.random() < 0.15:
            shown.append(self._composed(calls))
        if not shown:
            shown = [group[0]]
        outputs = tuple(self._output(term, i) for i, term in enumerate(shown))
        having = self._having(group, calls) if random.random() < 0.25 else None
        can_roll = having is None and len(set(group)) == len(group) > 0
        can_roll = can_roll and not any(term.type.members for term in group)  # Is NULL there a member, still?
        return Select(
            outputs,
            sources,
            where,
            group,
            rollup=can_roll and random.random() < 0.15,
            group_numbers=random.random() < 0.2,
            having=having,
        )

    def _output(self, term: Term, position: int) -> Output:
        return Output(term, f"x{position}")

    def _group_term(self) -> Term:
        columns = [term for term in self.expressions.scope if term.type.kind is not Kind.DBL]
        if columns and self.random.random() < 0.8:
            return self.random.choice(columns)
        while True:
            term = self.expressions.value(self.random.choice((INT, TXT)), 1)
            if any(part.column is not None for part in term.walk()):
                return term

    def _composed(self, calls: Sequence[Term]) -> Term:
        """An expression over an aggregate."""
        numbers = [term for term in calls if term.type.kind is Kind.INT]
        if numbers:
            return same(INT, "({0} + 1)", self.random.choice(numbers))
        term = self.random.choice(list(calls))
        return same(INT, "({0} IS NULL)", term)

    def _having(self, group: Sequence[Term], calls: Sequence[Term]) -> Term:
        random = self.random
        numbers = [term for term in calls if term.type.kind in (Kind.INT, Kind.DEC)]
        target = random.choice(numbers) if numbers else _call(INT, "COUNT(*)")
        bound: Term = constant(random.choice((0, 1, 2, 3)), INT)
        if self.parameters is not None and random.random() < 0.06:
            bound = placeholder(Parameter(next(self.parameters), ">", INT))
            return same(INT, "({0} > {1})", target, bound)
        condition = self.expressions.comparison(target, bound, random.choice((">", ">=", "<", "<>", "=")))
        columns = [term for term in group if term.column is not None]
        if columns and random.random() < 0.25:
            return same(INT, "({0} OR ({1} IS NULL))", condition, random.choice(columns))
        return condition

    def call(self) -> Term:
        """One aggregate function over a column or an expression."""
        random = self.random
        kind = random.choices(
            ("rows", "count", "distinct", "sum", "avg", "min", "max", "concat", "array", "spread", "bits"),
            (5, 3, 3, 5, 3, 3, 3, 2, 2, 2, 2),
        )[0]
        if kind == "rows":
            return _call(INT, "COUNT(*)")
        if kind == "concat":
            return self._concatenation()
        if kind == "array":
            return self._array()
        if kind == "spread":
            function = random.choice(("VAR_POP", "VAR_SAMP", "STDDEV_POP", "STDDEV_SAMP"))
            return Term(DBL, function + "({0})", f"my_{function.lower()}({{0}})", (self._number(),), aggregate=True)
        if kind == "bits":
            # The judge's integers have a sign: it compares the lower bits. Of no row at all SQLite does not ask it.
            function = random.choice(("BIT_AND", "BIT_OR", "BIT_XOR"))
            argument = self.expressions.value(INT, 1)
            nothing = 65535 if function == "BIT_AND" else 0
            judged = f"COALESCE(my_{function.lower()}({{0}}), {nothing})"
            return Term(INT, f"({function}({{0}}) & 65535)", judged, (argument,), aggregate=True)
        distinct = "DISTINCT " if random.random() < 0.12 else ""
        if kind in ("sum", "avg"):
            argument = self._number()
            return _sum(argument, distinct) if kind == "sum" else _average(argument, distinct)
        argument = self._argument()
        if kind == "count":
            return _call(INT, "COUNT({0})", argument)
        if kind == "distinct":
            return _call(INT, "COUNT(DISTINCT {0})", argument)
        if argument.type.kind is Kind.JSON:
            judged = f"my_json_of_key({kind.upper()}({{0}}))"
            return Term(JSON, kind.upper() + "({0})", judged, (by_order(argument),), aggregate=True)
        return _call(argument.type.plain, kind.upper() + "({0})", argument)

    def _argument(self) -> Term:
        if self.expressions.scope and self.random.random() < 0.7:
            return self.random.choice(self.expressions.scope)
        return self.expressions.value(self.expressions.any_type(), 1)

    def _number(self) -> Term:
        columns = [term for term in self.expressions.scope if term.type.numeric]
        if columns and self.random.random() < 0.7:
            return self.random.choice(columns)
        return self.expressions.value(self.random.choice((INT, INT, dec(2), DBL)), 1)

    def _concatenation(self) -> Term:
        """GROUP_CONCAT, always ordered: MySQL leaves the order open without it."""
        random = self.random
        argument = self.expressions.leaf(random.choice((TXT, TXT, INT)))
        if argument.constant:
            return _call(INT, "COUNT(*)")
        distinct = random.random() < 0.3
        columns = [term for term in self.expressions.scope if term.type.kind is not Kind.DBL]
        alone = distinct or not columns or argument.type.members
        order = argument if alone or random.random() < 0.6 else random.choice(columns)
        down = random.random() < 0.3
        direction = " DESC" if down else ""
        keys = "{0}" + direction if order == argument else "{1}" + direction + ", {0}"
        separator = random.choice((",", ",", "; ", ""))
        written = "" if separator == "," else f" SEPARATOR '{separator}'"
        text = f"GROUP_CONCAT({'DISTINCT ' if distinct else ''}{{0}} ORDER BY {keys}{written})"
        judged = f"my_concat{'_distinct' if distinct else ''}({{0}}, {{1}}, '{separator}', {int(down)})"
        return Term(TXT, text, judged, (argument, by_order(order)), aggregate=True)

    def _array(self) -> Term:
        """JSON_ARRAYAGG with our order; judges write more or fewer spaces, so there are none."""
        random = self.random
        argument = self.expressions.leaf(random.choice((TXT, INT)))
        if argument.constant:
            return _call(INT, "COUNT(*)")
        columns = [term for term in self.expressions.scope if term.type.kind is not Kind.DBL]
        alone = not columns or argument.type.members
        order = argument if alone or random.random() < 0.5 else random.choice(columns)
        down = random.random() < 0.3
        direction = " DESC" if down else ""
        keys = "{0}" + direction if order == argument else "{1}" + direction + ", {0}"
        text = f"REPLACE(JSON_ARRAYAGG({{0}} ORDER BY {keys}), ' ', '')"
        judged = f"replace(my_array({{0}}, {{1}}, {int(down)}), ' ', '')"
        return Term(TXT, text, judged, (argument, by_order(order)), aggregate=True)


def _call(type: object, text: str, *arguments: Term) -> Term:
    return Term(type, text, text, arguments, aggregate=True)  # type: ignore[arg-type]


def _sum(argument: Term, distinct: str) -> Term:
    text = f"SUM({distinct}{{0}})"
    return Term(argument.type, text, exact(argument.type, text), (argument,), aggregate=True)


def _average(argument: Term, distinct: str) -> Term:
    text = f"AVG({distinct}{{0}})"
    if argument.type.kind is Kind.DBL:
        return Term(DBL, text, text, (argument,), aggregate=True)
    type = dec(argument.type.scale + 4)
    name = "my_avg_distinct" if distinct else "my_avg"
    return Term(type, text, f"{name}({{0}}, {type.scale})", (argument,), aggregate=True)
