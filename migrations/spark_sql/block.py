"""One SELECT: sources, WHERE, groups, HAVING, the list, ORDER BY.

A block with groups is written as two: the inner one has the group's columns ``g0`` …, the aggregates ``a0`` … and
what the group determines ``d0`` … (any of its values is it), and the outer one all that is computed from them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import assert_never

from domains.errors import HeadraceError, SqlError, Unsupported
from domains.language.expressions import Call, Constant, Expression, Field
from domains.language.functions import call
from domains.language.functions.comparands import are_alike
from domains.language.rewriting import fold
from domains.language.types import BIGINT, BOOL, DOUBLE, TEXT, Column, Kind, SqlType
from domains.plan.graph import AggregateFunction
from migrations.parse.reading import exp
from migrations.query.expressions.aggregates import Summary, aggregates_in, is_aggregate, summary
from migrations.query.expressions.parameters import is_parameterised
from migrations.query.expressions.scalar import Setting, conjuncts, scalar
from migrations.query.expressions.scope import Scope
from migrations.query.relation import read_limit, sorting_direction
from migrations.query.select import output_name, reads_dual
from migrations.spark_sql.expressions import Names
from migrations.spark_sql.functions import unsigned
from migrations.spark_sql.source import (
    CarriedParameter,
    Compile,
    FromClauseWriter,
    Term,
    WriterContext,
    WrittenQuery,
    refused,
    take_parameters,
)
from migrations.spark_sql.values import compared_with, decimal, quoted, refuse_told_apart

# Aggregates in Spark's words.

_DISTINCT = "DISTINCT "


def aggregate(summary: Summary, names: Names) -> str:
    """The aggregate over the rows of a group.

    :raises Unsupported: Spark has no way to say it.
    """
    function, argument = summary.function, summary.argument
    if argument is None:
        assert function is AggregateFunction.COUNT_ROWS, f"{function} has an argument"
        return "count(1)"
    text = names.value(argument)
    if function not in (AggregateFunction.COUNT_ROWS, AggregateFunction.COUNT):
        refuse_told_apart([argument.type])
    match function:
        case AggregateFunction.COUNT_ROWS:
            return "count(1)"
        case AggregateFunction.COUNT:
            return f"count({text})"
        case AggregateFunction.COUNT_DISTINCT:
            return f"count({_DISTINCT}{text})"
        case AggregateFunction.SUM:
            return _sum(summary, text)
        case AggregateFunction.SUM_DISTINCT:
            return _sum(summary, text, _DISTINCT)
        case AggregateFunction.AVG:
            return _mean(summary, text)
        case AggregateFunction.AVG_DISTINCT:
            return _mean(summary, text, _DISTINCT)
        case AggregateFunction.MIN:
            return f"min({text})"
        case AggregateFunction.MAX:
            return f"max({text})"
        case AggregateFunction.VAR_POP | AggregateFunction.VAR_SAMP:
            return f"{function}({names.as_type(argument, DOUBLE)})"
        case AggregateFunction.STDDEV_POP | AggregateFunction.STDDEV_SAMP:
            return f"{function}({names.as_type(argument, DOUBLE)})"
        case AggregateFunction.BIT_AND | AggregateFunction.BIT_OR | AggregateFunction.BIT_XOR:
            return _bits(summary, text)
        case AggregateFunction.GROUP_CONCAT:
            return _joined(summary, names, "")
        case AggregateFunction.GROUP_CONCAT_DISTINCT:
            return _joined(summary, names, _DISTINCT)
        case AggregateFunction.JSON_ARRAYAGG | AggregateFunction.JSON_OBJECTAGG:
            raise Unsupported(f"{function.value.upper()}, which Spark writes otherwise")
        case _:
            assert_never(function)


def _sum(summary: Summary, number: str, word: str = "") -> str:
    """A DECIMAL's sum has ten digits more to Spark, and is brought back."""
    text = f"sum({word}{number})"
    return f"CAST({text} AS {decimal(summary.type.scale)})" if summary.type.kind is Kind.DECIMAL else text


