"""Which shard a row belongs to: the same function in the planner, in every domain and in every process that routes.

Equal values must get equal shards whatever their type (an INTEGER joins a DECIMAL), and equal text in every process, so
Python's own ``hash`` will not do: it is salted for text.
"""

from __future__ import annotations

from decimal import Decimal
from zlib import crc32

from domains.language.collating.collation import Collation, key_of
from domains.language.types import TableSchema, Value
from domains.plan.graph import DomainIndex

SHARDS_MAX = 256
"""The most shards of a deployment. A shuffle has a link for every pair of shards: more of them would be links and
little else."""


def shard_of(value: Value, shards: int, collation: Collation | None = None) -> int:
    """The number of the shard, from 0, that has the rows with this value, of a column with that collation; or with
    this key. NULLs are all in the first."""
    if shards == 1 or value is None:
        return 0
    if collation is not None:
        value = key_of(value, collation)
    if isinstance(value, int):
        return value % shards
    if isinstance(value, Decimal):
        # Not by ``//``, which is limited to 28 digits where DECIMAL has 65.
        whole = value.to_integral_value()
        return int(whole) % shards if value == whole else crc32(str(float(value)).encode()) % shards
    if isinstance(value, float):
        return int(value) % shards if value.is_integer() else crc32(str(value).encode()) % shards
    return crc32(value if isinstance(value, bytes) else str(value).encode()) % shards


def base_shard(table: str, generation: int, shard: int, shards: int) -> str:
    """The name under which a clock counts one shard of a base table: ``votes``, ``votes@2``, ``votes~1@2``.

    **A name stands for one table, ever.** A table that is created where one of its name was dropped counts its
    positions from 1 again, while clients, api processes and archives go on holding those of the former one. So the
    name says which of them it is, by its ``generation``: a token for a former table makes nobody wait, and the later of
    two positions of one name is the later one. The generation is a function of the recipe, and therefore the same in
    every process, after a restart, and in what is restored. (Where the table's own name has a ``~`` it is always said,
    so that no two names meet.)
    """
    name = f"{table}~{max(0, generation)}" if generation > 0 or "~" in table else table
    return name if shards == 1 else f"{name}@{shard}"


def base_shards(schema: TableSchema, shards: int) -> list[str]:
    """The names of all shards of a table, of a deployment of so many."""
    return [base_shard(schema.name, schema.generation, shard, shards) for shard in range(schema.shards or shards)]


def table_of(base: str, shards: int) -> str:
    """The table of a base shard's name."""
    name = base if shards == 1 else base.rpartition("@")[0]
    return name.rpartition("~")[0] if "~" in name else name


def physical(group: DomainIndex, shard: int, shards: int) -> DomainIndex:
    """The domain that is shard ``shard`` of a group of nodes that stand together."""
    return DomainIndex(group * shards + shard)
