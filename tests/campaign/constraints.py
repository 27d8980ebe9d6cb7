"""Random CHECK conditions, generated columns and foreign keys, which tables are given after they are drawn."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from random import Random

from tests.campaign.expressions import Expressions
from tests.campaign.functions import install
from tests.campaign.judged_writes import Refused, completed, meets
from tests.campaign.kinds import DATE, INT, JSON, TXT, Kind, dec, draw
from tests.campaign.schema import Column, Reference, Table
from tests.campaign.statements import AlterConstraint, Key
from tests.campaign.terms import Term

_SAMPLES = 24
_OFTEN = 0.6
"""A condition that fewer rows meet would leave its table empty."""


@cache
def _calculator() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=0, check_same_thread=False)
    install(connection)
    return connection


def own_columns(table: Table) -> list[Term]:
    """As a table's definition names them."""
    return [Term(c.type, c.name, c.name, column=(table.name, c.name)) for c in table.columns]


def constrained(random: Random, table: Table) -> Table:
    """The table, perhaps with generated columns and checks."""
    for number in range(random.choices((0, 1, 2), (7, 3, 1))[0]):
        table = _with_generated(random, table, f"g{number}")
    checks = [
        (f"ch{n}_{table.name}", random_check(random, table)) for n in range(random.choices((0, 1, 2), (7, 3, 1))[0])
    ]
    return replace(table, checks=tuple((name, term) for name, term in checks if term is not None))


def random_check(random: Random, table: Table) -> Term | None:
    """A condition that many rows meet, and some do not."""
    rows = _samples(random, table)
    for _ in range(6):
        term = Expressions(random, own_columns(table), plain=True).boolean(1)
        asked = replace(table, checks=(("", term),))
        share = sum(meets(_calculator(), asked, row) for row in rows) / len(rows) if rows else 1.0
        if _OFTEN <= share < 1:
            return term
    return None


def random_generated(random: Random, table: Table, name: str) -> Column | None:
    """A column that is computed of others."""
    expressions = Expressions(random, own_columns(table), plain=True)
    for _ in range(6):
        term = expressions.value(random.choice((INT, INT, TXT, TXT, dec(2), DATE, JSON)), 1)
        read = {part.column[1] for part in term.walk() if part.column is not None}
        if not read or table.auto in read:  # MySQL lets none read what numbers rows.
            continue
        declared = {Kind.INT: "BIGINT", Kind.TXT: "VARCHAR(40)", Kind.DATE: "DATE", Kind.JSON: "JSON"}
        declared[Kind.DEC] = f"DECIMAL(20,{term.type.scale})"
        return Column(name, term.type.plain, declared[term.type.kind], generated=term, virtual=random.random() < 0.4)
    return None


def _with_generated(random: Random, table: Table, name: str) -> Table:
    column = random_generated(random, table, name)
    if column is None:
        return table
    table = replace(table, columns=(*table.columns, column))
    if column.can_be_key and random.random() < 0.3:
        table = replace(table, indexes=(*table.indexes, (name,)))
    elif column.can_be_key and random.random() < 0.2 and not table.spread:
        table = replace(table, unique=(*table.unique, (name,)))
    return table


def _samples(random: Random, table: Table) -> list[tuple[object, ...]]:
    """Rows that fit their columns."""
    found = []
    for _ in range(_SAMPLES):
        given = {c.name: draw(random, c.type) for c in table.columns if not c.nullable or random.random() < 0.85}
        try:
            found.append(completed(_calculator(), table, given))
        except Refused:
            continue
    return found


# --- foreign keys ---------------------------------------------------------------------------------------------------

_REACTIONS = ("RESTRICT", "NO ACTION", "CASCADE", "CASCADE", "CASCADE", "SET NULL", "SET NULL")


def referring(random: Random, table: Table, others: Sequence[Table]) -> Table:
    """The table, perhaps with foreign keys to tables that are there, or to itself, by columns of its own."""
    for number in range(random.choices((0, 1, 2), (4, 5, 2))[0]):
        parents = [each for each in (*others, table) if _keys(each)]
        if not parents:
            break
        parent = random.choice(parents)
        found = _with_reference(random, table, parent, random.choice(_keys(parent)), number)
        table = found or table
    return table


