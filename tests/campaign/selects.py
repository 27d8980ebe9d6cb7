"""Random SELECT statements: joins, subqueries, aggregation, DISTINCT, order, LIMIT, parameters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from random import Random

from tests.campaign.aggregates import Aggregates
from tests.campaign.expressions import Expressions, drawn_constant, moment
from tests.campaign.kinds import INT, Kind, Type
from tests.campaign.queries import Compound, Cut, OrderKey, Output, Query, Select, SoFar, Source, Stored, View
from tests.campaign.rendering import mysql, nested, parameters
from tests.campaign.schema import Table
from tests.campaign.terms import (
    Parameter,
    Term,
    arithmetic,
    as_numbers,
    both,
    by_order,
    call,
    placeholder,
    same,
    unnamed,
)


@dataclass
class Queries:
    """Draws queries over ``tables`` and ``views`` (those that another query may read)."""

    random: Random
    tables: Sequence[Table]
    views: Sequence[View] = ()
    parameters: count[int] | None = None
    """Where parameter numbers come from; None: no parameters."""
    paged: tuple[list[Term], bool] = ([], False)
    """The columns of a page's range, and whether it goes down."""

    def __post_init__(self) -> None:
        self._aliases = count()
        self._ctes = count()

    # --- whole queries --------------------------------------------------------------------------------------------

    def query(self) -> Query:
        """A view's whole query."""
        if self.random.random() < 0.14:
            union = self.union()
            return self._ordered_union(self._asked(union) if self.parameters is not None else union)
        if self.random.random() < 0.15:
            return self._ordered(self._page())
        return self._ordered(self.select(depth=2))

    def union(self, depth: int = 1) -> Compound:
        """Branches of one list of types; the first names the outputs. No parameters inside."""
        first = self._unordered(depth)
        while first.star:
            first = self._unordered(depth)
        first = replace(first, outputs=tuple(replace(o, term=unnamed(o.term)) for o in first.outputs))
        types = [output.term.type for output in first.outputs]
        names = [output.name for output in first.outputs]
        branches = [first, *(self._branch(types, names) for _ in range(self.random.choice((1, 1, 2))))]
        words = [self.random.choice(("UNION", "UNION ALL", "UNION ALL", "EXCEPT")) for _ in branches[1:]]
        if self.random.random() < 0.2:
            words[0] = "INTERSECT"
        return Compound(tuple(branches), tuple(words))

    def _asked(self, union: Compound) -> Compound:
        """With parameters of its own in some of its branches, as they are read only after all branches are together."""
        random, plain = self.random, [each for each in union.branches if each.group is None and not each.distinct]
        if len(plain) < len(union.branches) or random.random() < 0.4:
            return union
        branches = []
        for branch in union.branches:
            columns = [term for source in branch.sources for term in source.columns()]
            asks = random.random() < 0.6
            conditions = self._parameter_conditions(columns) if asks else []
            branches.append(replace(branch, where=(*branch.where, *conditions)))
        self.paged = [], False
        words = (random.choice(("UNION", "UNION ALL")),) * len(union.operations)
        return replace(union, branches=tuple(branches), operations=words)

    def _unordered(self, depth: int) -> Select:
        saved, self.parameters = self.parameters, None
        select = self.select(depth)
        self.parameters = saved
        return select

    def _branch(self, types: list[Type], names: list[str]) -> Select:
        sources, where = self._from(0)
        expressions = self._expressions(sources)
        shown = []
        for type in types:
            term = expressions.value(type, 1)
            while term.type != type:
                term = unnamed(expressions.leaf(type))
                term = term if self.random.random() < 0.5 else _cast_to(term, type)
            shown.append(unnamed(term))
        if self.random.random() < 0.4:
            where = (*where, expressions.boolean(1))
        outputs = tuple(Output(term, name) for term, name in zip(shown, names, strict=True))
        return Select(outputs, sources, where)

    def select(self, depth: int) -> Select:
        """A SELECT without ORDER BY and LIMIT."""
        random = self.random
        joins = random.choices((0, 1, 2, 3), (8, 7, 2, 1))[0] if depth else random.choice((0, 0, 1))
        sources, where = self._from(joins, depth)
        expressions = self._expressions(sources)
        where = (*where, *(expressions.boolean() for _ in range(random.choices((0, 1, 2), (8, 4, 1))[0])))
        if depth == 2 and random.random() < 0.15:
            where = (*where, self._subquery_condition(expressions))
        grouped, distinct = random.random() < 0.38, random.random() < 0.18
        columns = list(expressions.scope)
        is_asked = self.parameters is not None and random.random() < 0.75
        if is_asked:
            where = (*where, *self._parameter_conditions(columns))
        if grouped:
            return Aggregates(random, expressions, self.parameters).select(sources, where)
        if len(sources) == 1 and random.random() < 0.12:
            outputs = tuple(Output(term, term.column[1], aliased=False) for term in columns if term.column)
            return Select(outputs, sources, where, star=True)
        shown = [expressions.output() for _ in range(random.choices((1, 2, 3, 4), (2, 4, 3, 1))[0])]
        if not is_asked and random.random() < 0.2:  # The judge puts a parameter around its query.
            return Select(self.named([*shown, *self._windows(columns)]), sources, where, distinct=distinct)
        numbers = [term for term in columns if term.type.kind is Kind.INT]
        if self.parameters is not None and numbers and random.random() < 0.06:
            shown.append(
                arithmetic("+", random.choice(numbers), placeholder(Parameter(next(self.parameters), "=", INT)))
            )
        return Select(self.named(shown), sources, where, distinct=distinct)

    def _page(self) -> Select:
        """By an index of the first source."""
        sources, where = self._from(self.random.choice((0, 0, 1)))
        expressions = self._expressions(sources)
        where = (*where, *self._range_of_index(sources[0]))
        if self.random.random() < 0.4:
            where = (*where, expressions.boolean(1))
        return Select(self.named([expressions.output() for _ in range(2)]), sources, where)

    def _windows(self, columns: Sequence[Term]) -> list[Term]:
        """Window functions whose values do not depend on how ties are broken."""
        random = self.random
        sortable = [term for term in columns if term.type.kind is not Kind.DBL]
        numbers = [term for term in sortable if term.type.kind is Kind.INT]
        if not sortable or not numbers:
            return []
        found = []
        for _ in range(random.choice((1, 1, 2))):
            argument, value = random.choice(numbers), random.choice(sortable)
            by = random.choice(("", "", "PARTITION BY {1} "))
            order = "ORDER BY {2}" + random.choice(("", " DESC"))
            keys = [random.choice(sortable), random.choice(sortable)]
            if len(sortable) == len(columns) and random.random() < 0.4:  # All columns leave no ties but equal rows.
                keys = [keys[0], *random.sample(sortable, len(sortable))]
                order += "".join(f", {{{at}}}" for at in range(3, len(keys) + 1))
                frame = random.choice(("", "ROWS 2 PRECEDING", "ROWS BETWEEN 1 PRECEDING AND 2 FOLLOWING"))
                function, value = random.choice(
                    [(f"{each}({{0}}) OVER ({by}{order} {frame})", argument) for each in ("SUM", "MIN", "MAX", "COUNT")]
                    + [(f"ROW_NUMBER() OVER ({by}{order})", argument)]
                    + [(f"{each}({{0}}) OVER ({by}{order})", value) for each in ("LAG", "LEAD", "FIRST_VALUE")]
                )
            else:
                frame = random.choice(("", "RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING"))
                over = random.choice((f"({by}{order} {frame})", f"({by})"))
                function = random.choice(("SUM({0})", "MIN({0})", "MAX({0})", "COUNT({0})", "COUNT(*)"))
                function, value = random.choice(
                    ((f"{function} OVER {over}", argument), (f"RANK() OVER ({by}{order})", argument))
                )
            type = INT if value is argument else value.type.plain
            found.append(Term(type, function, function, (value, *map(by_order, keys))))
        return found

    def named(self, shown: Sequence[Term]) -> tuple[Output, ...]:
        """Aliases, or a bare column's own name where it is free."""
        taken: set[str] = set()
        outputs = []
        for i, term in enumerate(shown):
            bare = term.column[1] if term.column is not None else ""
            if bare and bare not in taken and (bare[0] != "x" or bare == f"x{i}") and self.random.random() < 0.5:
                name, aliased = bare, False
            else:
                name, aliased = f"x{i}", True
            taken.add(name)
            outputs.append(Output(term, name, aliased))
        return tuple(outputs)

    def _expressions(self, sources: Sequence[Source]) -> Expressions:
        return Expressions(self.random, [term for source in sources for term in source.columns()])

    # --- FROM -----------------------------------------------------------------------------------------------------

    def _from(self, joins: int, depth: int = 0) -> tuple[tuple[Source, ...], tuple[Term, ...]]:
        """The sources, and what a comma join leaves to WHERE."""
        random = self.random
        sources = [self._source(depth)]
        where: list[Term] = []
        commas = joins > 0 and random.random() < 0.15
        for _ in range(joins):
            source = self._source(depth) if random.random() < 0.8 else self._again(sources)
            kind = "," if commas else random.choices(("JOIN", "LEFT JOIN", "RIGHT JOIN", "CROSS JOIN"), (6, 5, 2, 1))[0]
            if kind in (",", "CROSS JOIN"):
                if kind == "," and random.random() < 0.85:
                    where.append(self._join_condition(sources, source))
                sources.append(replace(source, join=kind))
            else:
                sources.append(replace(source, join=kind, on=self._join_condition(sources, source)))
        return tuple(sources), tuple(where)

    def _source(self, depth: int) -> Source:
        random = self.random
        alias = f"t{next(self._aliases)}"
        roll = random.random()
        if self.views and roll < 0.3:
            return Source(alias, random.choice(self.views))
        if depth and roll < 0.35 and (recursion := self._recursion()) is not None:
            return Source(alias, recursion)
        if depth and roll < 0.42:
            inner = self._inner(depth - 1)
            cte = f"q{next(self._ctes)}" if random.random() < 0.4 else None
            return Source(alias, inner, cte=cte)
        return Source(alias, stored(random.choice(self.tables)))

    def _recursion(self) -> Compound | None:
        """Pairs of whole numbers, and those that a join leads to from there: of a few values, in circles."""
        random, name = self.random, f"r{next(self._ctes)}"
        first, further = self._source(0), self._source(0)
        begun, led = ([term for term in each.columns() if term.type == INT] for each in (first, further))
        if not begun or not led:
            return None
        names = ("a", "b")
        outputs = tuple(Output(random.choice(begun), each) for each in names)
        so_far = Source(f"t{next(self._aliases)}", SoFar(name, tuple((each, INT) for each in names)))
        own = so_far.columns()
        condition = same(INT, "({0} = {1})", random.choice(own), random.choice(led))
        kept = [own[0] if random.random() < 0.6 else random.choice(led), random.choice([*own, *led, *led])]
        again = Select(
            tuple(Output(term, each) for term, each in zip(kept, names, strict=True)),
            (so_far, replace(further, join="JOIN", on=condition)),
        )
        return Compound((Select(outputs, (first,)), again), ("UNION",), recursive=name)

    def _again(self, sources: Sequence[Source]) -> Source:
        """A self-join."""
        source = self.random.choice(sources)
        return Source(f"t{next(self._aliases)}", source.relation, cte=source.cte)

    def _inner(self, depth: int) -> Query:
        """A query in FROM: no parameters; a LIMIT only under an order that leaves no ties."""
        if self.random.random() < 0.2:
            return self.union(depth)
        select = self._unordered(depth)
        if self.random.random() < 0.12 and not select.star:
            return self.total_order(select)
        return select

    def total_order(self, query: Select) -> Select:
        keys = [OrderKey(o.term, self.random.random() < 0.4, i) for i, o in enumerate(query.outputs)]
        self.random.shuffle(keys)
        return replace(
            query, order=tuple(keys), cut=Cut(self.random.choice((1, 2, 3, 5)), self.random.choice((0, 0, 1)))
        )

    def _join_condition(self, sources: Sequence[Source], new: Source) -> Term:
        """One or two equalities between columns of one kind, now and then a range or something more."""
        random = self.random
        left = [term for source in sources for term in source.columns()]
        pairs = [(a, b) for a in left for b in new.columns() if a.type.kind == b.type.kind and a.type.kind != Kind.DBL]
        parts: list[Term] = []
        others = [(a, b) for a in left for b in new.columns() if _meets(a, b)]
        if others and random.random() < 0.06:
            parts.append(same(INT, "({0} = {1})", *as_numbers(*random.choice(others))))
        elif pairs:
            for one, two in random.sample(pairs, min(len(pairs), random.choices((1, 2), (5, 1))[0])):
                parts.append(same(INT, "({0} = {1})", *((one, two) if random.random() < 0.7 else (two, one))))
        expressions = Expressions(random, [*left, *new.columns()])
        if pairs and random.random() < 0.15:  # In the place of the equalities, or beside them.
            ranges = [expressions.comparison(*random.choice(pairs), random.choice(("<", "<=", ">", ">=")))]
            parts = [*parts, *ranges] if random.random() < 0.5 else ranges
        if not parts or random.random() < 0.15:
            parts.append(expressions.boolean(1))
        condition = both(parts)
        assert condition is not None
        return condition

    # --- WHERE ----------------------------------------------------------------------------------------------------

    def _subquery_condition(self, expressions: Expressions) -> Term:
        random = self.random
        inner = Queries(random, self.tables, self.views)
        inner._aliases = self._aliases
        sources, where = inner._from(0)
        inside = inner._expressions(sources)
        if random.random() < 0.6:
            where = (*where, inside.boolean(1))
        if random.random() < 0.5:
            found = self._correlated(expressions, inside, sources, where)
            return same(INT, "({0} OR {1})", found, expressions.boolean(1)) if random.random() < 0.3 else found
        if random.random() < 0.3:
            name = random.choice(("EXISTS", "NOT EXISTS"))
            query = Select((Output(random.choice(inside.scope), "x0"),), sources, where)
            return Term(INT, f"({name} ({mysql(query)}))", f"({name} ({nested(query)}))", nested=(query,))
        outer = random.choice(expressions.scope)
        candidates = [term for term in inside.scope if term.type.kind == outer.type.kind]
        others = [term for term in inside.scope if _meets(outer, term)]
        if others and random.random() < 0.3:
            outer, term = as_numbers(outer, random.choice(others))
        else:
            term = random.choice(candidates) if candidates else inside.leaf(outer.type)
        query = Select((Output(term, "x0"),), sources, where)
        name = random.choice(("IN", "IN", "NOT IN"))
        text, judged = (f"({{0}} {name} ({_inset(each)}))" for each in (mysql(query), nested(query)))
        return Term(INT, text, judged, (outer,), nested=(query,))

    def _correlated(
        self, expressions: Expressions, inside: Expressions, sources: tuple[Source, ...], where: tuple[Term, ...]
    ) -> Term:
        """A subquery whose condition compares a column of its own with one of the query around: ``{0}`` in its text."""
        random = self.random
        outer = random.choice(expressions.scope)
        own = [term for term in inside.scope if term.type == outer.type]
        if own:
            comparison = random.choices(("=", "<", "<>"), (6, 1, 1))[0] if outer.type.kind is not Kind.JSON else "="
            around = Term(outer.type, "{0}", "{0}")
            where = (*where, same(INT, f"({{0}} {comparison} {{1}})", random.choice(own), around))
        kind = random.choice(("EXISTS", "NOT EXISTS", "COUNT", "IN", "NOT IN"))
        if kind == "COUNT":
            query = Select((Output(Term(INT, "COUNT(*)", "COUNT(*)", aggregate=True), "x0"),), sources, where)
            test = f" {random.choice(('=', '>'))} {random.randrange(3)}"
            text, judged = (f"(({_inset(each)}){test})" for each in (mysql(query), nested(query)))
            return Term(INT, text, judged, (outer,), nested=(query,))
        query = Select((Output(random.choice(own or list(inside.scope)), "x0"),), sources, where)
        left = f"{{0}} {kind}" if own and kind.endswith("IN") else "EXISTS"
        text, judged = (f"({left} ({_inset(each)}))" for each in (mysql(query), nested(query)))
        return Term(INT, text, judged, (outer,), nested=(query,))

    def _parameter_conditions(self, columns: list[Term]) -> list[Term]:
        random = self.random
        found = []
        columns = [column for column in columns if column.type.kind is not Kind.JSON]
        exact = [column for column in columns if column.type.kind is not Kind.DBL]
        if len(exact) > 1 and random.random() < 0.12:
            found.append(self._row_range(exact))
        for _ in range(random.choices((1, 2, 3), (6, 4, 2))[0] - len(found) if columns else 0):
            target = random.choice(columns)
            kind = random.choices(("=", "in", "range", "between"), (10, 3, 2, 1))[0]
            if target.type.kind is Kind.DBL and kind in ("=", "in"):
                continue
            condition = self._constrained(target, kind)
            found.append(condition if random.random() < 0.8 else self._late(condition, columns))
        return found

    def _row_range(self, columns: list[Term]) -> Term:
        """A page by its last row: of two or three columns, as one comparison or written out."""
        assert self.parameters is not None
        random = self.random
        targets = random.sample(columns, min(len(columns), random.choice((2, 2, 3))))
        kind = random.choice(("<", "<=", ">", ">="))
        self.paged = targets, kind in ("<", "<=")
        if random.random() < 0.5:
            given = [placeholder(Parameter(next(self.parameters), kind, target.type)) for target in targets]
            count = len(targets)
            ours, theirs = (", ".join(f"{{{at + n}}}" for n in range(count)) for at in (0, count))
            return same(INT, f"(({ours}) {kind} ({theirs}))", *targets, *given)
        condition = self._compared_with(targets[-1], kind)
        for target in reversed(targets[:-1]):
            equal, strict = self._compared_with(target, "="), self._compared_with(target, kind[0])
            condition = same(INT, "({0} OR ({1} AND {2}))", strict, equal, condition)
        return condition

    def _range_of_index(self, source: Source) -> list[Term]:
        """Values for first columns of an index, and its order for the page; perhaps the order alone."""
        random, name = self.random, source.relation.name if isinstance(source.relation, Stored) else ""
        for table in (table for table in self.tables if table.name == name):
            keys = [key + table.primary_key for key in (table.primary_key, *table.unique, *table.indexes)]
            known = {
                term.column[1]: term for term in source.columns() if term.column and term.type.kind is not Kind.DBL
            }
            targets = [known[at] for at in dict.fromkeys(random.choice(keys)) if at in known]
            found, kind = [], random.choice(("<", "<=", ">", ">="))
            for number, target in enumerate(targets[:-1]):
                if random.random() < 0.3 and number == len(found):
                    found.append(same(INT, "({0} = {1})", target, self._value_of(target, "=")))
            targets = targets[len(found) :]
            self.paged = targets[: random.choice((1, 2, 9))], kind in ("<", "<=")
            if targets and random.random() < 0.75:
                found.append(same(INT, f"({{0}} {kind} {{1}})", targets[0], self._value_of(targets[0], kind)))
            return found
        return []

    def _value_of(self, target: Term, kind: str) -> Term:
        if self.parameters is not None and self.random.random() < 0.5:
            return placeholder(Parameter(next(self.parameters), kind, target.type))
        return drawn_constant(self.random, target.type)

    def _compared_with(self, target: Term, kind: str) -> Term:
        assert self.parameters is not None
        return same(
            INT, f"({{0}} {kind} {{1}})", target, placeholder(Parameter(next(self.parameters), kind, target.type))
        )

    def _late(self, condition: Term, columns: list[Term]) -> Term:
        """The condition where no key can stand for it: denied, or beside another."""
        random = self.random
        if random.random() < 0.4:
            return same(INT, "(NOT {0})", condition)
        target = random.choice(columns)
        kind = "range" if target.type.kind is Kind.DBL else random.choice(("=", "in", "range"))
        other = self._constrained(target, kind) if random.random() < 0.6 else same(INT, "({0} IS NULL)", target)
        return same(INT, "({0} OR {1})", condition, other)

    def _constrained(self, target: Term, kind: str) -> Term:
        assert self.parameters is not None
        if kind == "between":
            low = Parameter(next(self.parameters), ">=", target.type)
            high = Parameter(next(self.parameters), "<=", target.type)
            return same(INT, "({0} BETWEEN {1} AND {2})", target, placeholder(low), placeholder(high))
        if kind == "range":
            kind = self.random.choice(("<", "<=", ">", ">="))
        if kind != "in" and target.type.kind in (Kind.DATE, Kind.INT) and self.random.random() < 0.3:
            return same(INT, f"({{0}} {kind} {{1}})", target, moment(self.random, target.type))
        term = placeholder(Parameter(next(self.parameters), kind, target.type))
        if kind == "in":
            return call(INT, "{0} IN ({1})", "{0} IN (SELECT value FROM json_each({1}))", target, term)
        return same(INT, f"({{0}} {kind} {{1}})", target, term)

    # --- ORDER BY, LIMIT ------------------------------------------------------------------------------------------

    def _ordered(self, select: Select) -> Query:
        random = self.random
        (paged, down), self.paged = self.paged, ([], False)
        if paged and not select.distinct and select.group is None and random.random() < 0.7:
            down = down if random.random() < 0.8 else not down
            keys = [OrderKey(target, down if random.random() < 0.9 else not down) for target in paged]
            return replace(select, order=tuple(keys), cut=self._cut() if random.random() < 0.8 else Cut())
        if random.random() > 0.4:
            return replace(select, cut=self._cut()) if random.random() < 0.04 else select
        keys: list[OrderKey] = []
        for _ in range(random.choice((1, 1, 2))):
            hidden = not select.distinct and select.group is None and random.random() < 0.25
            if hidden:
                scope = [term for source in select.sources for term in source.columns()]
                scope = [term for term in scope if _is_special(term.type)] or scope
                keys.append(OrderKey(random.choice(scope), random.random() < 0.5))
            else:
                keys.append(self._output_key(select))
        return replace(select, order=tuple(keys), cut=self._cut() if random.random() < 0.5 else Cut())

    def _ordered_union(self, union: Compound) -> Query:
        if self.random.random() < 0.6:
            return union
        keys = tuple(self._output_key(union) for _ in range(self.random.choice((1, 2))))
        return replace(union, order=keys, cut=self._cut() if self.random.random() < 0.5 else Cut())

    def _output_key(self, query: Query) -> OrderKey:
        special = [at for at, output in enumerate(query.outputs) if _is_special(output.term.type)]
        if special and self.random.random() < 0.5:
            position = self.random.choice(special)
        else:
            position = self.random.randrange(len(query.outputs))
        by_number = self.random.random() < 0.3
        return OrderKey(query.outputs[position].term, self.random.random() < 0.5, position, by_number)

    def _cut(self) -> Cut:
        random = self.random
        limit: int | Parameter = random.choice((1, 2, 3, 5, 10))
        offset: int | Parameter = random.choice((0, 0, 0, 1, 2))
        if self.parameters is not None and random.random() < 0.12:
            limit = Parameter(next(self.parameters), "limit", INT)
            if offset and random.random() < 0.4:
                offset = Parameter(next(self.parameters), "offset", INT)
        return Cut(limit, offset)


