"""Row policies: which rows of a table are there for whom, decided below everything that reads them.

::

    reading    query/source.py comes to each base table by ``shown_rows``: views, SELECTs without one, subqueries of
               writes. Claims are parameters that nobody but the session gives (``query/expressions/moments.py``)
    writing    each operation has the policies with it (``statements/policies/writing.py``), and the step that writes
               looks at the rows (``domains/engine/writing/guarding.py``)
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
    kind = next((each for each in type(parsed.expression).__mro__ if each in _REACHED), None)
    assert kind is not None, f"{type(parsed.expression).__name__} is a statement that does not say what it comes to"
    return catalog.policed(_REACHED[kind](parsed, catalog))


def written_through(catalog: Catalog, names: Iterable[str]) -> set[str]:
    """The tables whose rows change with those of tables, by SQL's names: their children, and what is below these."""
    pending, reached = {name.lower() for name in names}, set[str]()
    while pending:
        table = catalog.named(pending.pop())
        for other in catalog.tables.values() if table is not None else ():
            for key in other.foreign_keys:
                acts = key.on_delete in _ACTS or key.on_update in _ACTS
                if key.enforced and acts and table is not None and key.parent.lower() == table.name.lower():
                    pending |= {other.title.lower()} - reached
                    reached.add(other.title.lower())
    return reached


_ACTS = frozenset((Reaction.CASCADE, Reaction.SET_NULL))


def _queried(parsed: Parsed, catalog: Catalog) -> Iterable[str]:
    """All that it reads it reads by queries, and all that it writes goes with its guards."""
    return ()


def _emptied(parsed: Parsed, catalog: Catalog) -> Iterable[str]:
    """TRUNCATE looks at no row."""
    return changed_tables(parsed.expression)


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
    exp.Insert: _queried,
    exp.Update: _queried,
    exp.Delete: _queried,
    exp.TruncateTable: _emptied,
    exp.Create: _made,
    exp.Alter: _altered,
    exp.Drop: _dropped,
    exp.Describe: _explained,
    exp.Show: _queried,
    exp.Kill: _queried,
    exp.Set: _queried,
    exp.Use: _queried,
    exp.Transaction: _queried,
}
"""Every kind of statement, as in ``access/statements.py``."""
