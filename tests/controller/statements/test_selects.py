"""SELECTs that no view answers: evaluated over one cut of the base tables, within a budget, kept where that pays."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import AsyncIterator
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest

from controller.embedded.local import LocalDeployment
from controller.embedded.local_hosts import LocalHosts
from controller.statements import planning, selects, shapes
from controller.statements.shapes import AdHocMode
from controller.statements.texts import SHORT_TEXT, VERY_LONG
from domains.errors import BadRequest, Cancelled, LimitExceeded, NotFound, ReadTimeout, UnknownName, Unsupported
from domains.plan.graph import DomainIndex
from domains.plan.packets import Clock
from migrations.catalog import ViewDefinition
from migrations.flow.evaluation_plan import plan_evaluation
from migrations.flow.plan import State
from migrations.parse.measure import SqlLimits
from migrations.recipe import Recipe
from migrations.statements import prepared
from worker.adhoc import cut, evaluator
from worker.adhoc.answer import Question, Rows
from worker.adhoc.pool import Budget
from worker.dataflow import memory_limiter
from worker.service import child_pool
from worker.service.child_pool import ChildPool
from zookeeper.local_authority import stored_state

TABLES = """
    CREATE TABLE accounts (id INT PRIMARY KEY, owner INT, amount INT NOT NULL, KEY (owner));
    CREATE TABLE owners (id INT PRIMARY KEY, name TEXT)
