"""The same recipe gives the same graph, byte for byte, in every process: a new leader plans what the old one built.

Within one process, planning twice would agree even where an order comes out of a set: sets of texts are ordered by
their hashes, which each process salts anew. So the recipe is played in two processes with different salts.

    python -m tests.migrations.test_same_graph     prints what the recipes come to
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from domains.errors import HeadraceError
from migrations.change import change_of
from migrations.flow.explain import explain
from migrations.flow.plan import State, one_domain, plan_start, spread_over
from migrations.recipe import RecipeEntry
from tests.campaign.cases import case_of
from tests.campaign.statements import AddColumn, AdHoc, CreateTable, CreateView, DropColumn, DropView
from tests.campaign.subject import Setting

SEEDS = range(40, 52)
"""Of the campaign's cases: some 60 views over some 30 tables."""


def shown(value: Any) -> str:
    """A value's text, in which a set, which has no order, is sorted; whatever has an order keeps it."""
    if isinstance(value, frozenset | set):
        return "{" + ", ".join(sorted(map(shown, value))) + "}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{shown(key)}: {shown(each)}" for key, each in value.items()) + "}"
    if isinstance(value, tuple | list):
        return "(" + ", ".join(map(shown, value)) + ")"
    if is_dataclass(value):
        parts = (f"{field.name}={shown(getattr(value, field.name))}" for field in fields(value) if field.repr)
        return f"{type(value).__name__}({', '.join(parts)})"
    return repr(value)


def played(seed: int, shards: int) -> Iterator[str]:
    """The plan of each migration of a case, and the dataflow that they come to."""
    placement = one_domain if seed % 2 else spread_over(3)
    state = State(shards=shards)
    for operation in case_of(seed, Setting(seed, shards=shards)).operations:
        if not isinstance(operation, CreateTable | CreateView | DropView | AddColumn | DropColumn | AdHoc):
            continue
        try:
            entry = RecipeEntry((operation.text(),), ad_hoc=isinstance(operation, AdHoc))
            change = change_of(state, entry, placement)
        except HeadraceError as error:
            yield f"{error.code}: {error}"
            continue
        state = change.state
        yield from (shown(step) for step in change.steps)
    yield from (shown(node) for node in state.flow.nodes.values())
    yield from (shown(each) for each in (state.flow.routes, state.flow.sharding, state.flow.readers, state.planned))
    yield from (shown(step) for step in plan_start(state.flow).steps)
    yield from (explain(state.flow, index) for index in state.flow.readers.values())


def printed(hash_seed: int) -> str:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": f"{root}:{root}/clients/python"}
    command = [sys.executable, "-m", "tests.migrations.test_same_graph"]
    run = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=True, timeout=300)
    return run.stdout


def test_two_processes_plan_the_same_graph() -> None:
    one, other = printed(1), printed(2)
    for before, after in zip(one.splitlines(), other.splitlines(), strict=False):
        assert before == after
    assert one == other
    assert one.count("AddNodes(") > 100, "the recipes are too small to tell"


def test_what_has_an_order_is_compared_in_its_order() -> None:
    """So a graph whose order comes out of a set would differ."""
    assert shown(("b", "a")) != shown(("a", "b"))
    assert shown({"b": 1, "a": 2}) != shown({"a": 2, "b": 1})
    assert shown(frozenset("ba")) == shown(frozenset("ab"))


if __name__ == "__main__":
    for number in SEEDS:
        for factor in (1, 3):
            print(f"--- case {number}, {factor} shards")
            print("\n".join(played(number, factor)))
