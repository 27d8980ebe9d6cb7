"""Look-ups that need others' answers: asked in as few rounds as can be, each once, with its values written out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loadgen.peers.opening import NullAnswer
from loadgen.peers.store import Answer, Lookup, Query, all_of, first, in_rounds

BOTH = Query.parse("both", "SELECT id FROM t WHERE a = ? AND b IN (?)")
LIST = Query.parse("list", "SELECT id FROM t WHERE b IN (?)")
ROWS: dict[Any, list[dict[str, Any]]] = {
    (1, (1,)): [{"id": 4, "of": 7}, {"id": 5, "of": None}, {"id": 4, "of": 8}],
    ((4, 5),): [{"id": None, "of": 9}],
}


class Asked:
    """Answers out of ``ROWS``, by values."""

    def __init__(self) -> None:
        self.rounds: list[list[Any]] = []

    async def __call__(self, lookups: Sequence[Lookup]) -> list[Answer]:
        given = [tuple(tuple(v) if isinstance(v, list) else v for v in each.values) for each in lookups]
        self.rounds.append(given)
        return [NullAnswer(ROWS.get(values, [])) for values in given]


async def test_rounds_are_as_few_as_can_be() -> None:
    ask = Asked()
    answers = await in_rounds(
        ask,
        [
            Lookup(BOTH, (1, [1])),
            Lookup(LIST, (all_of(0, "id"),)),
            Lookup(BOTH, (2, [2])),
            Lookup(BOTH, (first(0, "id"), all_of(1, "of"))),
            Lookup(LIST, (all_of(0, "of"),)),
        ],
    )
    assert ask.rounds == [[(1, (1,)), (2, (2,))], [((4, 5),), ((7, 8),)], [(4, (9,))]]
    assert [len(each.rows()) for each in answers] == [3, 1, 0, 0, 0]


async def test_what_has_nothing_to_ask_for_is_not_asked() -> None:
    ask = Asked()
    answers = await in_rounds(
        ask,
        [
            Lookup(BOTH, (2, [2])),
            Lookup(LIST, (all_of(0, "id"),)),
            Lookup(BOTH, (first(0, "id"), [3])),
            Lookup(LIST, (all_of(2, "id"),)),
            Lookup(BOTH, (1, [1])),
            Lookup(LIST, (all_of(4, "id"),)),
            Lookup(BOTH, (first(5, "id"), [3])),
        ],
    )
    assert ask.rounds == [[(2, (2,)), (1, (1,))], [((4, 5),)]]
    assert [each.rows() for each in answers[:4]] == [[]] * 4
    assert answers[6].column("id") == []


async def test_nothing_is_asked_for_nothing() -> None:
    ask = Asked()
    assert await in_rounds(ask, []) == []
    assert not ask.rounds
