"""FOREIGN KEY and REFERENCES: what is declared, and where it can be kept.

A shard checks its rows by itself, in the step that writes them. So a foreign key is enforced where **each row is in the
shard of the row that it names**, whatever the rows are:

* in a deployment of one shard;
* where both tables are in one shard (SHARDS 1), which is the first;
* where both are spread over as many shards, and the column by which the child is sharded refers to the one by which the
  parent is: equal values are in one shard.

Elsewhere the parent's row may be in another shard. Asking it without holding it would let an insert of a child and the
removal of its parent pass each other, so that is refused, or declared NOT ENFORCED, which SHOW CREATE TABLE says.

REFERENCES behind a column is a foreign key too, as in MariaDB and MySQL 9; MySQL 8 reads over it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from domains.errors import AlreadyExists, SqlError, StillInUse, UnknownName, Unsupported
from domains.language.types import ForeignKey, Kind, Reaction, SqlType, TableSchema
from domains.store.widening import kept_foreign_keys, widening
from migrations.catalog import Catalog, unknown
from migrations.parse.reading import Parsed, exp, nodes
from migrations.parse.writing import quote
from migrations.statements.definitions.columns import key_columns
from migrations.statements.definitions.sharded import factor
from migrations.statements.names import checked, relation_name, without_schema

NOT_ENFORCED = "NOT ENFORCED"


@dataclass(frozen=True, slots=True)
class DeclaredKey:
    """A foreign key as the text has it."""

    name: str
    """"": it has none."""
    index: str
    """What the index is to be called that it may need."""
    columns: list[exp.Expr]
    reference: exp.Reference


def declared_keys(items: Iterable[exp.Expr]) -> Iterator[DeclaredKey]:
    """The foreign keys among the parts of CREATE TABLE, or of ADD CONSTRAINT."""
    for item in items:
        if isinstance(item, exp.ColumnDef):
            for constraint in item.args.get("constraints") or ():
                kind = constraint.args.get("kind") or constraint
                if isinstance(kind, exp.Reference):
                    named = constraint.this.name if isinstance(constraint.this, exp.Identifier) else ""
                    yield DeclaredKey(named, named, [exp.to_identifier(item.name)], kind)
            continue
        named = item.name if isinstance(item, exp.Constraint) else ""
        for part in item.expressions if isinstance(item, exp.Constraint) else [item]:
            if isinstance(part, exp.ForeignKey):
                yield DeclaredKey(named, named or part.name, part.expressions, part.args["reference"])


def with_foreign_key(schema: TableSchema, declared: DeclaredKey, catalog: Catalog) -> TableSchema:
    """The schema with one more foreign key.

    :raises Unsupported: it cannot be kept: the parent's rows may be in other shards, and what to do is said.
    :raises UnknownName: there is no such table or column. :raises AlreadyExists: a constraint has its name.
    :raises SqlError: the columns do not fit, or name no unique key, or cannot be NULL and are to be set so.
    """
    columns = key_columns(schema, declared.columns, "FOREIGN KEY")
    on_delete, on_update, enforced = _options(declared.reference)
    target = declared.reference.this
    parent = relation_name(target)
    key = tuple(part.name for part in target.expressions) if isinstance(target, exp.Schema) else ()
    name = _name(schema, declared.name)
    foreign = ForeignKey(name, columns, parent, key, on_delete, on_update, enforced)
    if enforced:
        foreign = _resolved(schema, foreign, catalog)
        _check_reactions(schema, foreign)
        _check_shards(schema, foreign, catalog)
    return replace(schema, foreign_keys=(*schema.foreign_keys, foreign))


def has_index_for(schema: TableSchema, columns: tuple[int, ...]) -> bool:
    """Whether some key begins with these columns, in any order."""
    wanted, count = sorted(columns), len(columns)
    keys = (schema.primary_key, *schema.unique, *schema.indexes)
    return any(sorted(key[:count]) == wanted for key in keys)


_WAYS = {"ON DELETE": 0, "ON UPDATE": 1}


def _options(reference: exp.Reference) -> tuple[Reaction, Reaction, bool]:
    reactions, enforced = [Reaction.NO_ACTION, Reaction.NO_ACTION], True
    for option in reference.args.get("options") or ():
        text = " ".join(str(option).upper().split())
        way, said = text[:9], text[10:]
        if way in _WAYS and said in set(Reaction):
            reactions[_WAYS[way]] = Reaction(said)
        elif way in _WAYS:
            raise Unsupported(f"{way} {said} of a foreign key", hint="RESTRICT, CASCADE or SET NULL; as in InnoDB")
        elif text in (NOT_ENFORCED, "ENFORCED"):
            enforced = text == "ENFORCED"
        elif text != "MATCH SIMPLE":
            raise Unsupported(f"{text} of a foreign key", hint="a key with a NULL in it names no row: MATCH SIMPLE")
    return reactions[0], reactions[1], enforced


def _name(schema: TableSchema, name: str) -> str:
    """One without a name is called as MySQL calls it (``t_ibfk_1``).

    :raises AlreadyExists: a constraint of the table has this name.
    """
    taken = {each.name.lower() for each in schema.foreign_keys} | {each.name.lower() for each in schema.checks}
    if name and name.lower() in taken:
        raise AlreadyExists(f'constraint "{name}" of table "{schema.title}" exists')
    if name:
        return checked(name, "constraint")
    number, own = 1, without_schema(schema.title)
    while f"{own}_ibfk_{number}".lower() in taken:
        number += 1
    return f"{own}_ibfk_{number}"


def parent_of(schema: TableSchema, foreign: ForeignKey, catalog: Catalog) -> TableSchema:
    """Of one that is enforced."""
    return schema if foreign.parent.lower() == schema.name.lower() else catalog.tables[foreign.parent.lower()]


def _resolved(schema: TableSchema, foreign: ForeignKey, catalog: Catalog) -> ForeignKey:
    """The key with names as the parent has them; without columns it is the parent's PRIMARY KEY."""
    named = foreign.parent.lower()
    if named in catalog.views and named != schema.title.lower():
        raise SqlError(f'foreign key "{foreign.name}" names view "{foreign.parent}"', hint="name a table")
    try:
        parent = schema if named == schema.title.lower() else catalog.table(foreign.parent)
    except UnknownName as error:
        error.message = f'foreign key "{foreign.name}" of table "{schema.title}": {error.message}'
        error.hint = error.hint or f"create it first, or declare the key {NOT_ENFORCED}"
        raise
    places: list[int] = []
    for name in foreign.key or [parent.columns[at].name for at in parent.shown_key]:
        at = parent.position(name)
        if at is None:
            raise unknown("column", f"{parent.title}.{name}", [parent.columns[each].name for each in parent.live()])
        places.append(at)
    names = ", ".join(parent.columns[at].name for at in places)
    if len(places) != len(foreign.columns):
        raise SqlError(
            f'foreign key "{foreign.name}" has {len(foreign.columns)} columns, and names {len(places)} of '
            f'table "{parent.title}"'
        )
    if sorted(places) not in [sorted(key) for key in (parent.primary_key, *parent.unique)]:
        raise SqlError(
            f'foreign key "{foreign.name}": ({names}) is neither PRIMARY KEY nor a UNIQUE key of table '
            f'"{parent.title}"',
            hint="name a unique key, whole",
        )
    for own, other in zip(foreign.columns, places, strict=True):
        one, two = schema.columns[own], parent.columns[other]
        if _compared(one.type) != _compared(two.type):
            raise SqlError(
                f'foreign key "{foreign.name}": column "{schema.title}.{one.name}" is {one.type}, and '
                f'"{parent.title}.{two.name}" is {two.type}',
                hint="declare both with one type",
            )
    return replace(foreign, parent=parent.name, key=tuple(parent.columns[at].name for at in places))


