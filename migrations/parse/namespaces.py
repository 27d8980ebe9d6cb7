"""Databases as namespaces: ``shop.orders`` is one name, the table's own, in every tree that comes out of this room.

::

    SELECT * FROM orders           in a session whose database is shop
         │ qualified()             its text with the database written out, so that it is the same text to all sessions
         ▼
    SELECT * FROM `shop`.orders
         │ with_whole_names()      each tree, when it is read
         ▼
    Table("shop.orders") AS orders

So the catalog, rights, policies, logs, archives and paths over HTTP know a table by one name, which has a dot where its
database is not the first one, and no pass has to know of databases. Which there are, the catalog says.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from domains.errors import UnknownName
from migrations.parse.grammar import SCHEMA, VIRTUAL_SCHEMAS
from migrations.parse.syntax import Token, TokenType, children, exp, nodes
from migrations.parse.writing import quote

WRITTEN = "schema"
"""In a node's ``meta``: the database that its text names."""
_SOURCES = (exp.From, exp.Join, exp.Subquery, exp.Update, exp.Delete)


def databases(kind: object) -> bool:
    """Whether CREATE or DROP of this kind is of a database."""
    return str(kind or "").upper() in ("DATABASE", "SCHEMA")


def tables_read(tree: exp.Expr) -> Iterator[exp.Table]:
    """The tables and views that a statement names, without the names of its own CTEs."""
    pending: list[tuple[exp.Expr, frozenset[str]]] = [(tree, frozenset())]
    while pending:
        node, own = pending.pop()
        clause = node.args.get("with_")
        if clause is not None:
            for group in groups_of(clause):
                before, own = own, own | {cte.alias.lower() for cte in group}
                pending += [(cte.this, own if clause.args.get("recursive") else before) for cte in group]
        if isinstance(node, exp.Table) and node.name and (node.args.get("db") or node.name.lower() not in own):
            yield node
        pending += [(child, own) for child in children(node) if child is not clause]


def groups_of(clause: exp.With) -> list[list[exp.CTE]]:
    """The queries of WITH, each alone; of WITH RECURSIVE those that read each other together, behind what they read.

    A name that comes later is a table's or view's, as in MySQL, but where its query comes back to this one."""
    ctes: list[exp.CTE] = list(clause.expressions)
    if not clause.args.get("recursive"):
        return [[cte] for cte in ctes]
    names = [cte.alias.lower() for cte in ctes]
    read = [{at for at, name in enumerate(names) if reads_any(cte.this, [name])} for cte in ctes]
    reached = [set(found) for found in read]
    for via in range(len(ctes)):
        for found in reached:
            found |= reached[via] if via in found else set()
    ordered: dict[int, list[exp.CTE]] = {}
    while len(ordered) < len(ctes):
        for own in range(len(ctes)):
            group = [at for at in range(len(ctes)) if at == own or (at in reached[own] and own in reached[at])]
            needed = {at for member in group for at in read[member] if at < member} - {*group}
            if own not in ordered and needed <= ordered.keys():
                ordered |= {at: [ctes[each] for each in group] if at == own else [] for at in group}
    return [group for group in ordered.values() if group]


def reads_itself(group: Sequence[exp.CTE]) -> bool:
    """Whether the queries of a group are a recursion."""
    return len(group) > 1 or reads_any(group[0].this, [group[0].alias])


def reads_any(query: exp.Expr, names: Sequence[str]) -> bool:
    """Whether a query reads one of these, which have no database."""
    wanted = {name.lower() for name in names}
    return any(isinstance(node, exp.Table) and node.name.lower() in wanted and not node.db for node in nodes(query))


