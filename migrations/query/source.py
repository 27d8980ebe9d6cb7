"""FROM: tables, views, derived tables and joins become sources of the first stage, and names in its scope."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import filterfalse

from domains.errors import SqlError, Unsupported
from domains.language.expressions import Expression, Field
from domains.language.functions import call
from domains.language.rewriting import fold
from domains.language.types import TableSchema
from migrations.access.policies import shown_rows
from migrations.catalog import ViewDefinition, unknown
from migrations.parse.reading import exp, position
from migrations.query.correlation import Correlations, outer_columns
from migrations.query.expressions.documents import as_document
from migrations.query.expressions.late import has_parameter
from migrations.query.expressions.parameters import has_query, is_parameterised
from migrations.query.expressions.scalar import Setting, conjuncts, scalar
from migrations.query.expressions.scope import Bound, Scope
from migrations.query.expressions.terms import conditions_of, conjunction, positions
from migrations.query.joins import Arranged, arrange
from migrations.query.plan import RelationalPlan, projected
from migrations.query.relation import (
    Around,
    Output,
    QueryContext,
    Relation,
    bounded,
    is_made_late,
    marked,
    of_table,
    plain,
    refuse_late_limit,
    renamed,
    row_of_nothing,
)
from migrations.query.sources.asked import late_moment, late_placeholder, read_parameters
from migrations.query.sources.json_tables import level_of, titles_of
from migrations.query.sources.names import (
    NamedSource,
    alias_columns,
    alias_of,
    beside_each_other,
    field_of,
    is_comma,
    json_alias,
    merged_names,
    reads_both,
    refuse_same_alias,
    without_alias,
    write_out,
)
from migrations.query.sources.tree import Full, Inner, Leaf, Left, Source, Unnested, columns_of, grafted, reads_beside
from migrations.query.stage import SelectStage, wide
from migrations.query.subqueries import Subqueries, linked, or_of_nothing

Translate = Callable[[exp.Expr], Expression]
Plan = Callable[[exp.Expr, QueryContext], Relation]
"""The planner of a whole query, handed down so that this file need not import what imports it."""


class FromClause:
    """Reads one FROM clause into a stage."""

    def __init__(
        self,
        stage: SelectStage,
        context: QueryContext,
        plan: Plan,
        correlations: Correlations,
        doubts: list[Expression],
    ) -> None:
        self._stage = stage
        self._context = context
        self._plan = plan
        self._correlations = correlations
        self._doubts = doubts
        self._is_alone = False
        self.below: Relation | None = None
        """The only source, where its rows come to be when the answer is read: the block has columns of its answer."""

    def read(self, first: exp.Expr, joins: Sequence[exp.Join]) -> NamedSource:
        """``first`` and what is joined to it. A comma binds looser than JOIN."""
        parts: list[NamedSource] = []
        one = isinstance(first, exp.Table) or (isinstance(first, exp.Subquery) and bool(first.alias))
        self._is_alone = one and not joins and not first.args.get("joins") and self._context.outer is None
        current = self._item(first)
        is_lateral = False
        for join in joins:
            if is_comma(join) and isinstance(join.this, exp.Lateral):
                current, parts, is_lateral = self._join(beside_each_other([*parts, current]), join), [], True
            elif is_comma(join):
                parts.append(current)
                current = self._item(join.this)
            elif is_lateral and join.side == "RIGHT":
                raise Unsupported("RIGHT JOIN behind a comma and LATERAL", hint="write the comma as CROSS JOIN")
            else:
                current = self._join(current, join)
        return beside_each_other([*parts, current])

    # --- one source --------------------------------------------------------------------------------------------

    def _item(self, node: exp.Expr) -> NamedSource:
        if isinstance(node, exp.Table):
            return self._with_own_joins(node, self._table(node))
        if isinstance(node, exp.Subquery):
            inner = node.this
            if isinstance(inner, (exp.Table, exp.Subquery)) and not node.alias:
                nested = self._item(inner)
                return self._with_own_joins(node, nested)
            if not node.alias:
                raise SqlError("every derived table must have an alias of its own")
            relation = self._plan(without_alias(node), self._context.inside(self._context.outer))
            return self._with_own_joins(node, self._leaf(relation, node.alias, alias_columns(node)))
        if isinstance(node, exp.Lateral) and isinstance(node.this, exp.JSONTable):
            source, right = self._json_table(None, node, "")
            return NamedSource(source, right.bounds)
        if isinstance(node, exp.Lateral):  # Nothing stands before it.
            relation = self._plan(without_alias(node.this), self._context.inside(self._context.outer))
            return self._leaf(relation, alias_of(node), alias_columns(node))
        raise Unsupported(f"{type(node).__name__.upper()} in FROM")

    def _with_own_joins(self, node: exp.Expr, item: NamedSource) -> NamedSource:
        for join in node.args.get("joins") or ():
            if isinstance(join.this, exp.Lateral):
                raise Unsupported("LATERAL in a join in parentheses", hint="write the join without them")
            item = self._join(item, join)
        return item

    def _table(self, node: exp.Table) -> NamedSource:
        if node.args.get("db") is not None:
            what = f'"{node.text("db")}.{node.name}" in a definition or a write'
            raise Unsupported(what, hint="what it says is of nobody's rows: SELECT it by itself")
        if not isinstance(node.this, exp.Identifier):
            raise Unsupported("table functions in FROM")
        alias = node.alias or node.name
        return self._leaf(self.relation(node), alias, alias_columns(node))

    def relation(self, node: exp.Table) -> Relation:
        """The CTE, table or view that a name in FROM means."""
        cte = self._context.ctes.get(node.name.lower())
        if cte is not None:
            return cte
        found = self._known(node.name)
        if isinstance(found, TableSchema):
            return self._of_table(found)
        views = self._context.views
        if found.name not in views:
            context = QueryContext(
                self._context.catalog, views=views, statistics=self._context.statistics, declared=True
            )
            view = self._plan(found.relation, context)
            views[found.name] = named_columns(view, found.columns, found.name)
        return marked(views[found.name], (position(node.this),))

    def _of_table(self, schema: TableSchema) -> Relation:
        """The rows that its policies let through. This is the one place where a plan comes to a base table."""
        catalog, rows = self._context.catalog, of_table(schema)
        shown = shown_rows(catalog, schema)
        if shown is None:
            return rows
        found = plain(self._plan(shown, QueryContext(catalog.without_policies(), statistics=self._context.statistics)))
        assert found.plan.columns[: rows.plan.width] == rows.plan.columns, "a policy leaves columns as they are"
        return replace(found, key=rows.key, uniques=rows.uniques)

    def _known(self, name: str) -> TableSchema | ViewDefinition:
        if name.lower() == "dual":
            raise Unsupported("DUAL joined with other tables")
        ctes = self._context.ctes
        catalog = self._context.catalog
        if ctes and catalog.named(name) is None and name.lower() not in catalog.views:
            known = [table.title for table in catalog.tables.values()] + list(ctes)
            raise unknown("table or view", name, known)
        return self._context.catalog.relation(name)

    def _leaf(self, relation: Relation, alias: str, columns: Sequence[str]) -> NamedSource:
        relation = named_columns(relation, columns, alias)
        if self._is_alone and is_made_late(relation):
            refuse_late_limit(relation)
            self.below, columns_shown = relation, relation.columns
            fields = (Output(c.name, Field(at, c.type)) for at, c in enumerate(columns_shown))
            relation = Relation(replace(relation.plan, columns=columns_shown), tuple(fields))
        if self._context.puts_off and is_made_late(relation) and self.below is None:
            refuse_late_limit(relation)
            leaf, columns_made = self._stage.later(relation)
            made = zip(relation.outputs, columns_made, strict=True)
            return NamedSource(leaf, tuple(Bound(alias, o.name, column) for o, column in made))
        relation = plain(bounded(relation))
        leaf = self._stage.leaf(relation)
        bounds = tuple(Bound(alias, o.name, _shifted(leaf, o.expression)) for o in relation.outputs)
        return NamedSource(leaf, bounds)

    # --- joins -------------------------------------------------------------------------------------------------

    def _join(self, left: NamedSource, join: exp.Join) -> NamedSource:
        side, kind = str(join.side or "").upper(), str(join.kind or "").upper()
        method = str(join.method or "").upper()
        if side not in ("", "LEFT", "RIGHT", "FULL") or kind not in _INNER or method not in _METHODS:
            name = " ".join(word for word in (method, side, kind) if word)
            raise Unsupported(f"{name} JOIN", hint="use IN or NOT IN (SELECT …)" if kind in ("SEMI", "ANTI") else None)
        if isinstance(join.this, exp.Lateral):
            return self._lateral(left, join.this, join, side)
        right = self._item(join.this)
        refuse_same_alias(left, right)
        shared = self._shared_names(left, right, join)
        bounds = merged_names(left, right, shared, side)
        if shared:
            conditions: list[Expression] = [call("eq", field_of(left, n), field_of(right, n)) for n in shared]
        else:
            outer = None if self._context.outer is None else self._context.outer.resolve
            scope = Scope((*left.bounds, *right.bounds), outer)
            conditions, asked = self._on(join, scope, side)
            asking = [part for part in conjuncts(join.args.get("on") or exp.true()) if has_query(part)]
            if asking and side == "FULL":
                raise Unsupported("a subquery in the ON of a FULL OUTER JOIN", hint="join with a derived table")
            if asking and side:
                left, right, more = self._beside(left, right, asking, scope, side)
                conditions += more
            elif asking:
                return NamedSource(
                    self._restricted(Inner((left.source, right.source), tuple(conditions)), asking, scope), bounds
                )
        if not shared and asked:
            kept, optional = (left, right) if side == "LEFT" else (right, left)
            return NamedSource(self._stage.ask(kept.source, conditions, asked, optional.source), bounds)
        if side == "FULL":
            return self._full(left, right, conditions, shared)
        if side == "LEFT":
            return NamedSource(Left(left.source, right.source, tuple(conditions)), bounds)
        if side == "RIGHT":
            return NamedSource(Left(right.source, left.source, tuple(conditions)), bounds)
        return NamedSource(Inner((left.source, right.source), tuple(conditions)), bounds)

    def _full(
        self, left: NamedSource, right: NamedSource, conditions: Sequence[Expression], shared: Sequence[str]
    ) -> NamedSource:
        """A column that both sides share is that of the side that is there."""
        both: Source = Full(left.source, right.source, tuple(conditions))
        if not shared:
            return NamedSource(both, (*left.bounds, *right.bounds))
        merged = [call("coalesce", field_of(left, name), field_of(right, name)) for name in shared]
        both, columns = self._stage.computed(both, merged)
        names = {name.lower() for name in shared}
        sides = [replace(b, merged=True) if b.name.lower() in names else b for b in (*left.bounds, *right.bounds)]
        return NamedSource(both, (*(Bound("", n, c) for n, c in zip(shared, columns, strict=True)), *sides))

    def _lateral(self, left: NamedSource, node: exp.Lateral, join: exp.Join, side: str) -> NamedSource:
        """A derived table that reads the rows to its left, with which it is joined by what it reads of them.

        An aggregate without GROUP BY has a row for each of them, also where nothing is below it; so it stands beside
        them by a left join, with what it is of nothing computed.
        """
        if side in ("RIGHT", "FULL"):
            raise Unsupported(f"{side} JOIN of LATERAL", hint="its rows are made of those to its left: LEFT JOIN")
        if any(has_query(part) for part in conjuncts(join.args.get("on") or exp.true())):
            raise Unsupported("a subquery in the ON of LATERAL", hint="put it into the WHERE of the LATERAL")
        if isinstance(node.this, exp.JSONTable):
            return self._beside_json_table(left, node, join, side)
        outer, alias = None if self._context.outer is None else self._context.outer.resolve, alias_of(node)
        around = self._around(Scope(left.bounds, outer), lambda field, _: field, (left.source,))
        relation = self._plan(without_alias(node.this), self._context.inside(around))
        relation = plain(bounded(named_columns(relation, alias_columns(node), alias)))
        subqueries = Subqueries(self._stage, around, self._context, self._plan, self._correlations, self._doubts)
        self._stage.source = left.source
        counts = relation.empty is not None and any(c.slot.outer is not None for c in relation.carried)
        relation, links = subqueries.parted(relation, optional=counts or side == "LEFT")
        leaf = self._stage.leaf(replace(relation, empty=None) if counts else relation)
        source, self._stage.source = self._stage.source, None
        fields = [wide(leaf, column) for column in _places(relation)]
        conditions = linked(leaf, links)
        if counts:
            values = [or_of_nothing(leaf, links, relation, at) for at in range(len(fields))]
            source, fields = self._stage.computed(Left(source, leaf, tuple(conditions)), values)
        right = NamedSource(leaf, tuple(Bound(alias, o.name, f) for o, f in zip(relation.outputs, fields, strict=True)))
        refuse_same_alias(left, right)
        shared = self._shared_names(left, right, join)
        more: list[Expression] = [call("eq", field_of(left, n), field_of(right, n)) for n in shared]
        on, asked = self._on(join, Scope((*left.bounds, *right.bounds), outer), side)
        if asked:
            raise Unsupported("a parameter in the ON of LEFT JOIN LATERAL", hint="put it into the WHERE of the LATERAL")
        more += on
        if not counts:
            made = Left(source, leaf, (*conditions, *more)) if side else Inner((source, leaf), (*conditions, *more))
            return NamedSource(made, merged_names(left, right, shared, side))
        if side and more:
            met = [call("case", conjunction(more), field) for field in fields]
            source, fields = self._stage.computed(source, met)
            right = replace(right, bounds=tuple(replace(b, field=f) for b, f in zip(right.bounds, fields, strict=True)))
            more = []
        return NamedSource(Inner((source,), tuple(more)) if more else source, merged_names(left, right, shared, side))

    def _beside_json_table(self, left: NamedSource, node: exp.Lateral, join: exp.Join, side: str) -> NamedSource:
        source, right = self._json_table(left, node, side)
        refuse_same_alias(left, right)
        shared = self._shared_names(left, right, join)
        conditions: list[Expression] = [call("eq", field_of(left, n), field_of(right, n)) for n in shared]
        outer = None if self._context.outer is None else self._context.outer.resolve
        on, asked = self._on(join, Scope((*left.bounds, *right.bounds), outer), side)
        if asked:
            raise Unsupported("a parameter in the ON of LEFT JOIN JSON_TABLE", hint="put it into WHERE")
        more = (*conditions, *on)
        made = replace(source, conditions=more) if side else Inner((source,), more) if more else source
        return NamedSource(made, merged_names(left, right, shared, side))

    def _json_table(self, left: NamedSource | None, node: exp.Lateral, side: str) -> tuple[Unnested, NamedSource]:
        """The rows of a document for each row to its left; and its own columns. A document that the query around has
        is a column of a domain of it (``correlation.py``)."""
        table, stage, alias = node.this, self._stage, json_alias(node)
        outer = None if self._context.outer is None else self._context.outer.resolve
        scope = Scope(() if left is None else left.bounds, outer)
        document = as_document(fold(scalar(table.this, scope, Setting(place="JSON_TABLE")), self._context.constants))
        parts = [] if left is None else [left.source]
        if outer_columns(document):
            document = self._correlations.put(document, stage)
            parts += [] if stage.source is None else [stage.source]
            stage.source = None  # Until the whole of FROM is read.
        if not parts:
            parts.append(stage.leaf(row_of_nothing(self._context)))
        level, titles = level_of(table), titles_of(table)
        source = parts[0] if len(parts) == 1 else Inner(tuple(parts))
        if not positions(document) <= columns_of(source):
            raise Unsupported("JSON_TABLE of a column of the query around again", hint="write them with commas")
        made = Unnested(source, document, level, titles, stage.width, bool(side))
        stage.width += len(titles)
        fields = [Field(made.at + number, type) for number, type in enumerate(level.types)]
        return made, NamedSource(made, tuple(Bound(alias, t, f) for t, f in zip(titles, fields, strict=True)))

    def _shared_names(self, left: NamedSource, right: NamedSource, join: exp.Join) -> list[str]:
        using = join.args.get("using")
        if using:
            return [column.name for column in using]
        if str(join.method or "").upper() != "NATURAL":
            return []
        theirs = {bound.name.lower() for bound in right.bounds if not bound.merged}
        shared = list(dict.fromkeys(b.name for b in left.bounds if not b.merged and b.name.lower() in theirs))
        self._context.edits.append(lambda: write_out(join, shared))
        return shared

    def _on(self, join: exp.Join, scope: Scope, side: str) -> tuple[list[Expression], list[Expression]]:
        """Its conditions; and, of an outer join, those that ask for a parameter."""
        condition = join.args.get("on")
        if condition is None:
            if side and not join.args.get("using") and str(join.method or "").upper() != "NATURAL":
                raise SqlError("an outer join needs ON or USING")
            return [], []

        def translate(node: exp.Expr) -> Expression:
            late, moment = late_placeholder(self._stage, translate), late_moment(self._stage)
            setting = Setting(placeholder=late, moment=moment, place="the ON of a join")
            return fold(scalar(node, scope, setting), self._context.constants)

        conditions, asked = list[Expression](), list[Expression]()
        for part in conjuncts(condition):
            if has_query(part):
                continue
            if not is_parameterised(part):
                found = conditions_of(translate(part))
                correlated = [each for each in found if outer_columns(each)]
                if correlated and side:
                    raise Unsupported(
                        "a column of the query around in the ON of an outer join", hint="put it into WHERE"
                    )
                conditions += [each for each in found if each not in correlated]
                self._stage.conditions += correlated
                self._stage.inner |= frozenset[int]().union(*map(positions, correlated))
            elif side == "FULL":
                raise Unsupported("a parameter in the ON of a FULL OUTER JOIN", hint="put it into WHERE")
            elif side:
                asked.append(translate(part))
            else:
                conditions += read_parameters(part, translate, self._stage)
        return conditions, asked

    # --- subqueries in ON --------------------------------------------------------------------------------------

    def _restricted(self, source: Source, parts: Sequence[exp.Expr], scope: Scope) -> Source:
        """An inner join with conditions that have subqueries, which join it as they join the sources in WHERE."""
        stage = self._stage
        waiting, stage.source, stage.conditions = stage.conditions, source, []
        subqueries, _ = self._subqueries(scope)
        translate, late = self._translation(scope, subqueries), len(stage.late)
        for part in parts:
            before = len(self._doubts)
            if not subqueries.restrict(part, translate):
                found = translate(part)
                doubts = self._doubts[before:]
                conditions = [call("or", found, *doubts)] if doubts else conditions_of(found)
                stage.late += filter(has_parameter, conditions)
                stage.conditions += filterfalse(has_parameter, conditions)
        result = Inner((stage.source,), tuple(stage.conditions))
        stage.source, stage.conditions = None, waiting
        stage.missing |= columns_of(result) if len(stage.late) > late else frozenset()
        return result

    def _beside(
        self, left: NamedSource, right: NamedSource, parts: Sequence[exp.Expr], scope: Scope, side: str
    ) -> tuple[NamedSource, NamedSource, list[Expression]]:
        """An outer join's conditions with subqueries: each stands beside the rows of the side that it reads."""
        stage, conditions = self._stage, list[Expression]()
        for part in parts:
            optional = right if side == "LEFT" else left
            kept = left if side == "LEFT" else right
            stage.source = optional.source
            subqueries, read = self._subqueries(scope, (optional.source, kept.source))
            found = self._translation(scope, subqueries)(part)
            if has_parameter(found):
                raise Unsupported(
                    "a subquery in the ON of an outer join that comes to be when the answer is read",
                    hint="join with a derived table",
                )
            conditions += conditions_of(found)
            grown, stage.source = stage.source, None
            read |= reads_beside(grown, optional.source) & (columns_of(optional.source) | columns_of(kept.source))
            if read <= columns_of(optional.source):
                changed = replace(optional, source=grown)
                left, right = (left, changed) if side == "LEFT" else (changed, right)
                continue
            if not read <= columns_of(kept.source):
                raise reads_both()
            changed = replace(kept, source=grafted(grown, optional.source, kept.source))
            left, right = (changed, right) if side == "LEFT" else (left, changed)
        return left, right, conditions

    def _subqueries(self, scope: Scope, sides: Sequence[Source] = ()) -> tuple[Subqueries, set[int]]:
        """The subqueries in the ON of a join, an outer one with these sides; and the columns that they turn out to
        read."""
        read: set[int] = set()

        def column(field: Field, name: str) -> Expression:
            read.add(field.position)
            return field

        around = self._around(scope, column, sides)
        made = Subqueries(self._stage, around, self._context, self._plan, self._correlations, self._doubts)
        return made, read

    def _around(self, scope: Scope, column: Callable[[Field, str], Expression], sides: Sequence[Source]) -> Around:
        """This query as a subquery of its FROM sees it."""

        def rows(places: Sequence[int]) -> RelationalPlan:
            if not sides:
                return rows_of(self._stage, places, self._context)
            side = next((each for each in sides if columns_of(each).issuperset(places)), None)
            if side is None:
                raise reads_both()
            return _columns_at(arrange(side, (), self._context.statistics), places)

        further = self._context.outer
        level = 0 if further is None else further.level + 1
        return Around(level, scope, column, rows, further)

    def _translation(self, scope: Scope, subqueries: Subqueries) -> Translate:
        def translate(node: exp.Expr) -> Expression:
            setting = Setting(replace=lambda part: subqueries.replace(part, translate), place="the ON of a join")
            found = fold(scalar(node, scope, setting), self._context.constants)
            if outer_columns(found):
                raise Unsupported("a column of the query around beside a subquery in ON", hint="put it into WHERE")
            return found

        return translate


