"""A view's text after a column that it reads has got another name.

A view means columns by their places, and its text says their names. So the text follows the name, and everything else
that the text gives a name to keeps it: the columns of the answer, and the parameters::

    SELECT id, author FROM stories WHERE author = ? ORDER BY author

    ── RENAME COLUMN author TO writer ──►

    SELECT id, writer AS author FROM stories WHERE writer = :author ORDER BY author

Where that does not come to the same view (``USING (author)``, HAVING with a name that is an alias too), the table is
read under its former names::

    … FROM (SELECT id, writer AS author FROM stories) AS stories JOIN people USING (author)

A proposal is a guess by the text alone. **The caller plans each, and takes the first that comes to the very nodes,
reader, columns and parameters that the view has** (``altered_tables.py``). So a wrong guess is a refusal, and never a
wrong answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from domains.language.types import TableSchema
from migrations.catalog import ViewDefinition
from migrations.parse.reading import exp, nodes, position
from migrations.query.select import output_name
from migrations.query.view import PlannedView

ColumnsOf = Callable[[str], Sequence[str]]
"""The columns of a table or view, by its name; () where there is none."""


def new_names(before: TableSchema, after: TableSchema) -> dict[str, str]:
    """The names of columns that are called otherwise, by their former names in lower case."""
    pairs = zip(before.columns, after.columns, strict=False)
    live = [(old.name, new.name) for old, new in pairs if not old.dropped and not new.dropped]
    return {old.lower(): new for old, new in live if old.lower() != new.lower()}


def proposals(
    view: ViewDefinition,
    before: TableSchema,
    title: str,
    names: Mapping[str, str],
    planned: PlannedView,
    columns_of: ColumnsOf,
) -> Iterator[exp.Query]:
    """Queries that may mean after the renaming what the view means before it, the plainest first.

    ``title`` is what the table is called then, and ``names`` its columns.
    """
    renaming = _Renaming(before, title, names, columns_of)
    yield renaming.by_new_names(view.relation, planned)
    yield renaming.by_former_names(view.relation)


class _Renaming:
    def __init__(self, before: TableSchema, title: str, names: Mapping[str, str], columns_of: ColumnsOf) -> None:
        self._before = before
        self._table = before.title.lower()
        self._title = title
        self._names = names
        self._columns_of = columns_of

    # --- the new names ------------------------------------------------------------------------------------------

    def by_new_names(self, query: exp.Query, planned: PlannedView) -> exp.Query:
        """The query with each name of a renamed column in the place of the former one."""
        tree = query.copy()
        named = [
            (item, output_name(item)) for node in nodes(tree) if isinstance(node, exp.Select) for item in _items(node)
        ]
        columns = [node for node in nodes(tree) if isinstance(node, exp.Column) and self._is_renamed(node)]
        compared = [each for column in columns for each in _compared_with(column)]
        for column in columns:
            column.set("this", exp.to_identifier(self._names[column.name.lower()], quoted=True))
        for item, name in named:
            if output_name(item) != name:
                item.replace(exp.alias_(item.copy(), name, quoted=True))
        for table in [node for node in nodes(tree) if isinstance(node, exp.Table) and self._is_named(node)]:
            self._rename(table)
        return _with_named(tree, compared, planned)

    def _rename(self, table: exp.Table) -> None:
        """Columns may be called by the table's former name, which is its alias now."""
        if self._title.lower() != self._table:
            if not table.alias:
                table.set("alias", exp.TableAlias(this=table.this.copy()))
            table.set("this", exp.to_identifier(self._title, quoted=True))

    def _is_renamed(self, column: exp.Column) -> bool:
        """Whether a name in the text means a renamed column of the table, by the FROM clauses that it stands in."""
        name = column.name.lower()
        if name not in self._names or isinstance(column.this, exp.Star):
            return False
        below: exp.Expr = column
        node = column.parent
        while node is not None:
            if isinstance(node, exp.SetOperation) and below.arg_key == "order":
                return False
            if isinstance(node, exp.Select):
                if not column.table and below.arg_key == "order" and _names_item(column, node):
                    return False
                sources = list(_sources(node))
                if column.table:
                    sources = [each for each in sources if each.alias_or_name.lower() == column.table.lower()]
                having = [each for each in sources if name in map(str.lower, self._columns(each))]
                if having:
                    return all(isinstance(each, exp.Table) and self._is_the_table(each) for each in having)
            below, node = node, node.parent
        return False

    def _columns(self, source: exp.Expr) -> Sequence[str]:
        """The columns of something in FROM, as far as its text and the catalog tell."""
        alias = source.args.get("alias")
        if isinstance(alias, exp.TableAlias) and alias.columns:
            return [column.name for column in alias.columns]
        if not isinstance(source, exp.Table):
            return _outputs(source.this)
        cte = _cte(source)
        if cte is not None:
            return [column.name for column in cte.args["alias"].columns] or _outputs(cte.this)
        return self._columns_of(source.name)

    def _is_named(self, node: exp.Table) -> bool:
        """Whether it is the table, under whatever names."""
        return node.name.lower() == self._table and _cte(node) is None

    def _is_the_table(self, node: exp.Table) -> bool:
        alias = node.args.get("alias")
        has_names = isinstance(alias, exp.TableAlias) and bool(alias.columns)
        return self._is_named(node) and not has_names

    # --- the former names ---------------------------------------------------------------------------------------

    def by_former_names(self, query: exp.Query) -> exp.Query:
        """The query with a derived table in the place of the table, whose columns have the names that they had.

        Of these, it has those whose names the text says at all: it would keep the others from being dropped.
        """
        tree = query.copy()
        said = {node.name.lower() for node in nodes(tree) if isinstance(node, exp.Column)}
        said |= {
            each.name.lower()
            for node in nodes(tree)
            if isinstance(node, exp.Join)
            for each in node.args.get("using") or ()
        }
        wanted = [self._before.columns[at].name for at in self._before.live()]
        wanted = [name for name in wanted if name.lower() in said] or wanted[:1]
        for node in [each for each in nodes(tree) if isinstance(each, exp.Table) and self._is_the_table(each)]:
            table = exp.Table(this=exp.to_identifier(self._title, quoted=True))
            items = [self._under_former_name(name) for name in wanted]
            derived = exp.Subquery(
                this=exp.Select(expressions=items, from_=exp.From(this=table)),
                alias=exp.TableAlias(this=exp.to_identifier(node.alias_or_name, quoted=True)),
            )
            if node.args.get("joins"):
                derived.set("joins", [join.copy() for join in node.args["joins"]])
            node.replace(derived)
        return tree

    def _under_former_name(self, name: str) -> exp.Expr:
        new = self._names.get(name.lower())
        column = exp.column(exp.to_identifier(new or name, quoted=True))
        return column if new is None else exp.alias_(column, name, quoted=True)