def with_whole_names(tree: exp.Expr, named: Sequence[exp.Expr]) -> None:
    """Each name with a database as one name; ``named`` are the tables and columns of the tree that have one.

    :raises UnknownName: a column of a table that the statement does not name."""
    if isinstance(tree, exp.Show):
        _whole_target(tree)
        return
    if isinstance(tree, (exp.Create, exp.Drop)) and databases(tree.args.get("kind")):
        return
    _in_the_tables_database(tree)
    tables = [each for each in tables_read(tree) if _schema_of(each) not in VIRTUAL_SCHEMAS]
    homes: dict[str, set[str]] = {}
    for table in tables:
        if not table.alias and not is_deleted_from(table):
            homes.setdefault(table.name.lower(), set()).add(_schema_of(table))
    for column in named:
        if isinstance(column, exp.Column) and (schema := _schema_of(column)) not in VIRTUAL_SCHEMAS:
            own = homes.get(column.table.lower(), set())
            if schema != SCHEMA and schema not in own:
                raise UnknownName(f'unknown table "{schema}.{column.table}" of column "{column.name}"')
            if len(own) > 1:
                column.set("table", exp.to_identifier(f"{schema}.{column.table}", quoted=True))
            column.set("db", None)
    ambiguous = {name for name, own in homes.items() if len(own) > 1}
    if ambiguous:
        _tell_apart(tree, tables, ambiguous)
    for table in tables:
        _make_whole(table, ambiguous=table.name.lower() in ambiguous)


def _tell_apart(tree: exp.Expr, tables: Sequence[exp.Table], ambiguous: Collection[str]) -> None:
    """Of columns without a database whose table is of one that has the name of another: of which, the nearest FROM says
    that has the name."""
    found: dict[tuple[int, str], set[str]] = {}
    for table in tables:
        if not is_deleted_from(table):
            called = "" if table.alias else _schema_of(table)
            found.setdefault((id(_block_of(table)), table.alias_or_name.lower()), set()).add(called)
    for column in tree.find_all(exp.Column):
        name = column.table.lower()
        if name not in ambiguous:
            continue
        block = _block_of(column)
        while block is not None and (id(block), name) not in found:
            block = _block_of(block)
        own = found.get((id(block), name), set())
        if len(own) == 1 and (schema := next(iter(own))):
            column.set("table", exp.to_identifier(f"{schema}.{column.table}", quoted=True))


def _block_of(node: exp.Expr) -> exp.Expr | None:
    above = node.parent
    while above is not None and not isinstance(above, (exp.Select, exp.Update, exp.Delete)):
        above = above.parent
    return above


def _make_whole(table: exp.Table, *, ambiguous: bool) -> None:
    schema, name = _schema_of(table), table.name
    whole = name if schema == SCHEMA else f"{table.text('db')}.{name}"
    called = f"{schema}.{name}" if ambiguous else name
    if is_deleted_from(table):
        if table.args.get("db") is not None:
            table.set("this", exp.to_identifier(called, quoted=True))
    else:
        reads = isinstance(table.parent, _SOURCES)
        if reads and not table.alias and called != whole:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(called, quoted=True)))
        if whole != name:
            table.set("this", exp.to_identifier(whole, quoted=True))
            table.this.meta.update(table.args["db"].meta)
    if table.args.get("db") is not None:
        table.meta[WRITTEN] = schema
        table.set("db", None)


def is_deleted_from(table: exp.Expr) -> bool:
    """Whether it is ``t`` of ``DELETE t FROM …`` or ``DELETE FROM t USING …``: by the name that its source has."""
    parent = table.parent
    if not isinstance(parent, exp.Delete):
        return False
    return table.arg_key == "tables" or (table.arg_key == "this" and bool(parent.args.get("using")))


def _whole_target(show: exp.Expr) -> None:
    target, schema = show.args.get("target"), show.text("db").lower()
    if isinstance(target, exp.Identifier) and schema not in ("", SCHEMA, *VIRTUAL_SCHEMAS):
        show.set("target", exp.to_identifier(f"{show.text('db')}.{target.name}", quoted=True))


def _in_the_tables_database(tree: exp.Expr) -> None:
    """A foreign key names a table of its own table's database, if it names none."""
    made = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    if isinstance(tree, (exp.Create, exp.Alter)) and isinstance(made, exp.Table) and made.args.get("db") is not None:
        for reference in tree.find_all(exp.Reference):
            parent = reference.this.this if isinstance(reference.this, exp.Schema) else reference.this
            if isinstance(parent, exp.Table) and parent.args.get("db") is None:
                parent.set("db", made.args["db"].copy())