def _places(relation: Relation) -> list[int]:
    return [o.expression.position for o in relation.outputs if isinstance(o.expression, Field)]


def rows_of(stage: SelectStage, places: Sequence[int], context: QueryContext) -> RelationalPlan:
    """Some columns of all rows that a stage has by now."""
    return _columns_at(stage.arrange(context.statistics), places)


def _columns_at(arranged: Arranged, places: Sequence[int]) -> RelationalPlan:
    at = [arranged.place(place) for place in places]
    fields = [arranged.plan.field(place) for place in at]
    return projected(arranged.plan, fields, [arranged.plan.columns[place].name for place in at])


def named_columns(relation: Relation, names: Sequence[str], of: str) -> Relation:
    """The relation with the column names of ``t (a, b)`` or ``CREATE VIEW t (a, b)``; () keeps its own."""
    if not names:
        return relation
    if len(names) != len(relation.outputs):
        raise SqlError(f'"{of}" has {len(relation.outputs)} columns, but {len(names)} names are given')
    return renamed(relation, names)


def _shifted(leaf: Leaf, expression: Expression) -> Field:
    assert isinstance(expression, Field)
    return wide(leaf, expression.position)


_INNER = ("", "INNER", "CROSS", "STRAIGHT_JOIN", "OUTER")
"""Words that say nothing but the side: LEFT OUTER JOIN is LEFT JOIN."""
_METHODS = ("", "NATURAL")
