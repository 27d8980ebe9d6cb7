"""The names of a FROM clause: what a source's columns are called, and which of them a join shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from domains.errors import SqlError, Unsupported
from domains.language.expressions import Field
from migrations.catalog import unknown
from migrations.parse.reading import exp
from migrations.query.expressions.scope import Bound, Scope
from migrations.query.sources.tree import Inner, Source


@dataclass(frozen=True, slots=True)
class NamedSource:
    """A source and the names that its columns have, in the order of ``*``."""

    source: Source
    bounds: tuple[Bound, ...]


def beside_each_other(parts: Sequence[NamedSource]) -> NamedSource:
    """What commas separate."""
    for at, part in enumerate(parts):
        for earlier in parts[:at]:
            refuse_same_alias(earlier, part)
    if len(parts) == 1:
        return parts[0]
    bounds = tuple(bound for part in parts for bound in part.bounds)
    return NamedSource(Inner(tuple(part.source for part in parts)), bounds)


def alias_of(node: exp.Lateral) -> str:
    if not node.alias:
        raise SqlError("every derived table must have an alias of its own")
    return node.alias


def json_alias(node: exp.Lateral) -> str:
    if not node.alias:
        raise SqlError("JSON_TABLE must have an alias", hint="JSON_TABLE(…) AS t")
    if alias_columns(node):
        raise SqlError("the names of JSON_TABLE's columns are in COLUMNS", hint="JSON_TABLE(…) AS t, without names")
    return node.alias


def alias_columns(node: exp.Expr) -> list[str]:
    alias = node.args.get("alias")
    return [column.name for column in alias.columns] if isinstance(alias, exp.TableAlias) else []


def refuse_same_alias(left: NamedSource, right: NamedSource) -> None:
    taken = {bound.table.lower() for bound in left.bounds}
    for bound in right.bounds:
        if bound.table.lower() in taken:
            raise SqlError(f'the table name "{bound.table}" is not unique', hint="give one of them an alias")


def field_of(side: NamedSource, name: str) -> Field:
    found = Scope(side.bounds).find(name)
    if found is None:
        raise unknown("column", name, (bound.name for bound in side.bounds))
    return found


def write_out(join: exp.Join, shared: Sequence[str]) -> None:
    """NATURAL JOIN as the JOIN … USING (or CROSS JOIN) that it is today."""
    join.set("method", None)
    if shared:
        join.set("using", [exp.to_identifier(name, quoted=True) for name in shared])
    elif join.side:
        join.set("on", exp.true())


class Named(Protocol):
    """What has names for its columns, in the order of ``*``."""

    @property
    def bounds(self) -> tuple[Bound, ...]: ...


def merged_names(left: Named, right: Named, shared: Sequence[str], side: str) -> tuple[Bound, ...]:
    """The names after a join: in ``*`` a USING column counts once and comes first, then what else the side has that is
    kept."""
    if not shared:
        return (*left.bounds, *right.bounds)
    names = {name.lower() for name in shared}
    kept, other = (right, left) if side == "RIGHT" else (left, right)
    first = tuple(b for b in kept.bounds if b.name.lower() in names)
    hidden = tuple(replace(b, merged=True) for b in other.bounds if b.name.lower() in names)
    rest = tuple(b for b in (*kept.bounds, *other.bounds) if b.name.lower() not in names)
    return (*first, *hidden, *rest)


def is_comma(join: exp.Join) -> bool:
    plain_join = not (join.side or join.kind or join.method)
    return plain_join and join.args.get("on") is None and not join.args.get("using")


def without_alias(node: exp.Subquery) -> exp.Expr:
    modifiers = [key for key in ("order", "limit", "offset", "with_") if node.args.get(key) is not None]
    return node if modifiers else node.this


def reads_both() -> Unsupported:
    return Unsupported(
        "a subquery in the ON of an outer join that reads both of its sides",
        hint="have it read one of them, or join with a derived table",
    )