def _schema_of(node: exp.Expr) -> str:
    return node.text("db").lower() or SCHEMA


# --- the text of a session whose database is another one ------------------------------------------------------------

_INSERT = re.compile(
    r"\s*(?:INSERT|REPLACE)\s+(?:(?:LOW_PRIORITY|HIGH_PRIORITY|DELAYED|IGNORE)\s+)*(?:INTO\s+)?"
    r"(?P<table>`(?:[^`]|``)+`|[A-Za-z_]\w*)\s*(?P<after>[(\s.])",
    re.IGNORECASE,
)
_QUERY = re.compile(r"\b(?:SELECT|TABLE|WITH)\b|;|/\*|--|#", re.IGNORECASE)


def names_in_place(sql: str) -> str:
    """The beginning of a plain INSERT, up to its table, where that is all to be said of it; "" for any other text."""
    found = _INSERT.match(sql)
    if found is None or found["after"] == "." or _QUERY.search(sql) is not None:
        return ""
    return sql[: found.start("table")]


def with_database(sql: str, schema: str, places: Iterable[int]) -> str:
    """The text with the database before what stands at these places."""
    parts, at = [], 0
    for place in sorted(set(places)):
        parts += [sql[at:place], quote(schema), "."]
        at = place
    return "".join([*parts, sql[at:]])


def without_database(sql: str, tree: exp.Expr, schema: str) -> str:
    """A text, of which this is the tree, without this database before the names of tables."""
    parts, at = [], 0
    for table in sorted(tables_read(tree), key=lambda each: _place(each.this)):
        place = _place(table.this)
        if table.meta.get(WRITTEN) == schema.lower() != SCHEMA and (found := _DATABASE.match(sql, max(place, 0))):
            parts.append(sql[at:place])
            at = found.end()
    return "".join([*parts, sql[at:]])


_DATABASE = re.compile(r"(?:`(?:[^`]|``)+`|\w+)\s*\.\s*")


def bare_names(tree: exp.Expr) -> Iterator[int]:
    """Where a statement names a table or view without its database; -1 where that is not known."""
    if isinstance(tree, exp.Use) or (isinstance(tree, (exp.Create, exp.Drop)) and databases(tree.args.get("kind"))):
        return
    if isinstance(tree, exp.Show):
        target = tree.args.get("target")
        if isinstance(target, exp.Identifier) and not tree.args.get("db") and tree.name.upper() != "CREATE DATABASE":
            yield _place(target)
        return
    own = _target_is_whole(tree)
    for table in tables_read(tree):
        if table.meta.get(WRITTEN) or table.args.get("db") is not None or table.name.lower() == "dual":
            continue
        if isinstance(tree, exp.Drop) and str(tree.args.get("kind")).upper() == "INDEX" and table.arg_key == "tables":
            continue
        if not is_deleted_from(table) and not (own and table.find_ancestor(exp.Reference)):
            yield _place(table.this)


def _target_is_whole(tree: exp.Expr) -> bool:
    made = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    return isinstance(tree, (exp.Create, exp.Alter)) and isinstance(made, exp.Table) and bool(made.meta.get(WRITTEN))


def _place(identifier: exp.Expr) -> int:
    return int(identifier.meta.get("start", -1)) if identifier._meta else -1


def names_behind(tokens: Sequence[Token], words: Collection[str], *, commas: bool = False) -> Iterator[int]:
    """The places of names behind these words, of statements that have no tree; ``commas``: and behind commas."""
    for at, token in enumerate(tokens[:-1]):
        is_word = token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER) and token.text.upper() in words
        if is_word or (commas and token.token_type == TokenType.COMMA):
            name = tokens[at + 1]
            dotted = at + 2 < len(tokens) and tokens[at + 2].token_type == TokenType.DOT
            if not dotted and name.token_type not in (TokenType.STRING, TokenType.L_PAREN):
                yield name.start
            if not commas:
                return