# --- the text -----------------------------------------------------------------------------------------------------


def _items(select: exp.Select) -> list[exp.Expr]:
    """The items of its list whose names are not written: that of a column, or a text."""
    return [item for item in select.expressions if not isinstance(item, (exp.Alias, exp.Star))]


def _names_item(column: exp.Column, select: exp.Select) -> bool:
    """Whether it is a whole term of ORDER BY, which means an item of the list where one has this name."""
    node: exp.Expr = column
    while isinstance(node.parent, exp.Paren):
        node = node.parent
    return isinstance(node.parent, exp.Ordered) and any(
        output_name(item).lower() == column.name.lower() for item in select.expressions
    )


def _sources(select: exp.Select) -> Iterator[exp.Expr]:
    """The tables and derived tables that its FROM names."""
    first = select.args.get("from_")
    pending = [] if first is None else [first.this]
    pending += [join.this for join in select.args.get("joins") or ()]
    while pending:
        node = pending.pop()
        pending += [join.this for join in node.args.get("joins") or ()]
        if isinstance(node, exp.Subquery) and not node.alias and isinstance(node.this, (exp.Table, exp.Subquery)):
            pending.append(node.this)
        else:
            yield node


def _outputs(query: exp.Expr) -> list[str]:
    while isinstance(query, (exp.SetOperation, exp.Subquery)):
        query = query.this
    return [output_name(item) for item in query.expressions] if isinstance(query, exp.Select) else []


def _cte(table: exp.Table) -> exp.CTE | None:
    """The part of a WITH that the name of a table means; those of one clause see the ones before them."""
    below: exp.Expr = table
    node = table.parent
    while node is not None:
        clause = node if isinstance(node, exp.With) else node.args.get("with_")
        if clause is not None and below is not clause:
            known = clause.expressions[: clause.expressions.index(below)] if clause is node else clause.expressions
            for cte in reversed(known):
                if cte.alias.lower() == table.name.lower():
                    return cte  # type: ignore[no-any-return]
        below, node = node, node.parent
    return None


_COMPARISONS = (exp.EQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.In, exp.Between)


def _compared_with(column: exp.Column) -> list[exp.Placeholder]:
    """The ``?`` that may be called after a column."""
    node: exp.Expr | None = column
    while node is not None and not isinstance(node, (*_COMPARISONS, exp.Query)):
        node = node.parent
    if node is None or isinstance(node, exp.Query):
        return []
    return [each for each in nodes(node) if isinstance(each, exp.Placeholder) and not each.args.get("this")]


def _with_named(tree: exp.Query, compared: Sequence[exp.Placeholder], planned: PlannedView) -> exp.Query:
    """With the parameters' former names at these ``?``, where it is known which of them each is."""
    marks = sorted((node for node in nodes(tree) if isinstance(node, exp.Placeholder)), key=position)
    if len(marks) == len(planned.placeholders):
        for mark, at in zip(marks, planned.placeholders, strict=True):
            if any(mark is each for each in compared):
                mark.set("this", planned.parameters[at].name)
    return tree
