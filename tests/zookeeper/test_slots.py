"""The file of the embedded deployment and its slots: what a crash at any moment of a write leaves."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from zookeeper import local_authority as slots
from zookeeper.errors import SlotsDamaged
from zookeeper.local_authority import SLOT, LocalAuthority, Slots, go_on_without, stored_state


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "recipe.json"


async def write(path: Path, *states: bytes) -> LocalAuthority:
    authority = LocalAuthority(path)
    _, version = await authority.read()
    for state in states:
        version = await authority.write(state, version)
    return authority


async def test_the_file_has_the_first_state_and_slots_the_next(path: Path) -> None:
    authority = await write(path, b"one", b"two", b"three", b"four")
    assert path.read_bytes() == b"one"
    assert stored_state(path) == b"four"
    assert await LocalAuthority(path).read() == (b"four", 1)
    await authority.close()
    assert path.read_bytes() == b"four"
    assert stored_state(path) == b"four"


async def test_a_torn_write_leaves_the_state_before_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the slot that is written over, any part of the new bytes may be there, in any order."""
    file = path.with_suffix(".slots")
    await write(path, b"one", b"two " * 300, b"three " * 100)
    images, overwrite = [file.read_bytes()], Slots._overwrite

    def photographed(authority: Slots, number: int, data: bytes) -> None:
        overwrite(authority, number, data)
        images.append(file.read_bytes())

    monkeypatch.setattr(Slots, "_overwrite", photographed)
    await write(path, b"four " * 200)
    chance = random.Random(5)
    for before, after, state in zip(images, images[1:], (b"three " * 100, b"four " * 200), strict=False):
        changed = [at for at in range(len(after)) if after[at] != before[at]]
        for _ in range(200):
            torn = bytearray(before)
            for at in chance.sample(changed, chance.randrange(len(changed))):
                torn[at] = after[at]
            file.write_bytes(torn)
            assert stored_state(path) == state
    file.write_bytes(images[-1])
    assert stored_state(path) == b"four " * 200


async def test_damage_of_one_slot_brings_no_older_state_back(path: Path) -> None:
    """A flip in the newer one let every change since the older one go, without a word."""
    file = path.with_suffix(".slots")
    await write(path, b"one", b"two", b"three")
    whole = file.read_bytes()
    for slot in (0, SLOT):
        for at in range(45):
            damaged = bytearray(whole)
            damaged[slot + at] ^= 1 << at % 8
            file.write_bytes(damaged)
            assert stored_state(path) == b"three"
    both = bytearray(whole)
    both[20] ^= 1
    both[SLOT + 20] ^= 1
    for damaged in (both, whole[:-1], b""):
        file.write_bytes(damaged)
        with pytest.raises(SlotsDamaged, match="is damaged"):
            stored_state(path)


async def test_a_file_that_is_put_in_its_place_is_what_is_meant(path: Path) -> None:
    await write(path, b"one", b"two", b"three")
    path.write_bytes(b"restored")
    assert await LocalAuthority(path).read() == (b"restored", 1)
    await write(path, b"next")
    assert stored_state(path) == b"next"


async def test_a_state_that_is_too_large_for_a_slot_is_in_the_file(path: Path) -> None:
    large = b"x" * SLOT
    await write(path, b"one", b"two", large)
    assert stored_state(path) == path.read_bytes() == large
    await write(path, large + b"y", b"three", b"four")
    assert path.read_bytes() == large + b"y"
    assert stored_state(path) == b"four"


async def test_a_state_that_comes_again_brings_nothing_back_that_followed_it(path: Path) -> None:
    large = b"x" * SLOT
    await write(path, large, b"two", b"three", large)
    assert stored_state(path) == large
    await write(path, b"four", large + b"y", b"five", large)
    assert stored_state(path) == large


