"""What an insert of rows does where a PRIMARY KEY or UNIQUE is taken already: the table calls' form of what SQL has.

============  =====================================================================================
``error``     INSERT: nothing is done
``ignore``    INSERT IGNORE: such a row is left out
``replace``   REPLACE: the rows that stand in the way go
``update``    ON DUPLICATE KEY UPDATE c = VALUES(c), for some columns ``c`` of the row that is there
============  =====================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from domains.errors import BadRequest
from domains.expressions import Expression, Field
from domains.types import TableSchema
from migrations.statements.names import column_position
from migrations.statements.sharded import refuse_moving

Act = Literal["error", "ignore", "replace", "update"]


@dataclass(frozen=True, slots=True)
class OnDuplicate:
    act: Act = "error"
    columns: tuple[str, ...] | None = None
    """For ``update``, what is set to the values of the row that was to be inserted. None: whatever the rows give that
    stands in no PRIMARY KEY or UNIQUE."""

    def __post_init__(self) -> None:
        """:raises BadRequest: columns are named that nothing is done with."""
        if self.columns is not None and self.act != "update":
            raise BadRequest(
                f'"update" names columns, and "on_duplicate" is "{self.act}"', hint='"on_duplicate": "update"'
            )


REFUSED = OnDuplicate()


def updated_columns(schema: TableSchema, duplicate: OnDuplicate, given: Sequence[int], shards: int) -> tuple[int, ...]:
    """The positions that ``update`` sets; ``given`` are those that the first row gives.

    :raises UnknownName: no such column; with the nearest.
    :raises BadRequest: a column is named twice.
    :raises Unsupported: it is the column that decides the shard.
    """
    if duplicate.columns is None:
        keys = {at for key in (schema.primary_key, *schema.unique) for at in key}
        return tuple(at for at in given if at not in keys)
    positions = tuple(column_position(schema, name) for name in duplicate.columns)
    if len(set(positions)) < len(positions):
        raise BadRequest('"update" names a column twice')
    refuse_moving(schema, positions, shards)
    return positions


def assigned(schema: TableSchema, positions: Sequence[int]) -> tuple[tuple[int, Expression], ...]:
    """``c = VALUES(c)`` for each, over the stored row followed by the row that was to be inserted."""
    width = len(schema.columns)
    return tuple((at, Field(width + at, schema.columns[at].type)) for at in positions)
