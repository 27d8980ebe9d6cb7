"""The meaning of SHARD BY for a table, and the limits of a table of several shards.

Each shard checks its keys by itself. So a key is one of the whole table only if rows that agree on it are in one shard:
it has to contain the column that decides the shard, and that column never changes in a stored row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from domains.errors import LimitExceeded, SqlError, Unsupported
from domains.language.types import TableColumn, TableSchema
from migrations.catalog import unknown
from migrations.parse.reading import ShardingClause


def sharded(schema: TableSchema, clause: ShardingClause | None, shards: int) -> TableSchema:
    """The schema of a new table in a deployment of so many shards.

    :raises UnknownName, LimitExceeded: there is no such column, or there are not as many shards.
    :raises SqlError: a key does not contain the column that decides the shard.
    """
    if clause is not None:
        at = schema.position(clause.column)
        if at is None:
            names = (schema.columns[position].name for position in schema.live())
            raise unknown("column", f"{schema.title}.{clause.column}", names, like=clause.column)
        if clause.shards > shards:
            raise LimitExceeded(
                f'table "{schema.title}" wants {clause.shards} shards, and the deployment has {shards}',
                hint=f"SHARDS {shards}, or leave it out",
            )
        schema = replace(schema, shard_by=at, shards=clause.shards)
    elif shards > 1:
        schema = _by_default(schema)
    if factor(schema, shards) > 1:
        _check_column(schema)
        check_keys(schema, shards)
    return schema


def _moves_by_itself(column: TableColumn) -> bool:
    """Whether no statement says its value: the shard that has the row finds it."""
    return column.generated is not None or column.on_update_now


def _check_column(schema: TableSchema) -> None:
    column = schema.columns[schema.shard_column]
    if _moves_by_itself(column):
        what = "is generated" if column.generated is not None else "has ON UPDATE CURRENT_TIMESTAMP"
        raise Unsupported(
            f'table "{schema.title}" sharded by "{column.name}", which {what}', hint="SHARD BY a column that is given"
        )


def _by_default(schema: TableSchema) -> TableSchema:
    """The schema spread by the first column of the primary key, or by another that all keys have; where they have none
    in common, a duplicate could only be found by asking other shards, so the table is not spread.

    It is written down: a column that is dropped later must not make another one the first.
    """
    keys = [key for key in (schema.primary_key, *schema.unique) if key]
    usual = schema.shard_column
    given = [column for column in (usual, *(keys[0] if keys else ())) if not _moves_by_itself(schema.columns[column])]
    common = [column for column in given if all(column in key for key in keys)]
    if not common:
        return replace(schema, shard_by=usual, shards=1)
    return replace(schema, shard_by=common[0])


def factor(schema: TableSchema, shards: int) -> int:
    """Over how many shards the table is spread; ``shards`` is the deployment's."""
    return schema.shards or shards


def check_keys(schema: TableSchema, shards: int) -> TableSchema:
    """:raises SqlError: the table is spread, and a key does not contain the column that decides the shard."""
    if factor(schema, shards) == 1:
        return schema
    column = schema.columns[schema.shard_column].name
    for key in (schema.primary_key, *schema.unique):
        if key and schema.shard_column not in key:
            kind = "PRIMARY KEY" if key == schema.shown_key else "UNIQUE"
            names = ", ".join(schema.columns[at].name for at in key)
            raise SqlError(
                f'{kind} ({names}) of table "{schema.title}" does not contain "{column}", by which it is sharded',
                hint=f"SHARD BY ({schema.columns[key[0]].name}), add {column} to the key, or SHARD BY (…) SHARDS 1",
            )
    return schema


def refuse_moving(schema: TableSchema, assigned: Iterable[int], shards: int) -> None:
    """:raises Unsupported: an UPDATE sets the column that decides in which shard a row is."""
    if factor(schema, shards) > 1 and schema.shard_column in assigned:
        column = schema.columns[schema.shard_column].name
        raise Unsupported(
            f'UPDATE of "{schema.title}.{column}", by which the table is sharded',
            hint="DELETE the row and INSERT it again with the new value",
        )


def refuse_dropping(schema: TableSchema, at: int) -> None:
    """:raises Unsupported: the column decides in which shard a row is."""
    if schema.shard_by == at:
        raise Unsupported(
            f'dropping column "{schema.title}.{schema.columns[at].name}", by which the table is sharded',
            hint="make a new table and copy: INSERT … SELECT",
        )