def stored(table: Table) -> Stored:
    return Stored(table.name, tuple((column.name, column.type) for column in table.columns))


def _is_special(type: Type) -> bool:
    """Whether its values are sorted otherwise than they are compared, or written."""
    return bool(type.members) or type.kind is Kind.JSON


def _inset(text: str) -> str:
    """A query in a template, whose only slot is ``{0}``: braces of documents are none."""
    return re.sub(r"\{(?!0\})", "{{", re.sub(r"(?<!\{0)\}", "}}", text))


def _meets(one: Term, two: Term) -> bool:
    """Whether they are of different kinds that are compared as numbers."""
    kinds = {one.type.kind, two.type.kind}
    return len(kinds) == 2 and kinds <= {Kind.INT, Kind.DEC, Kind.TXT}


def _cast_to(term: Term, type: Type) -> Term:
    if type.kind is not Kind.DEC:
        return term
    return call(type, f"CAST({{0}} AS DECIMAL(20,{type.scale}))", f"my_dec({{0}}, {type.scale})", term)


def readable(view: View) -> bool:
    """Whether another view may read this one: no parameters, unique names, and a LIMIT only under a total order."""
    names = [output.name for output in view.query.outputs]
    cut = view.query.cut
    total = {key.position for key in view.query.order} >= set(range(len(names)))
    return not parameters(view.query) and len(set(names)) == len(names) and (cut.limit is None or total)
