"""What each kind of statement needs: one table, in which a statement that can be parsed stands or is refused.

The rights follow from the tree and the catalog, before anything is done. Tables and views that are read need SELECT,
wherever they stand: in FROM, in subqueries, in a write's conditions. So does a table that is written to, where the
write depends on its rows: how many rows ``UPDATE t SET a = a WHERE secret > 5`` finds would tell of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from migrations.access.rights import EVERYTHING, Privilege, Right
from migrations.catalog import Catalog, names_read
from migrations.parse.accounts import ShowGrants, ShowKeys
from migrations.parse.grammar import VIRTUAL_SCHEMAS
from migrations.parse.namespaces import databases
from migrations.parse.reading import Parsed, exp, makes_of_select, nodes
from migrations.parse.temporary import plain_name

Needed = frozenset[Right]
NOTHING: Needed = frozenset()


def needed(parsed: Parsed, catalog: Catalog) -> Needed:
    """The rights that a statement needs. One about accounts needs those that ``controller/access/performing.py`` asks
    for: they depend on the accounts."""
    if parsed.account is not None:
        return NOTHING
    kind = next((each for each in type(parsed.expression).__mro__ if each in DECLARED), None)
    assert kind is not None, f"{type(parsed.expression).__name__} is a statement that declares no rights"
    return frozenset(DECLARED[kind](parsed, catalog))


def _reading(names: Iterable[str]) -> set[Right]:
    found = {Right(Privilege.SELECT, name) for name in names}
    return {Right(Privilege.QUERY), *found} if found else set()


def _select(parsed: Parsed, catalog: Catalog) -> set[Right]:
    """Tables that say what there is have rows for everybody: of what one may see."""
    return _reading(names_read(parsed.expression, [each for each in nodes(parsed.expression) if _says_what_is(each)]))


def _says_what_is(node: exp.Expr) -> bool:
    return isinstance(node, exp.Table) and node.db.lower() in VIRTUAL_SCHEMAS


def _target(node: exp.Expr) -> exp.Expr:
    """The table that is written to or made: ``t`` of ``t (a, b)``."""
    return node.this if isinstance(node, (exp.Schema, exp.Index)) else node


def _insert(parsed: Parsed, catalog: Catalog) -> set[Right]:
    node = parsed.expression
    target = _target(node.this)
    name = target.name.lower()
    found = {Right(Privilege.INSERT, name), *_reading(names_read(node, [target]))}
    if node.args.get("alternative") == "REPLACE":
        found.add(Right(Privilege.DELETE, name))
    conflict = node.args.get("conflict")
    if conflict is not None:
        found.add(Right(Privilege.UPDATE, name))
        values = node.args.get("expression")
        new = values.args["alias"].name.lower() if isinstance(values, exp.Values) and values.args.get("alias") else None
        sides = [item.args["expression"] for item in conflict.expressions if isinstance(item, exp.EQ)]
        if any(_reads_row(side, new) for side in sides):
            found.add(Right(Privilege.SELECT, name))
    if node.args.get("returning") is not None:
        found.add(Right(Privilege.SELECT, name))
    return found


def _reads_row(side: exp.Expr, new: str | None) -> bool:
    """Whether an expression depends on a stored row: ``VALUES(b)`` and ``new.b`` are of the row that is sent."""
    columns = [each for each in nodes(side) if isinstance(each, exp.Column)]
    own = {
        id(argument)
        for call in nodes(side)
        if isinstance(call, exp.Anonymous) and str(call.this).upper() == "VALUES"
        for argument in call.expressions
    }
    return any(id(each) not in own and (new is None or each.table.lower() != new) for each in columns)


def _written_tables(node: exp.Expr) -> dict[str, exp.Expr]:
    """The tables of an UPDATE or DELETE by the names that its other clauses call them by, in lower case."""
    sources: Sequence[exp.Expr] = node.args.get("using") or [node.this]
    tables = [each for source in sources for each in (source, *(join.this for join in source.args.get("joins") or ()))]
    return {each.alias_or_name.lower(): each for each in tables if isinstance(each, exp.Table)}


def changed_tables(node: exp.Expr) -> set[str]:
    """The names, in lower case, of the tables whose rows an INSERT, UPDATE, DELETE or TRUNCATE may change: all that an
    UPDATE or DELETE names beside one another, if it does not say which of them."""
    if isinstance(node, exp.Insert):
        return {_target(node.this).name.lower()}
    if isinstance(node, exp.TruncateTable):
        return {each.name.lower() for each in node.expressions}
    tables = _written_tables(node)
    if isinstance(node, exp.Update):
        named = {item.this.table.lower() for item in node.expressions if isinstance(item, exp.EQ)}
        return {each.name.lower() for name, each in tables.items() if name in named or "" in named}
    listed = node.args.get("tables") or [node.this]
    return {tables.get(each.alias_or_name.lower(), each).name.lower() for each in listed}


def _update(parsed: Parsed, catalog: Catalog) -> set[Right]:
    node = parsed.expression
    tables = _written_tables(node)
    named = {item.this.table.lower() for item in node.expressions if isinstance(item, exp.EQ)}
    # A column that is not qualified may be of any of them.
    written = [each for name, each in tables.items() if name in named or "" in named]
    return _changed(node, Privilege.UPDATE, tables, written)


def _delete(parsed: Parsed, catalog: Catalog) -> set[Right]:
    node = parsed.expression
    tables = _written_tables(node)
    listed = node.args.get("tables") or [node.this]
    written = [tables.get(each.alias_or_name.lower(), each) for each in listed]
    return _changed(node, Privilege.DELETE, tables, written)


def _changed(
    node: exp.Expr, privilege: Privilege, tables: dict[str, exp.Expr], written: Sequence[exp.Expr]
) -> set[Right]:
    found = {Right(privilege, each.name.lower()) for each in written}
    called = [*(node.args.get("tables") or ()), *([node.this] if node.args.get("using") else [])]
    found |= _reading(names_read(node, [*written, *called]))
    joined = len(tables) > 1 or any(join for each in tables.values() for join in each.args.get("joins") or ())
    sides = [item.args["expression"] for item in node.expressions if isinstance(item, exp.EQ)]
    depends = any(node.args.get(clause) for clause in ("where", "order", "returning"))
    if joined or depends or any(isinstance(each, exp.Column) for side in sides for each in nodes(side)):
        found |= {Right(Privilege.SELECT, each.name.lower()) for each in written}
    return found if not joined else found | {Right(Privilege.QUERY)}


def _truncate(parsed: Parsed, catalog: Catalog) -> set[Right]:
    return {Right(Privilege.DELETE, each.name.lower()) for each in parsed.expression.expressions}


def _create(parsed: Parsed, catalog: Catalog) -> set[Right]:
    node = parsed.expression
    if isinstance(node.this, exp.Index):
        return {Right(Privilege.ALTER, node.this.args["table"].name.lower())}
    if node.args.get("kind") == "POLICY":
        return _policy(node)
    if databases(node.args.get("kind")):
        return {Right(Privilege.CREATE, f"{_database(node.this)}.{EVERYTHING}")}
    made = _target(node.this)
    name = made.name.lower()
    found = {Right(Privilege.CREATE, plain_name(name))}
    if node.args.get("replace"):
        found.add(Right(Privilege.DROP, name))
    query = node.args.get("expression")
    if query is not None:
        read = names_read(query)
        found |= _reading(read) if makes_of_select(node) else {Right(Privilege.SELECT, each) for each in read}
    if makes_of_select(node):
        found.add(Right(Privilege.INSERT, name))
    found |= {
        Right(Privilege.SELECT, each.this.name.lower()) for each in nodes(node) if isinstance(each, exp.LikeProperty)
    }
    return found | _parents(node)


def _database(node: exp.Expr) -> str:
    """sqlglot has the name of a database in one place behind DATABASE, and in another behind SCHEMA."""
    return (node.name or node.text("db")).lower()


def _policy(node: exp.Expr) -> set[Right]:
    """Whoever makes or drops one decides who sees which rows."""
    return {Right(Privilege.ALTER, node.this.name.lower()), Right(Privilege.BYPASS_POLICIES)}


def _parents(node: exp.Expr) -> set[Right]:
    """The tables that foreign keys refer to."""
    references = (each for each in nodes(node) if isinstance(each, exp.Reference))
    return {Right(Privilege.REFERENCES, _target(each.this).name.lower()) for each in references}


def _alter(parsed: Parsed, catalog: Catalog) -> set[Right]:
    """A table's new name is MySQL's case, too: whoever gives it needs the rights to drop the one and make the other."""
    node = parsed.expression
    name = node.this.name.lower()
    found = {Right(Privilege.ALTER, name), *_parents(node)}
    for query in nodes(node):
        found |= _reading(names_read(query)) if isinstance(query, exp.Query) else set()
    for action in node.args.get("actions") or ():
        if isinstance(action, exp.AlterRename):
            new = action.this.name.lower()
            found |= {Right(Privilege.DROP, name), Right(Privilege.CREATE, new), Right(Privilege.INSERT, new)}
        if action.args.get("cascade"):
            found |= _dependents(name, catalog)
    return found


def _drop(parsed: Parsed, catalog: Catalog) -> set[Right]:
    node = parsed.expression
    if str(node.args.get("kind") or "").upper() == "INDEX":
        clause = node.args.get("cluster")
        return {Right(Privilege.ALTER, clause.this.name.lower() if isinstance(clause, exp.OnProperty) else EVERYTHING)}
    if node.args.get("kind") == "POLICY":
        return _policy(node)
    found: set[Right] = set()
    if databases(node.args.get("kind")):
        return {Right(Privilege.DROP, f"{_database(each)}.{EVERYTHING}") for each in node.args.get("tables") or ()}
    for each in node.args.get("tables") or [node.this]:
        found.add(Right(Privilege.DROP, each.name.lower()))
        if node.args.get("cascade"):
            found |= _dependents(each.name.lower(), catalog)
    return found


def _dependents(name: str, catalog: Catalog) -> set[Right]:
    """The views that go with a table or view, by the names that SQL and the catalog have for it."""
    table = catalog.named(name)
    names = {name} if table is None else {name, table.name.lower()}
    return {Right(Privilege.DROP, each.lower()) for known in names for each in catalog.dependents(known)}


def _describe(parsed: Parsed, catalog: Catalog) -> set[Right]:
    target = parsed.expression.this
    if isinstance(target, exp.Query):
        read = names_read(target)
        # The plan shows what the views are made of.
        return _reading(read) | {Right(Privilege.SHOW_VIEW, each) for each in read if each in catalog.views}
    if target.db:  # Of a table that says what there is.
        return set()
    name = target.name.lower()
    explains = parsed.sql[:7].upper() == "EXPLAIN" and name in catalog.views
    return {Right(Privilege.SHOW_VIEW if explains else None, name)}


def _show(parsed: Parsed, catalog: Catalog) -> set[Right]:
    node = parsed.expression
    what = str(node.args["this"]).upper()
    if what in ("PROCESSLIST", "QUERIES"):
        return {Right(Privilege.PROCESS)}
    target = node.args.get("target")
    if target is None or what == "CREATE DATABASE" or node.text("db").lower() in VIRTUAL_SCHEMAS:
        return set()
    name = target.name.lower()
    return {Right(Privilege.SHOW_VIEW if what.startswith("CREATE") and name in catalog.views else None, name)}


def _kill(parsed: Parsed, catalog: Catalog) -> set[Right]:
    return {Right(Privilege.PROCESS)}


def _set(parsed: Parsed, catalog: Catalog) -> set[Right]:
    """User variables may be set to what subqueries read."""
    return _reading(names_read(parsed.expression))


def _nothing(parsed: Parsed, catalog: Catalog) -> set[Right]:
    """It does nothing."""
    return set()


DECLARED: dict[type[exp.Expr], Callable[[Parsed, Catalog], set[Right]]] = {
    exp.Query: _select,
    exp.Insert: _insert,
    exp.Update: _update,
    exp.Delete: _delete,
    exp.TruncateTable: _truncate,
    exp.Create: _create,
    exp.Alter: _alter,
    exp.Drop: _drop,
    exp.Describe: _describe,
    exp.Show: _show,
    exp.Kill: _kill,
    exp.Set: _set,
    exp.Use: _nothing,
    exp.Transaction: _nothing,
}
"""Every kind of statement. A parsed one that is not here ends in an assertion, for accounts that may do all, too."""

_RECORDED: dict[type[exp.Expr], str] = {
    exp.Create: "definition",
    exp.Alter: "definition",
    exp.Drop: "definition",
    exp.TruncateTable: "definition",
    exp.Kill: "operation",
}


def recorded(parsed: Parsed) -> str | None:
    """The kind of a statement that an audit log always has; None: it is about data, or only shows something."""
    if parsed.account is not None:
        return None if isinstance(parsed.account, (ShowGrants, ShowKeys)) else "account"
    return _RECORDED.get(type(parsed.expression))