def _mean(summary: Summary, number: str, word: str = "") -> str:
    """The mean; that of exact numbers is the exact quotient, rounded once."""
    if summary.type.kind is Kind.DOUBLE:
        return f"avg({word}{number})"
    assert summary.argument is not None
    own = summary.argument.type.scale
    if own > 6:
        raise Unsupported("AVG of numbers with many digits after the point, which Spark rounds")
    exact = f"CAST(sum({word}CAST({number} AS {decimal(own, 18)})) AS {decimal(own, 18)})"
    count = f"count({word}{number})"
    return f"CAST({exact} / NULLIF(CAST({count} AS DECIMAL(12,0)), 0) AS {decimal(summary.type.scale)})"


def _bits(summary: Summary, number: str) -> str:
    """Spark's are over 64 bits with a sign, and NULL where there is no value."""
    signed = f"CAST(CASE WHEN {number} >= {2**63}BD THEN {number} - {2**64}BD ELSE {number} END AS BIGINT)"
    return f"COALESCE({unsigned(f'{summary.function}({signed})')}, {summary.of_nothing!r}BD)"


def _joined(summary: Summary, names: Names, word: str) -> str:
    """Ties of the order go by the text, as everything here that MySQL leaves open."""
    assert summary.argument is not None
    if summary.type.kind is Kind.BLOB:
        raise Unsupported("GROUP_CONCAT of a BLOB, which the judge does not know")
    own = {summary.argument, *(summary.argument.arguments if isinstance(summary.argument, Call) else ())}
    if word and any(term.expression not in own for term in summary.order):
        raise Unsupported("GROUP_CONCAT(DISTINCT x ORDER BY y) with another y than x, which the judge does not know")
    text = names.as_type(summary.argument, TEXT)
    if word and summary.order and any(isinstance(term.expression, Constant) for term in summary.order):
        raise Unsupported("GROUP_CONCAT(DISTINCT … ORDER BY constant), which the judge does not know")
    terms = [] if word else [_term(names.value(t.expression), t.descending) for t in summary.order]
    if word and summary.order:
        terms = [_term(text, summary.order[0].descending)]
    elif not word or not summary.order:
        terms.append(_term(text, False))
    return f"listagg({word}{text}, {quoted(summary.separator)}) WITHIN GROUP (ORDER BY {', '.join(terms)})"


def _term(text: str, descending: bool) -> str:
    return f"{text} DESC NULLS LAST" if descending else f"{text} ASC NULLS FIRST"


def _levels(clause: exp.Expr | None, groups: int) -> int:
    """How many times rows are grouped: once, and WITH ROLLUP by each shorter beginning of the list."""
    return 1 if clause is None or not clause.args.get("rollup") else groups + 1


def _grouped_by(texts: list[str], rolled: int, levels: int) -> str:
    if levels == 1:
        return ", ".join(texts)
    sets = (", ".join([*texts[: rolled - level], *texts[rolled:]]) for level in range(levels))
    return f"GROUPING SETS ({', '.join(f'({each})' for each in sets)})"


Known = Callable[[exp.Expr], Expression | None]


