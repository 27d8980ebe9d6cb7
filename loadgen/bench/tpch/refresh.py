"""The refresh functions of TPC-H: RF1 inserts new orders with their lineitems, RF2 deletes old ones with theirs.

Loaded orders have eight of 32 keys (``k & 24`` is 0), which leaves holes for new ones. The benchmark's own generator
makes the rows of a refresh as it makes loaded ones. Here a new order is a loaded one drawn at random, for another
customer and with other parts, each from one of its suppliers and at its own price; so its dates, sizes and flags are
spread as those of the loaded ones are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from random import Random

from domains.language.types import Row
from loadgen.bench.tpch.data import Recomputed

HOLE = 8
"""How far a new order's key is from that of the loaded one that it is made of."""
CENT = Decimal("0.01")


@dataclass(frozen=True, slots=True)
class Refresh:
    """Rows of both tables that are new, and the keys of orders that go."""

    orders: tuple[Row, ...]
    lineitems: tuple[Row, ...]
    deleted: tuple[int, ...]

    def apply(self, peer: Recomputed) -> int:
        """Do it there; answers how many rows were inserted and deleted."""
        gone = ", ".join(map(str, self.deleted))
        changed = 0
        for table, rows, key in (("orders", self.orders, "o_orderkey"), ("lineitem", self.lineitems, "l_orderkey")):
            peer.insert(table, rows)
            ((deleted,),) = peer.rows(f"DELETE FROM {table} WHERE {key} IN ({gone})")
            changed += len(rows) + deleted
        return changed


class RefreshStream:
    """Refreshes of any size over the rows as they were loaded, the same ones for a seed."""

    def __init__(self, loaded: Recomputed, seed: int = 1) -> None:
        self._loaded = loaded
        self._random = Random(seed)
        keys = sorted(key for (key,) in loaded.rows("SELECT o_orderkey FROM orders WHERE o_orderkey & 24 = 0"))
        self.orders = len(keys)
        """How many orders are loaded."""
        self._old = self._random.sample(keys, self.orders)
        self._templates = self._random.sample(keys, self.orders)
        self._customers = [key for (key,) in loaded.rows("SELECT c_custkey FROM customer WHERE c_custkey % 3 <> 0")]
        self._customers.sort()
        self._offers = loaded.rows(
            "SELECT ps_partkey, ps_suppkey, p_retailprice FROM partsupp JOIN part ON p_partkey = ps_partkey "
            "ORDER BY ps_partkey, ps_suppkey"
        )

    def take(self, count: int) -> Refresh:
        """The next refresh: so many new orders, and as many old ones that go.

        :raises ValueError: the loaded orders are used up.
        """
        if count > len(self._old):
            raise ValueError(f"{count} orders are to go, and {len(self._old)} loaded ones are left")
        chosen, self._templates = self._templates[:count], self._templates[count:]
        old, self._old = self._old[:count], self._old[count:]
        wanted = ", ".join(map(str, chosen))
        orders = self._new_orders(f"o_orderkey IN ({wanted}) ORDER BY o_orderkey")
        lineitems = self._new_lineitems(f"l_orderkey IN ({wanted}) ORDER BY l_orderkey, l_linenumber")
        return Refresh(tuple(orders), tuple(lineitems), tuple(old))

    def _new_orders(self, where: str) -> Iterator[Row]:
        for rows in self._loaded.stored("loaded_orders", where):
            for key, _, *rest in rows:
                yield (_new_key(key), self._random.choice(self._customers), *rest)

    def _new_lineitems(self, where: str) -> Iterator[Row]:
        for rows in self._loaded.stored("loaded_lineitem", where):
            for key, _, _, number, quantity, _, *rest in rows:
                part, supplier, price = self._random.choice(self._offers)
                assert isinstance(quantity, Decimal)
                cost = (quantity * price).quantize(CENT)
                yield (_new_key(key), part, supplier, number, quantity, cost, *rest)


def _new_key(key: object) -> int:
    assert isinstance(key, int)
    return key + HOLE
