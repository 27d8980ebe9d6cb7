"""What still makes sense: an operation whose tables, columns and views are there when its turn comes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.campaign.asking_again import every_select, types_now
from tests.campaign.queries import Query, Select, Stored, View, read_tables, read_views, relations, used_columns
from tests.campaign.schema import Reference, Table
from tests.campaign.statements import (
    AddColumn,
    AdHoc,
    Aim,
    AlterConstraint,
    AskMore,
    ChangeColumn,
    CreateView,
    Delete,
    DropColumn,
    DropView,
    Evict,
    Insert,
    Joined,
    Key,
    Lookup,
    Operation,
    RenameColumns,
    RenameTables,
    RetypeColumn,
    Update,
)
from tests.campaign.terms import Term


@dataclass(frozen=True, slots=True)
class Possible:
    """What there is just now."""

    tables: Mapping[str, Table]
    views: Mapping[str, View]

    def __call__(self, operation: Operation) -> bool:
        """False once shrinking, or a view that was not supported, has taken away what the operation speaks of."""
        match operation:
            case Aim(write):
                return self(write)
            case Insert(table, columns):
                return self._has(table, columns) and self._has_terms(table, [t for _, t in operation.assignments])
            case Update(table, assignments, where):
                return self._has(table, [name for name, _ in assignments]) and self._has_terms(
                    table, [*(t for _, t in assignments), *([where] if where else [])]
                )
            case Delete(table, where):
                return self._has(table, ()) and self._has_terms(table, [where] if where else [])
            case AddColumn(table, added):
                return self._has(table, ()) and not self._has(table, (added.name,))
            case RetypeColumn(table, column):
                used = {pair for view in self.views.values() for pair in used_columns(view.query)}
                is_free = self._has(table, (column.name,)) and (table, column.name) not in used
                known = self.tables.get(table)
                if known is None or column.name in (*known.primary_key, *known.read_columns, *known.naming):
                    return False
                others = (each for other in self.tables.values() for each in other.references)
                return is_free and all(each.parent != table or column.name not in each.key for each in others)
            case ChangeColumn(table, name):
                return self._has(table, (name,)) and self._is_changeable(operation, self.tables[table])
            case DropColumn(table, column):
                used = {pair for view in self.views.values() for pair in used_columns(view.query)}
                is_free = self._has(table, (column,)) and (table, column) not in used
                return is_free and column not in self.tables[table].key_columns
            case Joined(tables):
                terms = [operation.on, *([operation.where] if operation.where else [])]
                terms += [term for *_, term in operation.assignments]
                columns = {part.column for term in terms for part in term.walk() if part.column is not None}
                columns |= {(of, name) for of, name, _ in operation.assignments}
                is_there = all(self._has(of, (name,)) for of, name in columns)
                return is_there and all(each in self.tables for each in tables)
            case AlterConstraint(table):
                return table in self.tables and self._is_alterable(operation, self.tables[table])
            case RenameTables(tables):
                return all(each in self.tables for each in tables)
            case AskMore(table, columns, what):
                is_there = self._has(table, operation.names)
                return is_there and not (what == "PRIMARY KEY" and self.tables[table].primary_key)
            case RenameColumns(table, names):
                if not self._has(table, names) or self.tables[table].read_columns & set(names):
                    return False
                others = (each for other in self.tables.values() for each in other.references)
                return all(each.parent != table or set(each.key).isdisjoint(names) for each in others)
            case CreateView(view, spare):
                return any(v is not None and self.readable(v.query) for v in (view, spare))
            case AdHoc(query):
                return self.readable(query)
            case DropView(name):
                return name in self.views and all(
                    inner.name != name for view in self.views.values() for inner in read_views(view.query)
                )
            case Lookup(view_name) | Evict(view_name):
                return view_name in self.views
            case _:
                return True

    def _is_changeable(self, operation: ChangeColumn, table: Table) -> bool:
        name, column = operation.name, operation.column
        used = {pair for view in self.views.values() for pair in used_columns(view.query)}
        keyed = {each for key in (*table.unique, *table.indexes) for each in key} | table.read_columns
        if (table.name, name) in used or name in keyed or (column.name != name and column.name in table.names):
            return False
        named = {each for t in self.tables.values() for r in t.references if r.parent == table.name for each in r.key}
        after = operation.place.removeprefix(" AFTER ")
        is_there = operation.place in ("", " FIRST") or (after in table.names and after != name)
        keys = {*table.primary_key, table.shard_by, *table.naming, *named}
        return is_there and (column.declared == table.column(name).declared or name not in keys)

    def _is_alterable(self, operation: AlterConstraint, table: Table) -> bool:
        """Whether what comes is not there, and what goes is there, and nothing else needs it."""
        comes, tables = operation.comes, self.tables
        match operation.what:
            case Key(columns, unique):
                if comes:
                    has_shard = not unique or not table.spread or table.shard_by in columns
                    known = (*table.unique, *table.indexes)
                    return self._has(table.name, columns) and columns not in known and has_shard
                needed = any(
                    (each.parent == table.name and each.key == columns)
                    or (child is table and set(each.columns) & set(columns))
                    for child in tables.values()
                    for each in child.references
                )
                return columns in (table.unique if unique else table.indexes) and not needed
            case Reference(name, columns, parent, key):
                known_names = [each.name for each in table.references]
                if not comes:
                    return name in known_names
                is_there = name not in known_names and self._has(table.name, columns)
                if not is_there or set(columns) & (table.read_columns | table.naming):
                    return False
                may_be_null = all(table.column(each).nullable and each not in table.primary_key for each in columns)
                if "SET NULL" in (operation.what.on_delete, operation.what.on_update) and not may_be_null:
                    return False
                return is_there and parent in tables and key in tables[parent].keys
            case (name, condition):
                is_known = any(each == name for each, _ in table.checks)
                return (not is_known and self._has_terms(table.name, [condition])) if comes else is_known
        raise AssertionError(operation)

    def _has(self, table: str, columns: Sequence[str]) -> bool:
        return table in self.tables and set(columns) <= set(self.tables[table].names)

    def _has_terms(self, table: str, terms: Sequence[Term]) -> bool:
        names = [part.column[1] for term in terms for part in term.walk() if part.column is not None]
        names += [part.text[7:-1] for term in terms for part in term.walk() if part.text.startswith("VALUES(")]
        return self._has(table, names)

    def readable(self, query: Query) -> bool:
        return (
            all(self.views.get(view.name) is view for view in read_views(query))
            and all(table in self.tables for table in read_tables(query))
            and all(self._has(table, (name,)) for table, name in used_columns(query))
            and all(self._is_all_of_it(select) for select in every_select(query) if select.star)
            and all(self._has_types(relation) for relation in relations(query) if isinstance(relation, Stored))
        )

    def _has_types(self, relation: Stored) -> bool:
        """Whether no column came back with a type that it had not when the query was written."""
        now = dict(types_now(self.tables[relation.name]))
        return all(now.get(name, type) == type for name, type in relation.columns)

    def _is_all_of_it(self, select: Select) -> bool:
        """Whether ``*`` still means the columns that it meant: a view may have kept one from being dropped."""
        relation = select.sources[0].relation
        return not isinstance(relation, Stored) or self.tables[relation.name].names == tuple(
            name for name, _ in relation.columns
        )