def _compared(type: SqlType) -> SqlType:
    """Texts and bytes may have different lengths, as in MySQL."""
    is_free = type.kind in (Kind.TEXT, Kind.BLOB) and not type.members
    return replace(type, name="", length=None) if is_free else type


def _check_reactions(schema: TableSchema, foreign: ForeignKey) -> None:
    setting_null = Reaction.SET_NULL in (foreign.on_delete, foreign.on_update)
    changing = setting_null or foreign.on_update is Reaction.CASCADE
    for at in foreign.columns:
        column = schema.columns[at]
        if setting_null and (not column.nullable or at in schema.shown_key):
            raise SqlError(f'foreign key "{foreign.name}" would set "{column.name}" to NULL, which is NOT NULL')
        if changing and column.generated is not None:
            raise SqlError(f'foreign key "{foreign.name}" would set "{column.name}", which is generated')


def _check_shards(schema: TableSchema, foreign: ForeignKey, catalog: Catalog) -> None:
    """See the module."""
    parent = parent_of(schema, foreign, catalog)
    own, others = factor(schema, catalog.shards), factor(parent, catalog.shards)
    if own == others == 1:
        return
    by = schema.columns[schema.shard_column].name
    referred = parent.columns[parent.shard_column].name
    pairs = dict(zip((schema.columns[at].name for at in foreign.columns), foreign.key, strict=True))
    if own != others or pairs.get(by) != referred:
        wanted = next((each for each, other in pairs.items() if other == referred), None)
        if own == others and wanted is not None:
            hint = f"SHARD BY ({quote(wanted)}), which a PRIMARY KEY has to contain; "
        else:
            hint = ""
        raise Unsupported(
            f'foreign key "{foreign.name}": rows of "{schema.title}" ({_spread(schema, own)}) and the rows of '
            f'"{parent.title}" that they name ({_spread(parent, others)}) may be in different shards',
            hint=f"{hint}SHARD BY (…) SHARDS 1 for both tables; or {NOT_ENFORCED} behind REFERENCES",
        )
    if Reaction.SET_NULL in (foreign.on_delete, foreign.on_update):
        raise Unsupported(
            f'foreign key "{foreign.name}" would set "{by}" to NULL, by which table "{schema.title}" is sharded',
            hint="CASCADE or RESTRICT; or SHARD BY (…) SHARDS 1 for both tables",
        )


