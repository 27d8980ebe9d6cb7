"""One SELECT: sources, WHERE, groups, HAVING, the list, ORDER BY.

A block with groups is written as two: the inner one has the group's columns ``g0`` …, the aggregates ``a0`` … and
what the group determines ``d0`` … (any of its values is it), and the outer one all that is computed from them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from domains.errors import HeadraceError, SqlError, Unsupported
from domains.language.expressions import Constant, Expression, Field
from domains.language.functions import call
from domains.language.functions.comparands import are_alike
from domains.language.rewriting import fold
from domains.language.types import BIGINT, BOOL, Column, SqlType
from migrations.parse.reading import exp
from migrations.query.expressions.aggregates import aggregates_in, is_aggregate, summary
from migrations.query.expressions.literals import shown
from migrations.query.expressions.parameters import is_parameterised
from migrations.query.expressions.scalar import Setting, conjuncts, scalar
from migrations.query.expressions.scope import Scope
from migrations.query.relation import read_limit, sorting_direction
from migrations.query.select import output_name, reads_dual
from migrations.query.windows.meaning import named_windows, window_meaning
from migrations.spark_sql.aggregates import aggregate
from migrations.spark_sql.expressions import Names
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
from migrations.spark_sql.values import compared_with, refuse_told_apart
from migrations.spark_sql.windows import WindowWriter


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
        self.groups: list[Field] = []
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
            return self._window(node, place)
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

    def _window(self, node: exp.Window, place: str) -> Expression:
        """ω; in a block with groups over its groups, which their own columns tell apart."""
        fields = self.groups or sorted(dict.fromkeys(b.field for b in self.scope.bounds), key=lambda f: f.position)
        meant = window_meaning(node, named_windows(self.node), lambda n: self.translate(n, place))
        writer = WindowWriter(self.names, [c.operand for c in self.carried], fields)
        return shown(self.names.add(writer.write(meant), meant.type), meant.shown or meant.type)

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
        self.names, self.known, self.groups = outer, known, fields
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
