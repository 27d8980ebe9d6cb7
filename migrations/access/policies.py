"""Row policies: which rows of a table are there for whom, decided below everything that reads them.

::

    reading    query/source.py comes to each base table by ``shown_rows``: views, SELECTs without one, subqueries of
               writes. Claims are parameters that nobody but the session gives (``query/expressions/moments.py``)
    writing    a SELECT chooses the rows of UPDATE and DELETE; ``statements/policies/writing.py`` looks at them, and at
               new rows, before they are sent
    the rest   is refused by ``unfiltered`` to whom policies apply: no policy is applied there

A table with a policy shows the rows that one of its policies for SELECT lets through: none, where it has none of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from domains.language.types import Reaction, TableSchema
from migrations.access.statements import changed_tables
from migrations.catalog import Catalog, names_read
from migrations.parse.reading import Parsed, exp


def shown_rows(catalog: Catalog, schema: TableSchema) -> exp.Select | None:
    """The SELECT of the rows that policies let through; None: the table has none."""
    policies = catalog.policies.get(schema.name.lower()) if catalog.policies else None
    if policies is None:
        return None
    return rows_where(schema, [p.condition for p in policies if p.command in ("ALL", "SELECT") and p.condition])


def rows_where(schema: TableSchema, conditions: Sequence[exp.Expr]) -> exp.Select:
    """The rows for which one of the conditions is true."""
    either: exp.Expr | None = None
    for condition in conditions:
        one = exp.Paren(this=condition.copy())
        either = one if either is None else exp.Or(this=either, expression=one)
    table = exp.Table(this=exp.to_identifier(schema.title, quoted=True))
    where = exp.Where(this=exp.Boolean(this=False) if either is None else either)
    return exp.Select(expressions=[exp.Star()], from_=exp.From(this=table), where=where)


# What no policy is applied to, and is refused to whom they apply: of each kind of statement, as their rights are.


def unfiltered(parsed: Parsed, catalog: Catalog) -> tuple[str, ...]:
    """The tables with policies that a statement comes to otherwise than by a query: their names in SQL, in order."""
    if not catalog.policies or parsed.account is not None:
        return ()
    if is_checked(parsed.expression):
        node = parsed.expression
        reached = () if isinstance(node, exp.Insert) else written_through(catalog, changed_tables(node), type(node))
        return catalog.policed(reached)
    kind = next((each for each in type(parsed.expression).__mro__ if each in _REACHED), None)
    assert kind is not None, f"{type(parsed.expression).__name__} is a statement that does not say what it comes to"
    return catalog.policed(_REACHED[kind](parsed, catalog))


_ACTS = frozenset((Reaction.CASCADE, Reaction.SET_NULL))


def written_through(catalog: Catalog, names: Iterable[str], by: type[exp.Expr] = exp.Expr) -> set[str]:
    """The tables whose rows change with those of tables, by SQL's names: their children, and what is below these.
    ``by``: an UPDATE or a DELETE, where it is known which."""
    first = {name.lower() for name in names}
    pending, looked, reached = set(first), set[str](), set[str]()
    while pending:
        looked.add(name := pending.pop())
        kind = by if name in first and name not in reached else exp.Expr
        table = catalog.named(name)
        if table is None:
            continue
        for other in catalog.tables.values():
            for key in other.foreign_keys:
                acts = (key.on_delete in _ACTS and kind is not exp.Update) or (
                    key.on_update in _ACTS and kind is not exp.Delete
                )
                if key.enforced and acts and key.parent.lower() == table.name.lower():
                    reached.add(other.title.lower())
                    pending |= {other.title.lower()} - looked
    return reached


def is_checked(node: exp.Expr) -> bool:
    """Whether the rows that a statement writes are looked at one by one: a plain INSERT, an UPDATE or DELETE. What
    becomes of rows that are there already (REPLACE, IGNORE, ON DUPLICATE KEY UPDATE) is known to the engine alone."""
    if isinstance(node, exp.Insert):
        others = ("ignore", "conflict", "returning")
        return node.args.get("alternative") is None and not any(node.args.get(each) for each in others)
    return isinstance(node, (exp.Update, exp.Delete)) and not node.args.get("ignore")


def _queried(parsed: Parsed, catalog: Catalog) -> Iterable[str]:
    """All that it reads it reads by queries."""
    return ()


def _written(parsed: Parsed, catalog: Catalog) -> Iterable[str]:
    changed = changed_tables(parsed.expression)
    return changed | written_through(catalog, changed)


def _made(parsed: Parsed, catalog: Catalog) -> Iterable[str]:
    """A unique index tells of values that are there twice; a policy is of who sees all rows."""
    node = parsed.expression
    if isinstance(node.this, exp.Index):
        return [node.this.args["table"].name]
    return [node.this.name] if node.args.get("kind") == "POLICY" else ()


def _altered(parsed: Parsed, catalog: Catalog) -> Iterable[str]:
    """A constraint's error says which row breaks it."""
    return [parsed.expression.this.name]


def _dropped(parsed: Parsed, catalog: Catalog) -> Iterable[str]:
    node = parsed.expression
    return [node.this.name] if node.args.get("kind") == "POLICY" else ()


def _explained(parsed: Parsed, catalog: Catalog) -> Iterable[str]:
    """Estimates and counts are of all rows."""
    target = parsed.expression.this
    return names_read(target) if isinstance(target, exp.Query) else ()


_REACHED: dict[type[exp.Expr], Callable[[Parsed, Catalog], Iterable[str]]] = {
    exp.Query: _queried,
    exp.Insert: _written,
    exp.Update: _written,
    exp.Delete: _written,
    exp.TruncateTable: _written,
    exp.Create: _made,
    exp.Alter: _altered,
    exp.Drop: _dropped,
    exp.Describe: _explained,
    exp.Show: _queried,
    exp.Kill: _queried,
    exp.Set: _queried,
    exp.Use: _queried,
    exp.Transaction: _queried,
    exp.Commit: _queried,
    exp.Rollback: _queried,
}
"""Every kind of statement, as in ``access/statements.py``."""