def _spread(schema: TableSchema, shards: int) -> str:
    name = schema.columns[schema.shard_column].name
    return "in 1 shard" if shards == 1 else f"in {shards} shards by {name}"


# --- tables that are referred to ------------------------------------------------------------------------------------


def referring(catalog: Catalog, name: str) -> list[tuple[TableSchema, ForeignKey]]:
    """The enforced foreign keys that name a table, and whose they are."""
    return [
        (child, key)
        for child in catalog.tables.values()
        for key in child.foreign_keys
        if key.enforced and key.parent.lower() == name.lower()
    ]


def refuse_referred(catalog: Catalog, table: TableSchema, what: str) -> None:
    """:raises StillInUse: a foreign key of another table names it, as in MySQL (errors 1701, 3730)."""
    for child, key in referring(catalog, table.name):
        if child.name != table.name:
            raise StillInUse(
                f'foreign key "{key.name}" of table "{child.title}" names table "{table.title}", '
                f"which cannot be {what}",
                hint=f'ALTER TABLE {child.title} DROP FOREIGN KEY {key.name} first, or drop "{child.title}"',
            )


def refuse_ignoring(catalog: Catalog, table: TableSchema, names: Collection[str]) -> None:
    """:raises Unsupported: UPDATE IGNORE of columns of a foreign key, which is looked after when the statement is done,
    and not row by row."""
    titles = {table.columns[at].name.lower() for key in table.foreign_keys if key.enforced for at in key.columns}
    titles |= {name.lower() for _, key in referring(catalog, table.name) for name in key.key}
    generated = [table.columns[at].name for at in table.live() if table.columns[at].generated is not None]
    met = next((name for name in (*names, *generated) if name.lower() in titles), None)
    if met is not None:
        raise Unsupported(f'UPDATE IGNORE of "{met}", a column of a foreign key', hint="leave IGNORE out")


def refuse_unread(
    before: TableSchema, after: TableSchema, altered: Mapping[str, TableSchema], catalog: Catalog
) -> None:
    """:raises Unsupported: a foreign key comes that stored rows cannot be checked by: a column of its table has values
    only once the change is made; or the parent, which the same change has altered, is stored without what it names."""
    widen = widening(before, after)
    kept = kept_foreign_keys(before, after)
    padding = dict(enumerate(widen.constants, widen.width)) | dict.fromkeys(widen.computed, "")
    for key in after.foreign_keys:
        if not key.enforced or key in kept:
            continue
        parent = parent_of(after, key, catalog)
        stored = altered.get(parent.name, parent)
        if any(stored.position(name) != parent.position(name) for name in key.key):
            raise Unsupported(
                f'foreign key "{key.name}" names a column of "{key.parent}" that the same migration adds or renames',
                hint=f"ALTER TABLE {key.parent} in a migration before it",
            )
        if all(padding.get(at, "") is not None for at in key.columns) and not padding.keys().isdisjoint(key.columns):
            raise Unsupported(
                f'foreign key "{key.name}" of a column that comes with values',
                hint="ADD COLUMN in a migration before it, or with DEFAULT NULL",
            )


