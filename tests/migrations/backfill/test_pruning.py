"""Which columns a task reads of its tables, by operator. That nothing else counts, ``test_stages.py`` shows."""

from __future__ import annotations

import pytest

from migrations.backfill.stages import pruned, stages_of
from tests.domains.graphs import Flow, aggregate, count, equals


def read(flow: Flow, rows: dict[str, int] | None = None) -> dict[str, tuple[int, ...]]:
    """By table, what the only task of the plan reads."""
    plan = flow.plan()
    ((task,),) = (stage.tasks for stage in stages_of(flow.running, plan, flow.tables, rows or {}))
    return {table.schema.name: table.columns for table in task.tables}


def test_what_a_join_and_an_aggregate_do_not_name_is_not_read() -> None:
    flow = Flow()
    votes = flow.table("votes", "user", "story", "at")
    stories = flow.table("stories", "id", "author", "title:text", "text:text", key=(0,))
    joined = flow.join(votes, stories, (1, 0))
    flow.reader("ranking", flow.group(flow.project(joined, 4), (0,), count()))
    assert read(flow) == {"votes": (1,), "stories": (0, 1)}


def test_what_reaches_a_view_is_read_whole() -> None:
    flow = Flow()
    stories = flow.table("stories", "id", "title:text", key=(0,))
    flow.reader("all", flow.filter(stories, equals(0, 7)))
    assert read(flow) == {"stories": (0, 1)}


def test_conditions_are_read_too() -> None:
    flow = Flow()
    votes = flow.table("votes", "user", "story", "is_up", "at")
    flow.reader("up", flow.group(flow.filter(votes, equals(2, 1)), (1,), aggregate("max", 0)))
    assert read(flow) == {"votes": (0, 1, 2)}


def test_a_count_of_all_rows_reads_no_column() -> None:
    flow = Flow()
    votes = flow.table("votes", "user", "story")
    flow.reader("total", flow.group(votes, (), count(), scalar=True))
    assert read(flow) == {"votes": ()}


def test_a_table_that_is_joined_with_itself_is_read_by_all_that_name_it() -> None:
    flow = Flow()
    comments = flow.table("comments", "id", "parent", "author", "text:text", key=(0,))
    pairs = flow.join(comments, comments, (1, 0))
    flow.reader("replied", flow.group(flow.project(pairs, 2, 6), (0, 1), count()))
    assert read(flow) == {"comments": (0, 1, 2)}


@pytest.mark.parametrize(("stories_there", "of_votes"), [(9, (0, 1)), (1, (1,))])
def test_what_is_kept_has_its_primary_key(stories_there: int, of_votes: tuple[int, ...]) -> None:
    flow = Flow()
    votes = flow.table("votes", "user", "story", key=(0, 1))
    stories = flow.table("stories", "id", "author", key=(0,))
    flow.reader("ranking", flow.group(flow.project(flow.join(votes, stories, (1, 0)), 3), (0,), count()))
    assert read(flow, {"votes": 5, "stories": stories_there}) == {"votes": of_votes, "stories": (0, 1)}


def test_a_union_a_left_join_and_a_ranking() -> None:
    flow = Flow()
    old = flow.table("old", "id", "author", "text:text")
    new = flow.table("new", "id", "author", "text:text")
    users = flow.table("users", "id", "name:text", "about:text", key=(0,))
    both = flow.left_join(flow.union(old, new), users, (1, 0))
    flow.reader("authors", flow.top(flow.project(both, 0, 4), (), 0, 3))
    assert read(flow) == {"old": (0, 1), "new": (0, 1), "users": (0, 1)}


def test_rows_that_agree_in_what_is_read_are_one() -> None:
    rows = [((1, 7, "a"), 1), ((2, 7, "b"), 2), ((3, 8, "c"), 1)]
    assert pruned(rows, (1,), 3) == [((None, 7, None), 3), ((None, 8, None), 1)]
    assert pruned(rows, (0, 1, 2), 3) == rows
    assert pruned(rows, (), 3) == [((None, None, None), 4)]
