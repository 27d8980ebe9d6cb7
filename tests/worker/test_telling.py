"""Which hits the domain is told of."""

from __future__ import annotations

from controller.lookups.view_lookup import HITS_PER_MISS, OWED, TOLD, AccessReporter
from domains.language.types import Row


def keys(*values: int) -> list[Row]:
    return [(value,) for value in values]


def owing(misses: int) -> AccessReporter:
    telling = AccessReporter()
    telling.missed(keys(*range(-misses, 0)))
    return telling


def test_while_all_reads_hit_nothing_is_told() -> None:
    assert AccessReporter().news(keys(1, 2, 3)) == []


def test_a_key_is_told_of_once() -> None:
    telling = owing(10)
    assert telling.news(keys(1, 2, 1)) == keys(1, 2)
    assert telling.news(keys(2, 3)) == keys(3)


def test_a_key_that_was_filled_anew_is_told_of_again() -> None:
    """It is not protected any more, and would go first though it is read."""
    telling = owing(10)
    telling.news(keys(1, 2))
    telling.missed(keys(1))
    assert telling.news(keys(1, 2)) == keys(1)


def test_each_miss_pays_for_so_many() -> None:
    telling = owing(2)
    many = keys(*range(100))
    assert telling.news(many) == many[: 2 * HITS_PER_MISS]
    assert telling.news(many) == []


def test_hits_that_bring_no_news_use_up_what_is_owed() -> None:
    """When misses have ended, all hits soon cost nothing again."""
    telling = owing(1)
    for _ in range(HITS_PER_MISS):
        telling.news(keys(1))
    assert telling.owed == 0


def test_a_burst_of_misses_is_paid_for_shortly() -> None:
    assert owing(10 * OWED).owed == OWED


def test_what_was_told_long_ago_is_told_again() -> None:
    """Else a key that is read all the time would seem to be forgotten."""
    telling = owing(10)
    assert telling.news(keys(0)) == keys(0)
    for start in range(1, TOLD + 1, 1000):
        telling.missed(keys(*range(-OWED, 0)))
        telling.news(keys(*range(start, start + 1000)))
    assert telling.news(keys(0)) == keys(0)