async def test_a_sync_that_fails_loses_nothing_that_was_acknowledged(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = await write(path, b"one", b"two", b"three")

    def fails(_: int) -> None:
        raise OSError(5, "Input/output error")

    for module, name in ((slots, "_sync"), (slots.os, "fsync")):
        with monkeypatch.context() as patching:
            patching.setattr(module, name, fails)
            with pytest.raises(OSError, match="Input/output"):
                await authority.write(b"x" * (SLOT if name == "fsync" else 1), 3)
        assert stored_state(path) in (b"three", b"x")
    assert await authority.write(b"four", 3) == 4
    assert stored_state(path) == b"four"


async def test_a_seeded_story_of_writes_crashes_and_closes(path: Path, tmp_path: Path) -> None:
    """What is read is what was last acknowledged, with states that come again and some that fit no slot."""
    for seed in range(20):
        chance = random.Random(seed)
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()
        authority, state, version = LocalAuthority(path), None, 0
        for _ in range(30):
            match chance.randrange(8):
                case 0:
                    await authority.close()
                    authority = LocalAuthority(path)
                    assert (await authority.read())[0] == state, f"seed {seed}"
                    version = int(state is not None)
                case 1:
                    authority = LocalAuthority(path)
                    assert (await authority.read())[0] == state, f"seed {seed}"
                    version = int(state is not None)
                case _:
                    state = bytes([chance.randrange(4)]) * chance.choice([1, 50, 50, SLOT])
                    version = await authority.write(state, version)
                    assert stored_state(path) == state, f"seed {seed}"


async def test_slots_that_were_deleted_are_missed(path: Path) -> None:
    """What had come since the file was written was gone without a word."""
    await write(path, b'{"a": 1}', b'{"a": 2}')
    assert stored_state(path) == b'{"a": 2}'
    path.with_suffix(".slots").unlink()
    for _ in range(2):
        with pytest.raises(SlotsDamaged, match=r"recipe.slots\" is missing"):
            await LocalAuthority(path).read()
        with pytest.raises(SlotsDamaged, match="accept-loss"):
            stored_state(path)
    assert go_on_without(path) == f'"{path.with_suffix(".slots")}" is missing'
    assert go_on_without(path) is None
    assert await LocalAuthority(path).read() == (b'{"a": 1}', 1)
    await write(path, b'{"a": 3}')
    assert stored_state(path) == b'{"a": 3}'


async def test_a_file_that_was_deleted_is_missed(path: Path) -> None:
    await write(path, b'{"a": 1}', b'{"a": 2}')
    path.unlink()
    with pytest.raises(SlotsDamaged, match=r"recipe.json\" is missing"):
        await LocalAuthority(path).read()


async def test_a_file_of_before_needs_no_slots(path: Path) -> None:
    path.write_bytes(b'{"a": 1}\n')
    assert await LocalAuthority(path).read() == (b'{"a": 1}\n', 1)
    await (await write(path, b'{"a": 2}', b'{"a": 3}')).close()
    assert stored_state(path) == b'{"a": 3}'
    assert json.loads(path.read_bytes()) == {"slots": True, "a": 3}


async def test_what_is_in_one_slot_only_is_in_both_once_it_was_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier version, and a crash, leave it so. Then a flip in that slot brought the state before it back."""
    file = path.with_suffix(".slots")
    authority, overwrite = await write(path, b"one", b"two"), Slots._overwrite

    def once(authority: Slots, number: int, data: bytes) -> None:
        overwrite(authority, number, data)
        raise OSError(5, "the crash")

    with monkeypatch.context() as patching:
        patching.setattr(Slots, "_overwrite", once)
        with pytest.raises(OSError, match="the crash"):
            await authority.write(b"three", 2)
    assert await LocalAuthority(path).read() == (b"three", 1)
    whole = file.read_bytes()
    for slot in (0, SLOT):
        damaged = bytearray(whole)
        damaged[slot + 12] ^= 1
        file.write_bytes(damaged)
        assert stored_state(path) == b"three"
