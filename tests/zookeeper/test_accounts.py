"""Where accounts are kept: both stores by one contract, and what a process hears of another's changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from zookeeper.accounts import BUCKETS, AccountStore, FileAccounts
from zookeeper.errors import AccountsDamaged
from zookeeper.memory import MemoryZooKeeper

Stores = Callable[[], AccountStore]


@pytest.fixture(params=["file", "znodes"])
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stores]:
    """Makes stores of one deployment, each as of a process of its own."""
    made: list[AccountStore] = []
    server = MemoryZooKeeper(timeout=0.3)
    authorities = [server.authority("main") for _ in range(2)]
    for authority in authorities:
        await authority.start(create=True)
    left = list(authorities)

    def make() -> AccountStore:
        made.append(FileAccounts(tmp_path) if request.param == "file" else left.pop().accounts())
        return made[-1]

    yield make
    for store in made:
        await store.close()
    for authority in authorities:
        await authority.close()


class Heard(dict[str, Any]):
    """What a process knows by what it was told."""

    def __call__(self, documents: Any) -> None:
        for name, document in documents.items():
            if document is None:
                self.pop(name, None)
            else:
                self[name] = document

    async def until(self, expected: dict[str, Any]) -> None:
        async with asyncio.timeout(2):
            while self != expected:
                await asyncio.sleep(0.01)


async def test_each_process_hears_of_the_others_changes(stores: Stores) -> None:
    first, second = stores(), stores()
    here, there = Heard(), Heard()
    await first.start(here)
    await first.change("ann", lambda before: {"n": 1})
    assert here == {"ann": {"n": 1}}
    await second.start(there)
    assert there == here
    await second.change("ann", lambda before: {"n": (before or {})["n"] + 1})
    await second.change("bob", lambda before: {"was": before})
    await here.until({"ann": {"n": 2}, "bob": {"was": None}})
    await first.change("ann", lambda before: None)
    await there.until({"bob": {"was": None}})


async def test_an_edit_that_fails_changes_nothing(stores: Stores) -> None:
    store, heard = stores(), Heard()
    await store.start(heard)

    def fail(before: Any) -> Any:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await store.change("ann", fail)
    await store.change("ann", lambda before: {"was": before})
    assert heard == {"ann": {"was": None}}


async def test_changes_at_once_are_all_kept(stores: Stores) -> None:
    first, second = stores(), stores()
    here, there = Heard(), Heard()
    await first.start(here)
    await second.start(there)

    def more(before: Any) -> Any:
        return {"n": (before or {"n": 0})["n"] + 1}

    await asyncio.gather(*(store.change("ann", more) for store in (first, second) for _ in range(8)))
    await here.until({"ann": {"n": 16}})
    await there.until({"ann": {"n": 16}})


async def test_a_damaged_file_is_refused_at_the_start_and_ignored_later(tmp_path: Path) -> None:
    store, heard = FileAccounts(tmp_path), Heard()
    await store.start(heard)
    await store.change("ann", lambda before: {"n": 1})
    path = tmp_path / "accounts.json"
    for damage in ("", "{", json.dumps({"format": 2, "accounts": {}}), json.dumps({"format": 1, "accounts": {"a": 1}})):
        path.write_text(damage)
        with pytest.raises(AccountsDamaged):
            await FileAccounts(tmp_path).start(heard)
        with pytest.raises(AccountsDamaged):
            await store.change("bob", lambda before: {})
    path.unlink()
    store._look()
    assert heard == {"ann": {"n": 1}}
    await store.close()


async def test_ten_thousand_accounts_fit(tmp_path: Path) -> None:
    """By the largest part that a hash of their names makes of them."""
    from zlib import crc32

    from zookeeper.accounts import BUCKET_BYTES_MAX, _encoded

    document = {"id": "0" * 12, "password": "x" * 97, "rights": {f"view{n}": ["SELECT"] for n in range(20)}}
    parts: dict[int, dict[str, Any]] = {}
    for number in range(10_000):
        name = f"account-{number}"
        parts.setdefault(crc32(name.encode()) % BUCKETS, {})[name] = document
    assert max(len(_encoded(part)) for part in parts.values()) < BUCKET_BYTES_MAX / 2
