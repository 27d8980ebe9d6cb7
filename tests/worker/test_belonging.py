from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from worker.belonging import FILE, RECIPE, claim, deployment_of
from zookeeper.errors import ForeignDeployment


def test_a_directory_belongs_to_who_comes_first(tmp_path: Path) -> None:
    name = claim(tmp_path, "main", "1")
    assert claim(tmp_path, "main", "1") == name
    with pytest.raises(ForeignDeployment, match='belongs to deployment "main", not to "other"'):
        claim(tmp_path, "other", "1")
    with pytest.raises(ForeignDeployment, match=r"another deployment .* has lost its data"):
        claim(tmp_path, "main", "2")
    assert [each.name for each in tmp_path.iterdir()] == [FILE]


def test_a_directory_keeps_its_name_wherever_it_is(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    one, other = (claim(tmp_path / name, "main", "1") for name in ("one", "other"))
    assert one != other
    (tmp_path / "one").rename(tmp_path / "moved")
    assert claim(tmp_path / "moved", "main", "1") == one


def test_a_damaged_mark_is_no_mark_of_ours(tmp_path: Path) -> None:
    for content in ("", "{}", "[]", "{"):
        (tmp_path / FILE).write_text(content)
        with pytest.raises(ForeignDeployment, match="is damaged"):
            claim(tmp_path, "main", "1")


def test_any_bit_that_turns_is_noticed(tmp_path: Path) -> None:
    """But for one in the checksum's own name, as of a mark from before there was one: then all else is as written."""
    name = claim(tmp_path, "main", "1")
    whole = (tmp_path / FILE).read_bytes()
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        (tmp_path / FILE).write_bytes(damaged)
        try:
            assert claim(tmp_path, "main", "1") == name, bit
        except ForeignDeployment as error:
            assert "is damaged" in str(error), (bit, error)  # noqa: PT017
            assert deployment_of(tmp_path) is None
    (tmp_path / FILE).write_text(json.dumps({"deployment": "main", "id": "1", "directory": "of version 0.1"}))
    assert claim(tmp_path, "main", "1") == "of version 0.1"


def test_a_directory_says_whose_it_is(tmp_path: Path) -> None:
    assert deployment_of(tmp_path) is None
    claim(tmp_path, "main", "1")
    assert deployment_of(tmp_path) == "main"
    (tmp_path / FILE).write_text("{")
    assert deployment_of(tmp_path) is None


def test_the_data_of_a_server_that_is_no_cluster_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / RECIPE).write_text("{}")
    with pytest.raises(ForeignDeployment, match="is that of headrace serve"):
        claim(tmp_path, "main", "1")
    assert not (tmp_path / FILE).exists()


def test_of_many_at_once_one_wins(tmp_path: Path) -> None:
    def attempt(number: int) -> str | None:
        try:
            return claim(tmp_path, f"d{number % 2}", "1")
        except ForeignDeployment:
            return None

    with ThreadPoolExecutor(8) as pool:
        winners = {each for each in pool.map(attempt, range(40)) if each is not None}
    assert len(winners) == 1
