"""Random INSERT, REPLACE, UPDATE, DELETE; most of them right, some in violation of a constraint or a type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from tests.campaign.expressions import Expressions
from tests.campaign.judged_writes import NO_DOCUMENT
from tests.campaign.kinds import DBL, INT, Kind, Value, dec, draw
from tests.campaign.schema import Column, Table
from tests.campaign.statements import Assignment, Delete, Insert, Joined, Update, Write
from tests.campaign.terms import Term, arithmetic, call, column, constant, exact, same


def random_write(random: Random, table: Table) -> Write:
    roll = random.random() + 0.15 * table.is_parent
    if roll < 0.6:
        return random_insert(random, table)
    if roll < 0.86 + 0.1 * table.is_parent:
        return _varied(random_update(random, table), table)
    return _varied(Delete(table.name, _condition(random, table)), table)


def random_joined(random: Random, tables: Sequence[Table]) -> Joined | None:
    """DELETE or UPDATE of one or both of two tables that stand whole in one shard."""
    whole = [table for table in tables if not table.spread]
    if len(whole) < 2:
        return None
    one, two = random.sample(whole, 2)
    pairs = [(a, b) for a in scope_of(one) for b in scope_of(two) if a.type.kind == b.type.kind and a.type != DBL]
    if not pairs:
        return None
    on = same(INT, "({0} = {1})", *random.choice(pairs))
    where = _condition(random, one) if random.random() < 0.6 else None
    where = None if Random(repr(on)).random() < 0.6 else where  # Few rows of one match rows of the other anyway.
    names = (one.name, two.name)
    written = random.choice((names, names[:1], names[1:]))
    if random.random() < 0.4:
        return Joined(names, written, on, where)
    assignments: list[tuple[str, str, Term]] = []
    for table in (one, two):
        if table.name in written:
            assignments += [(table.name, *each) for each in _assignments(random, table, inserted=False)[:1]]
    return Joined(names, tuple(dict.fromkeys(each[0] for each in assignments)), on, where, tuple(assignments))


def random_insert(random: Random, table: Table, rows: int | None = None) -> Insert:
    """One to five rows; nullable columns and those with a default may be left out."""
    mode = random.choices(("", "ignore", "replace", "update"), (5, 2, 2, 2))[0]
    if mode == "update" and not table.keys:
        mode = ""
    own = [c for c in table.columns if c.generated is None]
    shown = [c for c in own if _required(c, table) or random.random() < 0.85] or own[:1]
    random.shuffle(shown)
    count = rows or random.choices((1, 2, 3, 5), (6, 3, 2, 1))[0]
    wrong = mode == "" and rows is None and random.random() < 0.04
    drawn = [tuple(_value(random, c, table) for c in shown) for _ in range(count)]
    if wrong:
        drawn[-1] = _spoiled(random, shown, drawn[-1])
    if table.keys == () and random.random() < 0.3:
        drawn.append(drawn[0])
    assignments = _assignments(random, table, inserted=True) if mode == "update" else ()
    if mode == "update" and not assignments:  # What decides the shard is all that there is.
        mode = "ignore"
    return Insert(table.name, tuple(c.name for c in shown), tuple(drawn), mode, assignments)


def random_update(random: Random, table: Table) -> Update | Delete:
    """A DELETE where nothing can be set."""
    assignments, where = _assignments(random, table, inserted=False), _condition(random, table)
    return Update(table.name, assignments, where) if assignments else Delete(table.name, where)


def _varied(write: Update | Delete, table: Table) -> Update | Delete:
    """Now and then with RAND(), or IGNORE. The rest of the case is the same without it."""
    random = Random(repr(write))
    write = replace(write, drawn=random.random() < 0.1)
    if isinstance(write, Update) and table.primary_key and random.random() < 0.25:
        keys = table.naming | (
            frozenset(name for key in table.keys for name in key) if table.is_parent else frozenset()
        )
        own = [table.column(name) for name in table.primary_key if name not in keys and name != table.shard_by]
        if own and random.random() < 0.6:  # Rows that meet each other.
            chosen = random.choice(own)
            assigned = ((chosen.name, constant(draw(random, chosen.type), chosen.type)),)
            write = replace(write, assignments=assigned, where=write.where if random.random() < 0.5 else None)
        return replace(write, ignore=keys.isdisjoint(name for name, _ in write.assignments))
    return write


def _required(column: Column, table: Table) -> bool:
    return (not column.nullable or column.name in table.primary_key) and not column.has_default


def _value(random: Random, column: Column, table: Table) -> Value:
    often = 0.08 if column.name in table.naming else 0.18
    if column.nullable and column.name not in table.primary_key and random.random() < often:
        return None
    if table.primary_key == (column.name,) and column.type == INT and random.random() < 0.8 - 0.6 * table.is_parent:
        return random.randint(0, 24)
    if column.type.is_set and random.random() < 0.5:
        return ",".join(random.choices(column.type.members, k=random.choice((1, 2, 2, 3))))
    return draw(random, column.type)


def _spoiled(random: Random, columns: list[Column], row: tuple[Value, ...]) -> tuple[Value, ...]:
    """One value that its column refuses."""
    position = random.randrange(len(columns))
    column = columns[position]
    bad: Value = None if not column.nullable else "no number"
    if column.type.kind is Kind.JSON:
        bad = NO_DOCUMENT
    elif column.type.members:
        bad = "none of them"
    elif column.type.kind is Kind.TXT and column.width is not None:
        bad = "longer than the column" if column.nullable else None
    elif column.type.kind is Kind.TXT:
        return row if column.nullable else (*row[:position], None, *row[position + 1 :])
    elif column.type.kind is Kind.DATE and column.nullable:
        bad = "2024-02-31"
    elif column.type.kind is Kind.DEC and column.nullable:
        bad = 123456789
    return (*row[:position], bad, *row[position + 1 :])


def _condition(random: Random, table: Table) -> Term | None:
    """WHERE: by key mostly, else anything; rarely absent."""
    roll = random.random()
    scope = scope_of(table)
    expressions = Expressions(random, scope, plain=True)
    if roll < 0.02:
        return None
    if roll < 0.8:
        names = random.choice(table.keys) if table.keys else (random.choice(table.names),)
        chosen = next(term for term in scope if term.column == (table.name, names[0]))
        if chosen.type.kind not in (Kind.DBL, Kind.JSON):
            return expressions.comparison(chosen, constant(draw(random, chosen.type), chosen.type), "=")
    return expressions.boolean(1)


def scope_of(table: Table) -> list[Term]:
    return [column(table.name, c.name, c.type) for c in table.columns]


def _assignments(random: Random, table: Table, *, inserted: bool) -> tuple[Assignment, ...]:
    """SET, over columns that an earlier assignment has not changed (MySQL would see the new value there).

    What decides a row's shard is not set.
    """
    own = [c for c in table.columns if c.generated is None]
    free = [c for c in own if not (table.spread and c.name == table.shard_by)]
    chosen = random.sample(free, min(len(free), random.choice((1, 1, 2))))
    if table.is_parent and random.random() < 0.4:
        chosen = [c for c in free if any(c.name in key for key in table.keys)][:1] or chosen
    changed: set[str] = set()
    found = []
    for target in chosen:
        scope = [term for term in scope_of(table) if term.column is not None and term.column[1] not in changed]
        if changed:  # MySQL would see what is computed of the new value.
            scope = [term for term in scope if table.column(term.column[1]).generated is None]  # type: ignore[index]
        if inserted:
            scope += [_inserted(c) for c in own]
        found.append((target.name, _assigned(random, target, table, scope)))
        changed.add(target.name)
    return tuple(found)


def _inserted(c: Column) -> Term:
    """The value that was to be inserted."""
    return call(c.type.plain, f"VALUES({c.name})", f"inserted.{c.name}")


def _assigned(random: Random, target: Column, table: Table, scope: list[Term]) -> Term:
    nullable = target.nullable and target.name not in table.primary_key
    if nullable and random.random() < 0.1:
        return constant(None, target.type)
    if target.type == INT and random.random() < 0.3:
        numbers = [term for term in scope if term.type == INT]
        if numbers:
            return arithmetic("+", random.choice(numbers), constant(random.choice((1, 2, -1)), INT))
    expressions = Expressions(random, scope, plain=True)
    if random.random() < (0.6 if target.type.members else 0.0 if nullable else 0.8):
        return constant(draw(random, target.type), target.type)
    term = expressions.value(target.type, 1 if target.type.kind is not Kind.TXT else 0)
    if target.type.kind is Kind.DEC and term.type.scale > 2:
        return call(dec(2), "ROUND({0}, 2)", exact(dec(2), "{0}"), term)
    return term