def _keys(table: Table) -> list[tuple[str, ...]]:
    return [key for key in table.keys if all(table.column(name).generated is None for name in key)]


def _with_reference(random: Random, table: Table, parent: Table, key: tuple[str, ...], number: int) -> Table | None:
    """None where a row would not be in the shard of the row that it names."""
    names = tuple(f"f{number}{place}" for place in range(len(key)))
    columns = [
        Column(name, parent.column(of).type, parent.column(of).declared) for name, of in zip(names, key, strict=True)
    ]
    on_delete, on_update = random.choice(_REACTIONS), random.choice(_REACTIONS)
    if parent.spread:
        if parent.name == table.name or table.naming:
            return None
        # It is spread as the parent is, by the column that names the parent's; so that is in each of its keys.
        by = names[key.index(parent.shard_by)]
        columns = [replace(c, nullable=c.name != by) for c in columns]
        unique = tuple((*each, by) for each in table.unique)
        on_delete, on_update = (each.replace("SET NULL", "CASCADE") for each in (on_delete, on_update))
        table = replace(
            table,
            primary_key=(*table.primary_key, by) if table.primary_key else (),
            unique=unique,
            shard_by=by,
            spread=True,
            clause=f" SHARD BY ({by})" + "".join(parent.clause.partition(" SHARDS")[1:]),
        )
    elif parent.shard_by and table.spread:
        if any(each.parent != table.name for each in table.references):
            return None
        table = replace(table, spread=False, clause=f" SHARD BY ({table.shard_by}) SHARDS 1")
    reference = Reference(f"fk{number}_{table.name}", names, parent.name, key, on_delete, on_update)
    return replace(table, columns=(*table.columns, *columns), references=(*table.references, reference))


# --- what comes and goes --------------------------------------------------------------------------------------------


def random_alteration(random: Random, table: Table, tables: Sequence[Table], number: int) -> AlterConstraint | None:
    """A key, a check or a foreign key that comes or goes; one that goes may have come or gone before."""
    match random.randrange(8):
        case 5 | 6 | 7:
            reference = _late_reference(random, table, tables, number)
            return AlterConstraint(table.name, reference, comes=True) if reference else None
        case 0 | 1:
            unique = random.random() < 0.5
            known = table.unique if unique else table.indexes
            if known and random.random() < 0.5:
                return AlterConstraint(table.name, Key(random.choice(known), unique), comes=False)
            names = [c.name for c in table.columns if c.can_be_key]
            some = random.sample(names, min(len(names), random.choice((1, 2))))
            if unique and table.spread and table.shard_by not in some:
                some.append(table.shard_by)
            some = some if all(table.column(name).can_be_key for name in some) else []
            return AlterConstraint(table.name, Key(tuple(some), unique), comes=True) if some else None
        case 2:
            term = random_check(random, table)
            return AlterConstraint(table.name, (f"late{number}_{table.name}", term), comes=True) if term else None
        case 3 if table.checks:
            return AlterConstraint(table.name, random.choice(table.checks), comes=False)
        case _ if table.references:
            return AlterConstraint(table.name, random.choice(table.references), random.random() < 0.5)
    return None


def _declared(column: Column) -> str:
    """``INTEGER`` is ``INT``."""
    return column.declared.replace("INTEGER", "INT")


def _late_reference(random: Random, table: Table, tables: Sequence[Table], number: int) -> Reference | None:
    """By a column that is there, whose rows may name none."""
    if table.spread:
        return None
    free = [c for c in table.columns if c.generated is None and c.name not in table.read_columns | table.naming]
    pairs = [
        (c, parent.name, key)
        for parent in tables
        if not parent.spread
        for key in _keys(parent)
        for c in free
        if len(key) == 1 and _declared(c) == _declared(parent.column(key[0]))
        if (parent.name, key) != (table.name, (c.name,))
    ]
    if not pairs:
        return None
    column, parent, key = random.choice(pairs)
    on_delete, on_update = random.choice(_REACTIONS), random.choice(_REACTIONS)
    return Reference(f"late{number}_{table.name}", (column.name,), parent, key, on_delete, on_update)
