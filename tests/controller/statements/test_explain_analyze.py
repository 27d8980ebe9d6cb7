"""EXPLAIN ANALYZE runs a SELECT within its budget, and tells what each node did beside what was expected of it.

Long texts are explained and answered while definitions come and go.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from controller.embedded.local import LocalDeployment
from controller.statements.shapes import AdHocMode
from controller.statements.texts import SHORT_TEXT
from domains.errors import LimitExceeded, ReadTimeout, Unsupported
from migrations.parse.measure import SqlLimits
from worker.adhoc.pool import Budget
from worker.service.child_pool import ChildPool

POSTS = 2_000
SCHEMA = """
CREATE TABLE posts (id INT PRIMARY KEY, author INT, title VARCHAR(20), KEY (author));
CREATE TABLE comments (id INT PRIMARY KEY, story INT, author INT, KEY (story), KEY (author));
"""
JOIN = "SELECT p.title, c.id FROM comments c JOIN posts p ON p.id = c.story WHERE c.author = 7"


async def filled(path: Path, **settings: object) -> LocalDeployment:
    deployment = await LocalDeployment.open(path, **settings)  # type: ignore[arg-type]
    posts = ", ".join(f"({i}, {i % 50}, 'post {i}')" for i in range(POSTS))
    comments = ", ".join(f"({i}, {i * 7 % POSTS}, {i % 40})" for i in range(400))
    await deployment.execute(f"{SCHEMA} INSERT INTO posts VALUES {posts}; INSERT INTO comments VALUES {comments}")
    return deployment


@pytest.fixture(params=[1, 3])
async def deployment(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[LocalDeployment]:
    found = await filled(tmp_path, shards=request.param)
    yield found
    await found.close()


async def told(deployment: LocalDeployment, sql: str) -> str:
    (result,), _ = await deployment.execute(f"EXPLAIN ANALYZE {sql}")
    return "\n".join(row[0] for row in result.rows)


async def test_rows_and_lookups_of_each_node_are_told(deployment: LocalDeployment) -> None:
    text = await told(deployment, JOIN)
    assert re.search(r"^evaluated over the base tables between two steps: 10 rows in [\d.]+ ms\n", text)
    assert re.search(r"⋈ story = id  ~\d+ rows  \(10 rows by 1 look-up, [\d.e-]+ ms\)", text)
    assert re.search(r"comments  ~400 rows  \(10 rows by 1 look-up, ", text)
    assert re.search(r"posts  ~2,000 rows  \(10 rows by 10 look-ups, ", text)


async def test_what_reads_many_rows_is_run_in_a_process_beside(deployment: LocalDeployment) -> None:
    text = await told(deployment, "SELECT author, COUNT(*) AS n FROM posts WHERE title LIKE '%7%' GROUP BY author")
    assert "evaluated over the base tables in a process beside: 50 rows in " in text
    assert re.search(r"γ author; COUNT\(\*\)  ~\d+ rows  \(50 rows, ", text)
    assert re.search(r"posts  ~2,000 rows  \(2,000 rows, [\d.e+]+ ms\)", text)
    matching = sum("7" in f"post {i}" for i in range(POSTS))
    assert re.search(rf"σ title LIKE '%7%'  ~\d+ rows  \({matching} rows, ", text)


async def test_nothing_is_counted_or_kept(deployment: LocalDeployment) -> None:
    for _ in range(8):
        await told(deployment, JOIN)
    await deployment.selects.settled()
    assert deployment.queries() == []
    (explained,), _ = await deployment.execute(f"EXPLAIN {JOIN}")
    assert "not kept: it was not asked yet" in explained.rows[0][0]


async def test_a_view_that_answers_is_looked_up(deployment: LocalDeployment) -> None:
    await deployment.execute("CREATE EXT VIEW titles AS SELECT title FROM posts WHERE author = ?")
    text = await told(deployment, "SELECT title FROM posts WHERE author = 9")
    assert re.match(r'answered by the view "titles": 40 rows in [\d.]+ ms\n\[\d+\] reader titles', text)


async def test_it_shows_what_its_token_covers(deployment: LocalDeployment) -> None:
    _, token = await deployment.execute("INSERT INTO comments VALUES (9000, 1, 7)")
    (result,), read = await deployment.execute(f"EXPLAIN ANALYZE {JOIN}", token=token)
    assert ": 11 rows in " in result.rows[0][0]
    assert all(read.get(base, token[base]) >= token[base] for base in token)


async def test_it_keeps_to_its_budget(tmp_path: Path) -> None:
    deployment = await filled(tmp_path, budget=Budget(seconds=1.0))
    try:
        with pytest.raises(ReadTimeout, match="was stopped after 1 s"):
            await told(deployment, "SELECT COUNT(*) FROM posts a, posts b, posts c WHERE a.title < b.title")
    finally:
        await deployment.close()


async def test_memory_that_it_holds_is_limited(tmp_path: Path) -> None:
    deployment = await filled(tmp_path, budget=Budget(held_bytes=2**20))
    try:
        with pytest.raises(LimitExceeded, match="max_evaluation_size"):
            await told(deployment, "SELECT a.title FROM posts a, posts b ORDER BY a.title, b.title")
    finally:
        await deployment.close()


async def test_where_ad_hoc_is_off_it_is_refused(tmp_path: Path) -> None:
    deployment = await filled(tmp_path, ad_hoc=AdHocMode.OFF)
    try:
        with pytest.raises(Unsupported, match="ad_hoc is off"):
            await told(deployment, JOIN)
    finally:
        await deployment.close()


@pytest.mark.parametrize("kind", ["", "EXPLAIN ", "EXPLAIN ANALYZE "])
async def test_a_long_text_is_answered_under_ever_other_definitions(
    deployment: LocalDeployment, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    beside = ChildPool()
    deployment.read_within(SqlLimits(), beside)
    aside, made = deployment.selects.texts.aside, 0

    async def disturbed(work: Callable[[], Any]) -> Any:
        nonlocal made
        found = await aside(work)
        made += 1
        await deployment.execute(f"CREATE VIEW v{made} AS SELECT id, {made} AS n FROM comments")
        return found

    monkeypatch.setattr(deployment.selects.texts, "aside", disturbed)
    numbers = ", ".join(map(str, range(1_000, 1_900)))
    assert len(numbers) > SHORT_TEXT
    try:
        (found,), _ = await deployment.execute(f"{kind}SELECT id FROM posts WHERE id IN (7, {numbers}) ORDER BY id")
        assert made >= 2
        assert kind or found.rows == ((7,), *((number,) for number in range(1_000, 1_900)))
    finally:
        await beside.close()


async def test_a_long_text_waits_for_its_own_table(
    deployment: LocalDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = ChildPool()
    deployment.read_within(SqlLimits(), beside)
    aside, altered = deployment.selects.texts.aside, 0

    async def disturbed(work: Callable[[], Any]) -> Any:
        nonlocal altered
        found = await aside(work)
        if altered < 3:
            altered += 1
            await deployment.execute(f"ALTER TABLE posts ADD COLUMN c{altered} INT DEFAULT {altered}")
        return found

    monkeypatch.setattr(deployment.selects.texts, "aside", disturbed)
    numbers = ", ".join(map(str, range(3_000, 3_900)))
    try:
        (found,), _ = await deployment.execute(f"SELECT * FROM posts WHERE id IN (7, {numbers})")
        assert found.rows == ((7, 7, "post 7", 1, 2, 3),)
    finally:
        await beside.close()