class BlockWriter:
    """Writes one SELECT; ``compile`` writes the queries inside it."""

    def __init__(self, node: exp.Select, context: WriterContext, compile: Compile) -> None:
        self.node = node
        self.context = context
        self.compile = compile
        self.names = Names()
        self.scope = Scope(())
        self.carried: list[CarriedParameter] = []
        self.conditions: list[Expression] = []
        self.known: Known | None = None
        """The grouped form of a part of the text."""
        self.direct: exp.Expr | None = None
        """The IN (SELECT …) that a condition is, or denies: only there is Spark's own three-valued."""

    def write(self) -> WrittenQuery:
        clause = self.node.args.get("from_")
        reader = FromClauseWriter(self.names, self.context, self.compile)
        if clause is None or reads_dual(clause.this, self.node):
            source = reader.nothing()
        else:
            source = reader.read(clause.this, self.node.args.get("joins") or ())
        self.scope = Scope(source.bounds, self.context.outer)
        self.carried, self.conditions = reader.carried, reader.conditions
        self._restrict(self.node.args.get("where"), "WHERE")
        text = source.text
        if self._is_grouped():
            text = self._grouped(text)
        self._restrict(self.node.args.get("having"), "HAVING")
        return self._finished(text)

    # --- expressions --------------------------------------------------------------------------------------------

    def translate(self, node: exp.Expr, place: str, aliases: Known | None = None) -> Expression:
        def replaced(part: exp.Expr) -> Expression | None:
            found = None if self.known is None else self.known(part)
            if found is None and aliases is not None:
                found = aliases(part)
            return self._subquery(part, place) if found is None else found

        return fold(scalar(node, self.scope, Setting(replace=replaced, place=place)))

    def _subquery(self, node: exp.Expr, place: str) -> Expression | None:
        """IN (SELECT …), EXISTS and subqueries that are values, as Spark has them."""
        if isinstance(node, exp.Window):
            raise Unsupported("a window function, which the judge does not know")
        if isinstance(node, exp.In) and node.args.get("query") is not None:
            return self._membership(node, place)
        if isinstance(node, exp.Exists):
            return self._condition(f"EXISTS ({self._uncorrelated(node.this).text})")
        if isinstance(node, (exp.Subquery, exp.Select, exp.SetOperation)):
            answer = self._uncorrelated(node)
            here = self.context.aliases()
            return self.names.add(f"(SELECT {here}.c0 FROM ({answer.text}) AS {here})", answer.columns[0].type)
        self._refuse_rows(node)
        return None

    def _refuse_rows(self, node: exp.Expr) -> None:
        kinds = {type(node.this), type(node.args.get("expression"))}
        if isinstance(node, exp.Binary) and exp.Tuple in kinds and kinds & {exp.Subquery, exp.Select}:
            raise Unsupported("a row compared with a subquery, which the judge does not know")

    def _membership(self, node: exp.In, place: str) -> Field:
        """``x IN (S)``. As a value Spark knows TRUE and FALSE only, so there the third is written out."""
        answer = self._uncorrelated(node.args["query"])
        left = node.this.expressions if isinstance(node.this, exp.Tuple) else [node.this]
        sides = [self.translate(each, place) for each in left]
        if len(sides) != len(answer.columns):
            raise SqlError("IN compares other columns than its subquery has")
        pairs = list(zip(sides, answer.columns, strict=True))
        ours = ", ".join(self.names.comparable(s, c.type) for s, c in pairs)
        theirs = [compared_with(f"c{i}", c.type, s.type) for i, (s, c) in enumerate(pairs)]
        members = f"SELECT {', '.join(theirs)} FROM ({answer.text}) AS {self.context.aliases()}"
        if node is self.direct:
            return self._condition(f"(({ours}) IN ({members}))")
        if len(sides) > 1:
            raise Unsupported("rows compared by IN (SELECT …) as a value, which the judge does not know")
        some = f"(SELECT count(1) FROM ({answer.text}) AS {self.context.aliases()}) > 0"
        unknown = f"(SELECT count(1) FROM ({answer.text}) AS {self.context.aliases()} WHERE {theirs[0]} IS NULL) > 0"
        found = f"{ours} IN ({members} WHERE {theirs[0]} IS NOT NULL)"
        return self._condition(
            f"(CASE WHEN NOT ({some}) THEN FALSE WHEN {ours} IS NULL THEN NULL "
            f"WHEN {found} THEN TRUE WHEN {unknown} THEN NULL ELSE FALSE END)"
        )

    def _condition(self, text: str) -> Field:
        return self.names.add(text, BOOL, condition=True)

    def _uncorrelated(self, node: exp.Expr) -> WrittenQuery:
        answer = self.compile(node, replace(self.context, outer=refused(self.scope)))
        if answer.slots:
            raise Unsupported("a parameter inside of a subquery of an expression, which the judge does not know")
        return answer

    # --- WHERE and HAVING ---------------------------------------------------------------------------------------

    def _restrict(self, clause: exp.Expr | None, place: str) -> None:
        aliases = self._alias if place == "HAVING" else None
        for part in () if clause is None else conjuncts(clause.this):
            if is_parameterised(part):
                take_parameters(
                    part, lambda n: self.translate(n, place, aliases), self.carried, self.conditions, self.context
                )
            else:
                self.direct = _denied(part)
                self.conditions.append(self.translate(part, place, aliases))
                self.direct = None

    def _merge(self) -> None:
        """The same ``:name`` in two comparisons by = is one parameter, and what it is compared with is equal."""
        kept: list[CarriedParameter] = []
        for one in self.carried:
            place = next((i for i, other in enumerate(kept) if _same(one, other)), None)
            if place is None:
                kept.append(one)
            else:
                same = kept[place]
                if not are_alike(one.operand.type, same.operand.type):
                    raise Unsupported("a parameter compared with columns of several types")
                marks = tuple(dict.fromkeys((*same.slot.marks, *one.slot.marks)))
                kept[place] = CarriedParameter(replace(same.slot, marks=marks), same.operand)
                self.conditions.append(call("eq", same.operand, one.operand))
        self.carried = kept

    def _where(self) -> str:
        text = f" WHERE {self.names.all_true(self.conditions)}" if self.conditions else ""
        self.conditions = []
        return text

    # --- groups -------------------------------------------------------------------------------------------------

    def _later(self) -> list[exp.Expr]:
        parts = [*self.node.expressions, self.node.args.get("having"), self.node.args.get("order")]
        return [part for part in parts if part is not None]

    def _is_grouped(self) -> bool:
        return self.node.args.get("group") is not None or any(True for n in self._later() for _ in aggregates_in(n))

    def _grouped(self, source: str) -> str:
        """The inner SELECT, as the outer one's source; ``names`` and ``known`` are those of the outer one then."""
        self._merge()
        inner, scope, carried = self.names, self.scope, self.carried
        clause = self.node.args.get("group")
        groups = [] if clause is None else [self._group(node) for node in clause.expressions]
        levels, rolled = _levels(clause, len(groups)), len(groups)
        groups += [c.operand for c in carried]
        if levels > 1 and len(set(groups)) < len(groups):
            raise Unsupported("WITH ROLLUP by what a parameter is compared with, which the judge does not know")
        if any(isinstance(group, Constant) for group in groups):
            raise Unsupported("GROUP BY a constant, which the judge does not know")
        refuse_told_apart(group.type for group in groups)
        columns = [f"{inner.value(group)} AS g{i}" for i, group in enumerate(groups)]
        outer, here = Names(), self.context.aliases()
        fields = [outer.add(f"{here}.g{i}", group.type) for i, group in enumerate(groups)]
        made: dict[Expression | str, Field] = {}

        def column(key: Expression | str, text: str, type: SqlType) -> Field:
            if key not in made:
                name = f"a{len(made)}"
                columns.append(f"{text} AS {name}")
                made[key] = outer.add(f"{here}.{name}", type)
            return made[key]

        def bits(node: exp.Anonymous) -> Expression:
            asked = [groups.index(_plain(part, scope)) for part in node.expressions]
            terms = [f"{2**at} * grouping({inner.value(groups[place])})" for at, place in enumerate(reversed(asked))]
            text = f"CAST({' + '.join(terms)} AS BIGINT)"
            return column(text, text, BIGINT)

        def known(node: exp.Expr) -> Expression | None:
            if is_aggregate(node):
                meant = summary(node, lambda n: _plain(n, scope))
                text = aggregate(meant, inner)
                return column(text, text, meant.type)
            if isinstance(node, exp.Anonymous) and node.name.lower() == "grouping":
                return bits(node)
            if isinstance(node, (exp.Literal, exp.Query)):
                return None
            try:
                plain = _plain(node, scope)
            except HeadraceError:
                return None
            if plain in groups and not isinstance(plain, Constant):
                return fields[groups.index(plain)]
            # What the group determines: all its rows have the same.
            return column(plain, f"min({inner.value(plain)})", plain.type) if isinstance(plain, Field) else None

        where = self._where()
        self.names, self.known = outer, known
        self.carried = [CarriedParameter(c.slot, fields[groups.index(c.operand)]) for c in carried]
        self._visit_all()
        texts = [inner.value(group) for group in groups]
        by = f" GROUP BY {_grouped_by(texts, rolled, levels)}" if groups else ""
        if not columns:
            raise Unsupported("a group without columns, which the judge does not know")
        return f"(SELECT {', '.join(columns)} FROM {source}{where}{by}) AS {here}"

    def _visit_all(self) -> None:
        """Have every part translated once, so that the inner SELECT has all the columns that they need."""
        self._outputs()
        having, order = self.node.args.get("having"), self.node.args.get("order")
        for part in () if having is None else conjuncts(having.this):
            if not is_parameterised(part):
                self.translate(part, "HAVING", self._alias)
            else:
                take_parameters(part, lambda n: self.translate(n, "HAVING", self._alias), [], [], self.context)
        for term in () if order is None else order.expressions:
            self._sorting(term)

    def _group(self, node: exp.Expr) -> Expression:
        items = self.node.expressions
        if isinstance(node, exp.Literal) and not node.is_string:
            node = items[int(node.this) - 1]
        elif isinstance(node, exp.Column) and not node.table and self.scope.find(node.name) is None:
            node = self._item(node.name) or node
        return fold(scalar(node, self.scope, Setting(replace=lambda n: self._subquery(n, "GROUP BY"))))

    # --- the list and the order ---------------------------------------------------------------------------------

    def _item(self, name: str) -> exp.Expr | None:
        """The SELECT list's expression of that alias, or its column of that name."""
        for item in self.node.expressions:
            if isinstance(item, exp.Alias) and item.alias.lower() == name.lower():
                found: exp.Expr = item.this
                return found
            if isinstance(item, exp.Column) and item.name.lower() == name.lower():
                return item
        return None

    def _alias(self, node: exp.Expr) -> Expression | None:
        if not isinstance(node, exp.Column) or node.table:
            return None
        if self.known is None and self.scope.find(node.name) is not None:
            return None
        item = self._item(node.name)
        return None if item is None else self.translate(item, "HAVING")

    def _sorting(self, term: exp.Expr) -> tuple[Expression, bool]:
        node = term.this
        if isinstance(node, exp.Literal) and not node.is_string:
            return self.translate(self.node.expressions[int(node.this) - 1], "ORDER BY"), sorting_direction(term)

        def first(part: exp.Expr) -> Expression | None:
            """ORDER BY looks for a name in the SELECT list first."""
            if isinstance(part, exp.Column) and not part.table and (item := self._item(part.name)) is not None:
                return self.translate(item, "ORDER BY")
            return None if self.known is None else self.known(part)

        def replaced(part: exp.Expr) -> Expression | None:
            found = first(part)
            return self._subquery(part, "ORDER BY") if found is None else found

        return fold(scalar(node, self.scope, Setting(replace=replaced, place="ORDER BY"))), sorting_direction(term)

    def _finished(self, source: str) -> WrittenQuery:
        self._merge()
        outputs = self._outputs()
        columns = [f"{self.names.value(e)} AS c{i}" for i, (_, e) in enumerate(outputs)]
        columns += [f"{self.names.value(c.operand)} AS p{i}" for i, c in enumerate(self.carried)]
        order: list[Term] = []
        clause = self.node.args.get("order")
        for term in () if clause is None else clause.expressions:
            expression, descending = self._sorting(term)
            if not isinstance(expression, Constant):
                columns.append(f"{self.names.value(expression)} AS o{len(order)}")
                order.append(Term(f"o{len(order)}", descending))
        limit, offset = read_limit(self.node)
        word = "DISTINCT " if self.node.args.get("distinct") is not None else ""
        if word:
            refuse_told_apart(e.type for _, e in outputs)
        text = f"SELECT {word}{', '.join(columns)} FROM {source}{self._where()}"
        slots = tuple(replace(c.slot, type=c.operand.type) for c in self.carried)
        return WrittenQuery(
            text, tuple(Column(name, e.type) for name, e in outputs), slots, tuple(order), limit, offset
        )

    def _outputs(self) -> list[tuple[str, Expression]]:
        found: list[tuple[str, Expression]] = []
        for item in self.node.expressions:
            if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
                table = item.table if isinstance(item, exp.Column) else ""
                for bound in self.scope.star(table):
                    column = exp.column(bound.name, table=bound.table or None, quoted=True)
                    found.append((bound.name, self.translate(column, "the SELECT list")))
            else:
                found.append((output_name(item), self.translate(item, "the SELECT list")))
        return found


def _denied(node: exp.Expr) -> exp.Expr:
    """The condition under a NOT, or the condition itself."""
    while isinstance(node, (exp.Paren, exp.Not)):
        node = node.this
    return node


def _plain(node: exp.Expr, scope: Scope) -> Expression:
    return fold(scalar(node, scope))


def _same(one: CarriedParameter, other: CarriedParameter) -> bool:
    named = one.slot.named and other.slot.named and one.slot.name.lower() == other.slot.name.lower()
    return named or bool(set(one.slot.marks) & set(other.slot.marks))