def refuse_broken(catalog: Catalog, before: TableSchema, after: TableSchema) -> None:
    """:raises StillInUse: an enforced foreign key needs a column or an index that changes, as in MySQL."""
    kept = {key.name for key in after.foreign_keys}
    pairs = list(enumerate(zip(before.columns, after.columns, strict=False)))
    retyped = {at for at, (one, two) in pairs if (one.type, one.dropped) != (two.type, two.dropped)}
    filled = {at for at, (one, two) in pairs if one.nullable and not two.nullable}
    for key in before.foreign_keys:
        if key.enforced and key.name in kept:
            sets_null = Reaction.SET_NULL in (key.on_delete, key.on_update)
            for at in (retyped | filled if sets_null else retyped).intersection(key.columns):
                raise _needed(before, key, f'column "{before.name}.{before.columns[at].name}"')
            if not has_index_for(after, key.columns):
                raise _needed(before, key, "the index")
    names = {before.columns[at].name.lower() for at in retyped}
    keys = (key for key in (after.primary_key, *after.unique) if max(key, default=0) < len(before.columns))
    unique = [{before.columns[at].name.lower() for at in key} for key in keys]
    for child, key in referring(catalog, before.name):
        if child.name == before.name and key.name not in kept:
            continue
        named = {name.lower() for name in key.key}
        for name in named & names:
            raise _needed(child, key, f'column "{before.name}.{name}"')
        if named not in unique:
            raise _needed(child, key, f'the unique key of table "{before.name}"')


def _needed(child: TableSchema, key: ForeignKey, what: str) -> StillInUse:
    return StillInUse(
        f'foreign key "{key.name}" of table "{child.title}" needs {what}',
        hint=f"ALTER TABLE {child.title} DROP FOREIGN KEY {key.name} first",
    )


def without_foreign_key(schema: TableSchema, name: str) -> TableSchema | None:
    """None: it has none of this name. An entry of before may have the database in it."""
    names = (name.lower(), without_schema(name.lower()))
    left = tuple(key for key in schema.foreign_keys if key.name.lower() not in names)
    return replace(schema, foreign_keys=left) if len(left) < len(schema.foreign_keys) else None


# --- as text, and as an earlier version took it ---------------------------------------------------------------------


def foreign_key_text(schema: TableSchema, foreign: ForeignKey, parent: str) -> str:
    """The clause of CREATE TABLE. ``parent`` is what SQL calls it, in backquotes."""
    columns = ", ".join(quote(schema.columns[at].name) for at in foreign.columns)
    words = [f"CONSTRAINT {quote(foreign.name)} FOREIGN KEY ({columns}) REFERENCES {parent}"]
    words += [f"({', '.join(map(quote, foreign.key))})"] if foreign.key else []
    for way, reaction in (("DELETE", foreign.on_delete), ("UPDATE", foreign.on_update)):
        words += [f"ON {way} {reaction}"] if reaction is not Reaction.NO_ACTION else []
    return " ".join([*words, *([] if foreign.enforced else [NOT_ENFORCED])])


def as_ignored(parsed: Parsed) -> Parsed:
    """A statement that an earlier version took, which read over foreign keys: they are declared NOT ENFORCED, and one
    that is dropped need not be there."""
    tree = parsed.expression.copy()
    own = {node.name.lower() for node in tree.find_all(exp.ColumnDef)}
    taken: set[str] = set()
    for node in list(nodes(tree)):
        if isinstance(node, exp.Reference):
            said = [option for option in node.args.get("options") or () if str(option).upper().startswith("ON ")]
            node.set("options", [*(each for each in said if "DEFAULT" not in str(each).upper()), NOT_ENFORCED])
        elif isinstance(node, exp.Drop) and node.args.get("kind") in ("FOREIGN KEY", "CONSTRAINT"):
            node.set("exists", True)
        elif isinstance(node, exp.Constraint):
            if node.name.lower() in taken and node.find(exp.ForeignKey):
                node.replace(node.expressions[0])
            taken.add(node.name.lower())
    if isinstance(tree, exp.Create):
        for key in list(tree.find_all(exp.ForeignKey)):
            if not own.issuperset(part.name.lower() for part in key.expressions):
                (key.parent if isinstance(key.parent, exp.Constraint) else key).pop()
    return replace(parsed, expression=tree)
