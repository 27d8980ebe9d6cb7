"""From one answer to the next, message by message, as a client folds them."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.live.steps import RowNames, difference, snapshot

Listed = list[tuple[str, bytes]]


def fold(held: Listed, messages: list[bytes]) -> Listed:
    """What docs/live.md says: out with what goes, changes or moves, then in with the rest, place by place."""
    steps = [json.loads(b"{" + message + b"}") for message in messages]
    out = {each["key"] for each in steps}
    held = [each for each in held if each[0] not in out]
    for each in steps:
        if each["headers"]["operation"] != "delete":
            row = (each["key"], json.dumps(each["value"], separators=(",", ":")).encode())
            held.insert(each["headers"]["place"], row)
    return held


def row(number: int, name: str) -> bytes:
    return json.dumps({"id": number, "name": name}, separators=(",", ":")).encode()


answers = st.lists(st.builds(row, st.integers(0, 5), st.sampled_from("ab")), max_size=8).map(tuple)
unique = st.permutations(range(8)).flatmap(
    lambda ids: st.integers(0, 8).flatmap(
        lambda size: st.lists(st.sampled_from("ab"), min_size=size, max_size=size).map(
            lambda names: tuple(row(at, name) for at, name in zip(ids, names, strict=False))
        )
    )
)


@pytest.mark.parametrize("named", [False, True])
def test_messages_lead_from_each_answer_to_the_next(named: bool) -> None:
    @settings(deadline=None)
    @given(st.lists(unique if named else answers, min_size=1, max_size=5))
    def lead(states: list[tuple[bytes, ...]]) -> None:
        names = RowNames(["id"] if named else None)
        held = fold([], snapshot(states[0], names, ordered=True))
        for before, after in pairwise(states):
            messages = difference(before, after, names, True, "h1.e30")
            assert bool(messages) == (before != after)
            held = fold(held, messages)
            assert tuple(value for _, value in held) == after
            assert len({key for key, _ in held}) == len(held)

    lead()


def test_a_row_that_only_moves_is_one_update() -> None:
    old = tuple(row(each, "a") for each in range(6))
    new = (old[5], *old[:5])
    messages = [json.loads(b"{" + each + b"}") for each in difference(old, new, RowNames(["id"]), True, "t")]
    assert [(each["key"], each["headers"]["operation"], each["headers"]["place"]) for each in messages] == [
        ("5", "update", 0)
    ]
    assert difference(old, new, RowNames(["id"]), False, "t") == [], "where there is no order there are no places"