"""
ACCOUNTS, OWNERS = 600, 20
ASKED = [
    ("SELECT amount FROM accounts WHERE id = 7", [(7,)]),
    ("SELECT COUNT(*), SUM(amount) FROM accounts", [(600, sum(range(600)))]),
    ("SELECT id FROM accounts WHERE owner = 3 ORDER BY id DESC LIMIT 2 OFFSET 1", [(563,), (543,)]),
    (
        "SELECT name, COUNT(*) AS n FROM owners o JOIN accounts a ON a.owner = o.id WHERE a.amount < 40 GROUP BY name",
        None,
    ),
    ("SELECT o.id, a.id FROM owners o LEFT JOIN accounts a ON a.owner = o.id AND a.amount > 590 ORDER BY 1, 2", None),
    ("SELECT a.id FROM accounts a, accounts b WHERE a.owner = b.owner AND a.id < b.id AND b.id < 45", None),
    ("SELECT MAX(amount) FROM accounts WHERE id > 1000", [(None,)]),
    ("SELECT DISTINCT owner FROM accounts WHERE id IN (1, 21, 2)", [(1,), (2,)]),
    ("SELECT id FROM accounts WHERE id = 1 AND id = 2", []),
    ("SELECT COUNT(*) FROM accounts WHERE owner NOT IN (SELECT id FROM owners WHERE id < 15)", [(150,)]),
]


@pytest.fixture(params=[1, 3], ids=["one shard", "three shards"])
async def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LocalDeployment]:
    deployment = await LocalDeployment.open(tmp_path / "data", shards=request.param)
    await deployment.execute(TABLES)
    await deployment.insert("accounts", [{"id": i, "owner": i % OWNERS, "amount": i} for i in range(ACCOUNTS)])
    await deployment.insert("owners", [{"id": i, "name": f"owner {i}"} for i in range(OWNERS)])
    yield deployment
    await deployment.close()


async def rows(deployment: LocalDeployment, sql: str) -> list[tuple[Any, ...]]:
    ((result,), _) = await deployment.execute(sql)
    return [tuple(row) for row in result.rows]


def sorted_rows(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(found, key=repr)


@pytest.mark.parametrize(("sql", "expected"), ASKED, ids=range(len(ASKED)))
async def test_all_lanes_answer_the_same(
    deployment: LocalDeployment, monkeypatch: pytest.MonkeyPatch, sql: str, expected: list[Any] | None
) -> None:
    monkeypatch.setattr(cut, "FEW_ROWS", 1_000_000)
    here = await rows(deployment, sql)
    monkeypatch.setattr(cut, "FEW_ROWS", 1)
    beside = await rows(deployment, sql)
    await deployment.execute(f"CREATE EXT VIEW declared AS {sql}")
    kept = [tuple(row.values()) for row in await page(deployment, "declared")]
    ordered = "ORDER BY" in sql
    assert (here if ordered else sorted_rows(here)) == (kept if ordered else sorted_rows(kept))
    assert (beside if ordered else sorted_rows(beside)) == (kept if ordered else sorted_rows(kept))
    if expected is not None:
        assert sorted_rows(here) == sorted_rows(expected)


async def page(deployment: LocalDeployment, view: str) -> list[dict[str, Any]]:
    import json

    found: list[dict[str, Any]] = json.loads(b"[" + await deployment.page(view, {}) + b"]")
    return found


@pytest.mark.parametrize("few", [1, 1_000_000], ids=["beside", "here"])
async def test_an_answer_is_of_one_position_of_each_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """Each write moves an amount from one row to another, in one batch: the sum never changes, nor does a self-join."""
    monkeypatch.setattr(cut, "FEW_ROWS", few)
    deployment = await LocalDeployment.open(tmp_path)
    try:
        await deployment.execute(TABLES)
        await deployment.insert("accounts", [{"id": i, "owner": 0, "amount": 10} for i in range(200)])
        done = False

        async def move() -> int:
            moved = 0
            while not done:
                one = moved % 200
                await deployment.execute(
                    "UPDATE accounts SET amount = IF(id = ?, amount - 1, amount + 1) WHERE id IN (?, ?)",
                    [one, one, (one + 7) % 200],
                )
                moved += 1
            return moved

        writer = asyncio.create_task(move())
        for _ in range(15):
            ((total, joined), _) = await deployment.execute(
                "SELECT SUM(amount) FROM accounts;"
                "SELECT SUM(a.amount), COUNT(*) FROM accounts a JOIN accounts b ON a.id = b.id AND a.amount = b.amount"
            )
            assert total.rows == ((2000,),)
            assert joined.rows == ((2000, 200),)
        done = True
        assert await writer > 0
    finally:
        await deployment.close()


async def test_an_answer_has_the_writes_before_it_and_names_its_positions(deployment: LocalDeployment) -> None:
    (_, written) = await deployment.execute("UPDATE accounts SET amount = 1 WHERE id < 50")
    ((result,), read) = await deployment.execute("SELECT COUNT(*) FROM accounts WHERE amount = 1", token=written)
    assert result.rows == ((50,),)
    assert not read, "nothing beyond the token was read"
    ((result,), read) = await deployment.execute("SELECT COUNT(*) FROM accounts WHERE amount = 1")
    assert {base: read[base] for base in written} == written


async def test_a_token_of_the_future_is_waited_for(tmp_path: Path) -> None:
    deployment = await LocalDeployment.open(tmp_path, read_timeout=0.2)
    try:
        await deployment.execute(TABLES)
        with pytest.raises(ReadTimeout, match="token"):
            await deployment.execute("SELECT COUNT(*) FROM accounts", token={"accounts": 10})
    finally:
        await deployment.close()


@pytest.mark.parametrize(
    ("alteration", "expected"),
    [
        ("ALTER TABLE t ADD COLUMN b INT DEFAULT 5", [("id", "a", "b"), (1, 10, 5)]),
        ("ALTER TABLE t DROP COLUMN a", [("id",), (1,)]),
        ("ALTER TABLE t DROP COLUMN a, ADD COLUMN a INT DEFAULT 7", [("id", "a"), (1, 7)]),
    ],
)
async def test_a_select_during_an_alteration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alteration: str, expected: list[Any]
) -> None:
    deployment = await LocalDeployment.open(tmp_path / "data")
    try:
        await deployment.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT); INSERT INTO t VALUES (1, 10)")
        evaluate = type(deployment.hosts).evaluate
        alterations = [alteration]

        async def altered(
            self: Any, bases: list[DomainIndex], question: Question, budget: Budget
        ) -> tuple[Rows, Clock]:
            if alterations:
                await deployment.execute(alterations.pop())
            return await evaluate(self, bases, question, budget)

        monkeypatch.setattr(type(deployment.hosts), "evaluate", altered)
        ((result,), _) = await deployment.execute("SELECT * FROM t")
        assert [tuple(column.name for column in result.columns), *result.rows] == expected
    finally:
        await deployment.close()


# --- budgets ----------------------------------------------------------------------------------------------------------

ENDLESS = "SELECT COUNT(*) FROM accounts a, accounts b, accounts c WHERE a.amount + b.amount + c.amount < 0"


async def opened(path: Path, **budget: Any) -> LocalDeployment:
    deployment = await LocalDeployment.open(path, budget=Budget(**budget))
    await deployment.execute(TABLES)
    await deployment.insert("accounts", [{"id": i, "owner": i % 7, "amount": i} for i in range(2_000)])
    return deployment


@pytest.mark.parametrize(
    ("budget", "sql", "error", "names"),
    [
        ({"seconds": 0.5}, ENDLESS, ReadTimeout, "statement_timeout"),
        ({"rows": 100}, "SELECT id FROM accounts", LimitExceeded, "max_answer_rows"),
        ({"answer_bytes": 1_000}, "SELECT id FROM accounts", LimitExceeded, "max_answer_size"),
        ({"held_bytes": 1_000_000}, ENDLESS, LimitExceeded, "max_evaluation_size"),
    ],
    ids=["time", "rows", "answer", "memory"],
)
async def test_whoever_exceeds_a_budget_is_stopped_alone(
    tmp_path: Path, budget: dict[str, Any], sql: str, error: type[Exception], names: str
) -> None:
    deployment = await opened(tmp_path, **budget)
    try:
        with pytest.raises(error) as failed:
            await deployment.execute(sql)
        assert names in str(failed.value)
        assert await rows(deployment, "SELECT amount FROM accounts WHERE id = 3") == [(3,)]
    finally:
        await deployment.close()


@pytest.mark.parametrize("explained", ["", "EXPLAIN "])
async def test_planning_is_within_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, explained: str) -> None:
    """Also where a thread does it, which goes on; what waits for that thread is stopped in time as well."""
    deployment, beside, planned = await opened(tmp_path, seconds=0.3), ChildPool(), threading.Event()
    deployment.read_within(SqlLimits(), beside)
    work = planning.plan_evaluation

    def slow(*arguments: Any) -> Any:
        planned.wait(60)
        return work(*arguments)

    monkeypatch.setattr(planning, "plan_evaluation", slow)
    sql = explained + f"SELECT {', '.join(f'amount + {each} AS c{each}' for each in range(100))} FROM accounts"
    assert SHORT_TEXT < len(sql) < VERY_LONG
    try:
        for text in (sql, sql + " WHERE id = 3"):
            with pytest.raises(ReadTimeout, match=r"after 0\.3 s"):
                await asyncio.wait_for(deployment.execute(text), 20)
        planned.set()
        deployment.budget = Budget()
        await rows(deployment, sql + " WHERE id = 4")
    finally:
        planned.set()
        await beside.close()
        await deployment.close()


async def test_what_was_stopped_has_taken_its_time(tmp_path: Path) -> None:
    deployment = await opened(tmp_path, seconds=0.3)
    try:
        for _ in range(2):
            with pytest.raises(ReadTimeout):
                await deployment.execute(ENDLESS)
        (shown,) = deployment.queries()
        assert (shown.calls, shown.rows) == (2, 0)
        assert 400 < shown.milliseconds < 60_000
    finally:
        await deployment.close()


async def running(deployment: LocalDeployment, text: str) -> int:
    async with asyncio.timeout(20):
        while True:
            found = [each.id for each in deployment.running() if text in each.sql]
            if found:
                return found[0]
            await asyncio.sleep(0.01)


async def test_a_running_statement_is_listed_and_stopped(tmp_path: Path) -> None:
    deployment = await opened(tmp_path)
    try:
        asked = asyncio.create_task(deployment.execute(ENDLESS))
        id = await running(deployment, "a.amount + b.amount")
        shown = await rows(deployment, "SHOW FULL PROCESSLIST")
        assert (id, ENDLESS) in [(row[0], row[7]) for row in shown]
        await deployment.execute(f"KILL {id}")
        with pytest.raises(Cancelled, match="KILL"):
            await asked
        with pytest.raises(NotFound, match=str(id)):
            await deployment.execute(f"KILL QUERY {id}")
        assert await rows(deployment, "SELECT COUNT(*) FROM accounts") == [(2_000,)]
    finally:
        await deployment.close()


async def test_a_statement_that_nobody_waits_for_ends(tmp_path: Path) -> None:
    deployment = await opened(tmp_path)
    try:
        asked = asyncio.create_task(deployment.execute(ENDLESS))
        await running(deployment, "a.amount + b.amount")
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert not deployment.running()
        assert await rows(deployment, "SELECT COUNT(*) FROM accounts") == [(2_000,)]
    finally:
        await deployment.close()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT REPEAT(name, 30000) AS long_name FROM owners WHERE id = 1",
        "SELECT name FROM owners WHERE id IN (2, 3, 4, 5, 6, 7, 8, 9)",
        "SELECT name FROM owners",
    ],
    ids=["a text that grows", "long rows by key", "long rows"],
)
async def test_long_texts_are_no_matter_of_the_dataflow_thread(tmp_path: Path, sql: str) -> None:
    deployment = await opened(tmp_path)
    try:
        await deployment.insert("owners", [{"id": i, "name": str(i) * (10 if i < 2 else 2**20)} for i in range(10)])
        assert await rows(deployment, "SELECT COUNT(*) FROM owners WHERE id = 1") == [(1,)]
        assert isinstance(deployment.hosts, LocalHosts)
        assert not deployment.hosts.evaluators.begun
        assert len(await rows(deployment, sql)) in (1, 8, 10)
        assert deployment.hosts.evaluators.begun
    finally:
        await deployment.close()


async def test_many_at_once_wait_for_their_turn(tmp_path: Path) -> None:
    deployment = await opened(tmp_path)
    try:
        texts = [f"SELECT COUNT(*) FROM accounts WHERE amount >= {i}" for i in range(12)]
        found = await asyncio.gather(*(rows(deployment, text) for text in texts))
        assert found == [[(2_000 - i,)] for i in range(12)]
    finally:
        await deployment.close()


async def test_a_set_operation_that_cannot_be_a_view_is_answered_as_its_refusal_says(tmp_path: Path) -> None:
    deployment = await opened(tmp_path)
    sql = (
        "SELECT id FROM accounts WHERE amount LIKE ? UNION SELECT amount FROM accounts WHERE id < 2 "
        "EXCEPT SELECT id FROM accounts WHERE id > 9000 ORDER BY 1"
    )
    try:
        with pytest.raises(Unsupported, match="below a set operation") as refused:
            await deployment.execute(f"CREATE EXT VIEW both_of_them AS {sql}")
        assert "a SELECT without a view" in str(refused.value.hint)
        (result,), _ = await deployment.execute(sql, ["%99"])
        assert [tuple(row) for row in result.rows] == [(0,), (1,), *((each,) for each in range(99, 2_000, 100))]
    finally:
        await deployment.close()


async def test_distinct_values_order_joins_and_make_the_estimate(tmp_path: Path) -> None:
    """By table sizes alone orders would come first, half of which are looked up then; and 4,000 rows be expected."""
    deployment = await LocalDeployment.open(tmp_path, shards=2)
    try:
        await deployment.execute("""
            CREATE TABLE orders (id INT PRIMARY KEY, state INT);
            CREATE TABLE products (id INT PRIMARY KEY, code INT);
            CREATE TABLE items (id INT PRIMARY KEY, order_id INT, product INT, KEY (order_id), KEY (product))
        """)
        await deployment.insert("orders", [{"id": i, "state": i // 2 % 2} for i in range(2_000)])
        await deployment.insert("products", [{"id": i, "code": 1_000 + i} for i in range(400)])
        await deployment.insert("items", [{"id": i, "order_id": i // 2, "product": i % 400} for i in range(4_000)])
        sql = (
            "SELECT i.id FROM orders o JOIN items i ON o.id = i.order_id JOIN products p ON p.id = i.product "
            "WHERE o.state = 1 AND p.code = 1077"
        )
        plan = [str(line) for (line,) in await rows(deployment, f"EXPLAIN {sql}")]
        assert plan[1] == "π id  ~10 rows"
        bases = [line.strip("│├└─ ").split("  ")[0] for line in plan[: plan.index("a view of it would be")]]
        assert [each for each in bases if each in ("orders", "products", "items")] == ["products", "items", "orders"]
        expected = [(i,) for i in range(77, 4_000, 400) if i // 4 % 2 == 1]
        assert sorted_rows(await rows(deployment, sql)) == sorted_rows(expected)
    finally:
        await deployment.close()


# --- what is kept -----------------------------------------------------------------------------------------------------


@pytest.fixture
def pays_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "KEEP_SECONDS", 0.0)
    monkeypatch.setattr(shapes, "KEEP_CALLS", 2)


async def query(deployment: LocalDeployment, part: str) -> dict[str, Any]:
    ((shown,), _) = await deployment.execute("SHOW QUERIES")
    names = [column.name for column in shown.columns]
    return next(dict(zip(names, row, strict=True)) for row in shown.rows if part in str(row[0]))


async def until_kept(deployment: LocalDeployment, sql: str, part: str) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while (shape := await query(deployment, part))["view"] is None:
            await deployment.execute(sql)
    return shape


@pytest.mark.usefixtures("pays_at_once")
async def test_a_shape_that_pays_becomes_a_view_that_a_start_begins_without(tmp_path: Path) -> None:
    deployment = await opened(tmp_path)
    before = stored_state(tmp_path / "recipe.json")
    nodes = len(deployment.state.flow.nodes)
    await deployment.execute("SELECT id FROM accounts WHERE owner = 1 AND amount > 5")
    shape = await until_kept(deployment, "SELECT id FROM accounts WHERE owner = 2 AND amount > 5", "owner")
    assert "kept" in shape["why"]
    assert shape["create_view"].startswith("CREATE EXT VIEW name AS SELECT")
    assert len(deployment.state.flow.nodes) > nodes
    assert (7,) in await rows(deployment, "SELECT id FROM accounts WHERE owner = 0 AND amount > 5")
    await deployment.execute("INSERT INTO accounts VALUES (5000, 0, 50)")
    assert (5000,) in await rows(deployment, "SELECT id FROM accounts WHERE owner = 0 AND amount > 5")
    assert stored_state(tmp_path / "recipe.json") == before, "the recipe has what people declared"
    await deployment.close()
    deployment = await LocalDeployment.open(tmp_path)
    try:
        assert not deployment.state.catalog.views
        assert (5000,) in await rows(deployment, "SELECT id FROM accounts WHERE owner = 0 AND amount > 5")
    finally:
        await deployment.close()


@pytest.mark.usefixtures("pays_at_once")
async def test_where_memory_is_short_automatic_views_go_before_partial_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = await opened(tmp_path)
    hosted = deployment.dataflow.hosted

    def held() -> int:
        return sum(host.domain.accounted_bytes() for host in hosted.hosts.values())

    def evicted() -> int:
        return sum(host.domain.counters.evictions for host in hosted.hosts.values())

    try:
        await deployment.execute("CREATE EXT VIEW declared AS SELECT * FROM accounts WHERE owner = ?")
        for owner in range(OWNERS):
            await deployment.pages("declared", [[owner]])
        declared = held()
        latest = "SELECT id FROM accounts WHERE amount < 3"
        for sql in ("SELECT amount FROM accounts WHERE amount < 500", latest):
            await deployment.execute(sql)
            await until_kept(deployment, sql, sql[:20])
        await deployment.selects.settled()
        assert held() > declared * 9 // 8, "the views are worth dropping"
        deployment.dataflow.memory_limit = declared + (held() - declared) // 2
        monkeypatch.setattr(memory_limiter, "SPARED_SHARE", 1)
        id = 10_000
        async with asyncio.timeout(20):
            while held() > deployment.dataflow.memory_limit:
                await deployment.execute(f"INSERT INTO accounts VALUES ({id}, 100, 1000)")
                id += 1
        assert evicted() == 0
        assert (await query(deployment, "SELECT id"))["view"] is not None, "the one asked latest stays"
        assert "one had to go" in (await query(deployment, "SELECT amount"))["why"]
        deployment.dataflow.memory_limit = declared * 2 // 3
        async with asyncio.timeout(20):
            while not evicted() or (await query(deployment, "SELECT id"))["view"] is not None:
                await deployment.execute(f"INSERT INTO accounts VALUES ({id}, 100, 1000)")
                id += 1
        assert not deployment.selects.shapes.kept
        assert (2,) in await rows(deployment, latest), "it is evaluated again"
    finally:
        await deployment.close()


@pytest.mark.usefixtures("pays_at_once")
async def test_past_their_bytes_the_one_asked_longest_ago_goes(tmp_path: Path) -> None:
    deployment = await opened(tmp_path)
    first, latest = "SELECT amount FROM accounts WHERE amount < 500", "SELECT id FROM accounts WHERE amount < 3"
    try:
        await deployment.execute("CREATE EXT VIEW declared AS SELECT * FROM accounts WHERE owner = ?")
        await deployment.pages("declared", [[owner] for owner in range(OWNERS)])
        assert deployment.automatic_bytes() == 0, "a declared view is none, and tables belong to all"
        sizes = []
        for sql in (first, latest):
            await deployment.execute(sql)
            await until_kept(deployment, sql, sql[:20])
            sizes.append(deployment.automatic_bytes())
        assert 0 < sizes[0] < sizes[1]
        deployment.selects.kept_bytes = sizes[1]
        deployment.selects.check_size()
        await deployment.selects.settled()
        assert deployment.automatic_bytes() == sizes[1], "they are as large as they may be"
        deployment.selects.kept_bytes -= 1
        deployment.selects.check_size()
        async with asyncio.timeout(20):
            while deployment.automatic_bytes() == sizes[1]:
                await asyncio.sleep(0.001)
        assert "max_automatic_size" in (await query(deployment, "SELECT amount"))["why"]
        assert (await query(deployment, "SELECT id"))["view"] is not None
    finally:
        await deployment.close()


@pytest.mark.usefixtures("pays_at_once")
async def test_only_so_many_are_kept_and_no_definition_waits_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shapes, "KEPT_VIEWS", 2)
    deployment = await opened(tmp_path)
    try:
        for column in ("id", "owner", "amount"):
            sql = f"SELECT {column} FROM accounts WHERE owner = 3"
            await deployment.execute(sql)
            await until_kept(deployment, sql, f"SELECT {column}")
        async with asyncio.timeout(20):
            while len(deployment.state.catalog.views) > 2:
                await asyncio.sleep(0.01)
        await deployment.execute("DROP TABLE accounts")
        assert not deployment.state.catalog.views
        assert len(deployment.state.flow.nodes) == 0
    finally:
        await deployment.close()


@pytest.mark.usefixtures("pays_at_once")
async def test_plans_hold_while_automatic_views_come_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[str] = []

    def plan(state: State, definition: ViewDefinition, *more: Any) -> Any:
        planned.append(definition.sql)
        return plan_evaluation(state, definition, *more)

    monkeypatch.setattr(planning, "plan_evaluation", plan)
    deployment = await opened(tmp_path)
    other = "SELECT amount FROM accounts WHERE amount > 5000"
    monkeypatch.setattr(selects, "FULL_ROWS", 0)  # So that there is no view of the other.
    try:
        await deployment.execute(other)
        await deployment.execute("SELECT id FROM accounts WHERE owner = 1")
        await until_kept(deployment, "SELECT id FROM accounts WHERE owner = 1", "owner")
        await deployment.execute(other)
        assert len([sql for sql in planned if "amount" in sql]) == 1
        await deployment.execute("ALTER TABLE accounts ADD COLUMN colour INT")
        await deployment.execute(other)
        assert "amount" in planned[-1], "the table is another"
        await deployment.execute(f"CREATE EXT VIEW declared AS {other}")
        assert "declared" in (await rows(deployment, f"EXPLAIN {other}"))[0][0]
    finally:
        await deployment.close()


async def test_500_shapes_leave_nothing(tmp_path: Path) -> None:
    deployment = await opened(tmp_path)
    try:
        for number in range(500):
            await deployment.execute(f"SELECT id + {number} AS n FROM accounts WHERE id = {number}")
        assert not deployment.state.catalog.views
        assert not deployment.state.flow.nodes
    finally:
        await deployment.close()


@pytest.mark.usefixtures("pays_at_once")
async def test_constants_that_are_no_parameters_are_one_shape_and_kept_only_if_they_stay(tmp_path: Path) -> None:
    deployment = await opened(tmp_path)
    try:
        for number in range(8):
            await deployment.execute(f"SELECT COUNT(*) FROM accounts WHERE amount > {number}")
        shape = await query(deployment, "COUNT")
        assert shape["calls"] == 8
        assert "with these constants" in shape["why"]
        assert not deployment.state.catalog.views
        await until_kept(deployment, "SELECT COUNT(*) FROM accounts WHERE amount > 5", "COUNT")
    finally:
        await deployment.close()


async def test_modes(tmp_path: Path) -> None:
    deployment = await LocalDeployment.open(tmp_path, ad_hoc=AdHocMode.OFF)
    try:
        await deployment.execute(f"{TABLES}; CREATE EXT VIEW declared AS SELECT id FROM accounts WHERE owner = ?")
        assert await rows(deployment, "SELECT id FROM accounts WHERE owner = 3") == []
        with pytest.raises(Unsupported, match="ad_hoc") as refused:
            await deployment.execute("SELECT amount FROM accounts WHERE owner = 3")
        assert "CREATE EXT VIEW" in str(refused.value.hint)
    finally:
        await deployment.close()


async def test_a_view_of_somebody_else_that_has_the_answer_is_read(tmp_path: Path) -> None:
    deployment = await opened(tmp_path)
    try:
        select = "SELECT id FROM accounts WHERE owner = {} ORDER BY id LIMIT 2"
        await deployment.execute(f"CREATE EXT VIEW declared AS {select.format('?')}")
        explained = await rows(deployment, f"EXPLAIN {select.format(3)}")
        assert 'view "declared"' in explained[0][0]
        assert await rows(deployment, select.format(3)) == [(3,), (10,)]
        assert deployment.counted()[1] == 1
    finally:
        await deployment.close()


async def test_explain_runs_nothing_and_keeps_nothing(tmp_path: Path) -> None:
    deployment = await opened(tmp_path)
    try:
        shown = await rows(deployment, f"EXPLAIN {ENDLESS}")
        assert "base tables" in shown[0][0]
        assert not deployment.state.flow.nodes
    finally:
        await deployment.close()


async def test_views_of_an_earlier_versions_recipe_are_left_out(tmp_path: Path) -> None:
    from migrations.recipe import RecipeEntry, declared
    from migrations.statements.adhoc.shapes_of_selects import ad_hoc_name

    text = "SELECT id FROM t WHERE id = ?"
    table, other = (
        RecipeEntry(("CREATE TABLE t (id INT PRIMARY KEY)",)),
        RecipeEntry(("CREATE VIEW v AS SELECT id FROM t",)),
    )
    kept = RecipeEntry((f"CREATE VIEW w AS SELECT id FROM {ad_hoc_name('SELECT 1 FROM t')}",))
    recipe = Recipe(
        (table, RecipeEntry((text,), ad_hoc=True), other, RecipeEntry(forget=(ad_hoc_name(text),)),
         RecipeEntry(("SELECT 1 FROM t",), ad_hoc=True), kept)
    )  # fmt: skip
    assert declared(recipe) == Recipe((table, other, RecipeEntry(("SELECT 1 FROM t",), ad_hoc=True), kept))


async def test_a_long_select_is_planned_off_the_event_loop(
    deployment: LocalDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []

    def on(room: ModuleType, name: str) -> None:
        work = getattr(room, name)

        def noted(*arguments: Any) -> Any:
            threads.append(threading.current_thread().name)
            return work(*arguments)

        monkeypatch.setattr(room, name, noted)

    for name in ("parameterise", "plan_evaluation", "plan_readers"):
        on(planning, name)
    for name in ("plan_evaluation", "shape_text"):
        on(selects, name)
    beside = ChildPool()
    deployment.read_within(SqlLimits(), beside)
    numbers = ", ".join(map(str, range(1_000, 1_900)))
    sql = f"SELECT {', '.join(f'amount + {each} AS c{each}' for each in range(100))} FROM accounts WHERE "
    assert SHORT_TEXT < len(sql + numbers) < VERY_LONG - 100
    try:
        assert await rows(deployment, sql + f"id IN (7, {numbers})") == [tuple(range(7, 107))]
        await rows(deployment, "EXPLAIN " + sql + f"id IN (8, {numbers})")
        assert len(threads) >= 5
        assert {name.partition("_")[0] for name in threads} == {"texts"}
        threads.clear()
        assert await rows(deployment, "SELECT amount FROM accounts WHERE id = 7") == [(7,)]
        assert {name.partition("_")[0] for name in threads} == {"MainThread"}
        listed = [query.query for query in deployment.selects.queries()]
        assert max(map(len, listed)) < 2 * shapes.SHAPE_CHARACTERS, "a long text is known by its beginning and a digest"
    finally:
        await beside.close()


async def test_others_have_their_turns_between_reading_planning_and_evaluating(
    deployment: LocalDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, seen = 0, dict[str, int]()

    def on(room: Any, name: str) -> None:
        work = getattr(room, name)

        def noted(*arguments: Any) -> Any:
            seen[name] = turns
            return work(*arguments)

        monkeypatch.setattr(room, name, noted)

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(child_pool, "TURN_SECONDS", 0.0)
    on(prepared, "split")
    on(planning, "plan_evaluation")
    on(deployment.hosts, "evaluate")
    beside = asyncio.create_task(others())
    await asyncio.sleep(0)
    assert await rows(deployment, "SELECT amount FROM accounts WHERE id = 7") == [(7,)]
    beside.cancel()
    assert seen["split"] < seen["plan_evaluation"] < seen["evaluate"]


async def test_a_very_long_select_is_planned_in_a_process_beside(
    deployment: LocalDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = ChildPool()
    deployment.read_within(SqlLimits(), beside)
    for name in ("plan_evaluation", "parameterise"):
        monkeypatch.delattr(planning, name)
    numbers = ", ".join(map(str, range(1_000, 4_000)))
    where = f"WHERE a.id IN (?, {numbers}) AND a.owner = o.id"
    sql = f"SELECT name, amount FROM accounts a JOIN owners o {where}"
    assert len(sql) > VERY_LONG

    async def asked(text: str, *params: Any) -> list[tuple[Any, ...]]:
        (result,), token = await deployment.execute(text, params)
        assert bool(token) == text.startswith("SELECT name")
        return list(result.rows)

    try:
        assert await asked(sql, 8) == [("owner 8", 8)]
        assert await asked(sql, 599) == [("owner 19", 599)]
        told = await asked("EXPLAIN " + sql, 8)
        assert told[0] == (f"answered over the base tables; not kept: {selects.NOT_KEPT}",)
        assert ("a view of it would be",) in told
        assert await asked(f"SELECT 1 IN (1, {numbers})") == [(1,)]
        with pytest.raises(UnknownName):
            await asked(sql.replace("owners", "nobody"), 8)
        with pytest.raises(BadRequest, match="1 parameter"):
            await asked(sql)
        await deployment.execute("DROP TABLE owners; CREATE TABLE owners (id INT PRIMARY KEY, name TEXT, more INT)")
        assert await asked(sql, 8) == []
        (listed,) = [query for query in deployment.selects.queries() if "owners" in query.query]
        assert (listed.calls, listed.view, listed.why) == (3, None, f"not kept: {selects.NOT_KEPT}")
        deployment.selects.shapes.mode = AdHocMode.OFF
        with pytest.raises(Unsupported, match="ad_hoc is off"):
            await asked(sql, 8)
    finally:
        await beside.close()


def test_long_rows_come_in_several_messages() -> None:
    class Parent:
        def __init__(self) -> None:
            self.sent: list[bytes] = []

        def send_bytes(self, data: bytes) -> None:
            self.sent.append(data)

    parent, long = Parent(), [(each, "x" * 1_000_000) for each in range(20)]
    evaluator._send(cast(Connection, parent), [*long, (20, "x" * 2 * evaluator.MESSAGE_BYTES)])
    assert [row for data in parent.sent for row in pickle.loads(data)][:20] == long
    assert max(map(len, parent.sent[:-1])) <= evaluator.MESSAGE_BYTES
