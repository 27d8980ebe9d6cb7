"""The shard of a value: the same in every process and for every type that calls the value equal."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal

import pytest

from domains.language.types import Value
from domains.plan.sharding import base_shard, shard_of, table_of


@pytest.mark.parametrize(
    "equals",
    [
        (7, 7.0, Decimal("7.00"), Decimal(7)),
        (0, 0.0, -0.0, Decimal("-0.00")),
        (-5, -5.0, Decimal(-5)),
        (2**60, 2.0**60, Decimal(2**60)),
        (0.5, Decimal("0.50")),
        (True, 1),
    ],
)
def test_values_that_are_equal_have_one_shard(equals: tuple[Value, ...]) -> None:
    for shards in (1, 2, 3, 4, 7):
        assert len({shard_of(value, shards) for value in equals}) == 1


@pytest.mark.parametrize("value", [Decimal(10) ** 60, Decimal(9) / 7, 1e300, -3, None, b"\xff", "ä", float("inf")])
def test_every_value_has_a_shard(value: Value) -> None:
    assert shard_of(value, 4) in range(4)


def test_text_has_the_same_shard_in_every_process() -> None:
    """Python's own hash is salted anew for each."""
    program = "from domains.plan.sharding import shard_of; print([shard_of(str(i), 5) for i in range(40)])"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert told.strip() == str([shard_of(str(i), 5) for i in range(40)])


def test_values_are_spread() -> None:
    for values in (range(400), map(str, range(400)), (i + 0.5 for i in range(400))):
        counts = [0] * 4
        for value in values:
            counts[shard_of(value, 4)] += 1
        assert min(counts) > 60


def test_a_clock_names_a_shard() -> None:
    assert base_shard("votes", 0, 0, 1) == "votes"
    assert base_shard("votes", 2, 3, 4) == "votes~2@3"
    for table in ("votes", "a@b", "votes~1", "~", "a~b@1"):
        for generation in (0, 1, 12):
            assert table_of(base_shard(table, generation, 0, 1), 1) == table
            assert table_of(base_shard(table, generation, 2, 4), 4) == table


def test_no_two_tables_have_a_base_shard_of_one_name() -> None:
    tables = [(table, generation) for table in ("t", "t~1", "t~1~1", "t~0") for generation in (0, 1, 2)]
    assert len({base_shard(*each, 0, 1) for each in tables}) == len(tables)
