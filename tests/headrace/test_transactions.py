"""Transactions as an application meets them: by the Python client, and by HTTP as any other does."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from headrace_client.calls import Call
from serving_process import ROOT, Launch

from headrace import connect_async
from headrace.embedding import Embedded, embedded
from headrace.errors import (
    BadRequest,
    Conflict,
    ConstraintViolation,
    Forbidden,
    HeadraceError,
    LimitExceeded,
    NotFound,
    Overloaded,
    TransactionEnded,
)

SCHEMA = """
CREATE TABLE acc (id INT PRIMARY KEY, branch INT, n INT NOT NULL, doc JSON, KEY (branch, n));
CREATE TABLE entries (id INT PRIMARY KEY AUTO_INCREMENT, what VARCHAR(20));
CREATE EXT VIEW one AS SELECT id, n FROM acc WHERE id = ?;
CREATE EXT VIEW total AS SELECT SUM(n) AS s FROM acc;
INSERT INTO acc (id, branch, n) VALUES (1, 1, 100), (2, 1, 100), (3, 2, 5);
"""


@pytest.fixture
def single(tmp_path: Path) -> Iterator[Embedded]:
    """One shard."""
    with embedded(tmp_path, read_your_writes=True) as db:
        db.execute(SCHEMA)
        yield db


@pytest.fixture(params=[1, 3], ids=["one shard", "three shards"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Embedded]:
    with embedded(tmp_path, read_your_writes=True, read_timeout=60, shards=request.param) as db:
        db.execute(SCHEMA)
        yield db


def n_of(db: Any, id: int) -> int:
    return int(db.view("one").lookup(id=id)[0]["n"])


def test_its_writes_are_its_own_until_the_commit(db: Embedded) -> None:
    with db.transaction() as t:
        t.execute("UPDATE acc SET n = n - 10 WHERE id = 1")
        assert t.table("acc").update({"id": 2}, {"n": 110}).rows_affected == 1
        assert t.table("acc").insert({"id": 4, "n": 1}).rows_affected == 1
        assert t.table("acc").delete({"id": 3}).rows_affected == 1
        assert t.execute("SELECT id, n FROM acc ORDER BY id").rows == ((1, 90), (2, 110), (4, 1))
        assert (n_of(t, 1), n_of(db, 1)) == (90, 100)
        assert t.view("one").lookup_many([[2], [3]]) == [[{"id": 2, "n": 110}], []]
        assert t.lookups([("one", [[4]]), ("total", [[]])]) == [[[{"id": 4, "n": 1}]], [[{"s": 201}]]]
        assert db.view("total").lookup() == [{"s": 205}]
        done = t.commit()
    assert done.rows_affected == 4
    assert db.view("total").lookup(token=done.token) == [{"s": 201}]


def test_an_error_of_the_block_rolls_it_back(db: Embedded) -> None:
    def failing() -> None:
        with db.transaction() as t:
            t.execute("UPDATE acc SET n = 0")
            _ = 1 // 0

    with pytest.raises(ZeroDivisionError):
        failing()
    assert n_of(db, 1) == 100
    assert db.execute("SHOW TRANSACTIONS").rows == ()


READS = {
    "SELECT n FROM acc WHERE id = 3": "UPDATE acc SET n = 6 WHERE id = 3",
    "SELECT n FROM acc WHERE id = 9": "INSERT INTO acc (id, n) VALUES (9, 0)",
    "SELECT n FROM acc WHERE id IN (2, 3)": "DELETE FROM acc WHERE id = 3",
    "SELECT id FROM acc WHERE branch = 1 AND n < 50 ORDER BY n LIMIT 5": "UPDATE acc SET n = 10 WHERE id = 2",
    "SELECT id FROM acc ORDER BY id LIMIT 1": "INSERT INTO acc (id, n) VALUES (0, 0)",
    "SELECT SUM(n) FROM acc": "UPDATE acc SET n = 7 WHERE id = 1",
    "SELECT a.id FROM acc a JOIN entries e ON e.id = a.id WHERE a.id = 1": "INSERT INTO entries VALUES (1, 'x')",
    "INSERT IGNORE INTO acc (id, n) VALUES (1, 5)": "DELETE FROM acc WHERE id = 1",
    "UPDATE acc SET n = 1 WHERE id = 8": "INSERT INTO acc (id, n) VALUES (8, 8)",
    "SELECT n FROM acc WHERE id = 2 FOR UPDATE": "UPDATE acc SET n = 6 WHERE id = 2",
}


@pytest.mark.parametrize("read", READS)
def test_what_it_has_read_may_not_change(read: str, db: Embedded) -> None:
    def too_late() -> None:
        with db.transaction() as t:
            t.execute(read)
            db.execute(READS[read])
            t.execute("INSERT INTO entries (what) VALUES ('never')")

    with pytest.raises(Conflict, match="it has read"):
        too_late()
    assert db.execute("SELECT COUNT(*) FROM entries WHERE what = 'never'").rows == ((0,),)


@pytest.mark.parametrize("read", READS)
def test_what_it_has_not_read_may(read: str, db: Embedded) -> None:
    with db.transaction() as t:
        t.execute(read)
        db.execute("INSERT INTO entries (id, what) VALUES (77, 'other')")
        if "SUM" not in read:
            db.execute("UPDATE acc SET n = 999 WHERE id = 33")
    with db.transaction() as t:
        t.execute("SELECT id FROM acc WHERE branch = 2 AND n < 50 ORDER BY n LIMIT 5")
        db.execute("UPDATE acc SET n = 60 WHERE id = 2; UPDATE acc SET n = n + 1 WHERE branch = 1")
    with db.transaction() as t:
        t.execute("SELECT id FROM acc ORDER BY id LIMIT 1")
        db.execute("INSERT INTO acc (id, n) VALUES (50, 0)")


def test_run_does_it_again(db: Embedded) -> None:
    def add(t: Any) -> None:
        ((n,),) = t.execute("SELECT n FROM acc WHERE id = 1").rows
        t.execute("UPDATE acc SET n = ? WHERE id = 1", [n + 1])

    def many() -> None:
        for _ in range(10):
            db.run(add, attempts=1000)

    threads = [Thread(target=many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert n_of(db, 1) == 140


def test_run_gives_up(db: Embedded) -> None:
    tries = []

    def meddled(t: Any) -> None:
        tries.append(t.execute("SELECT n FROM acc WHERE id = 1").rows)
        db.execute("UPDATE acc SET n = n + 1 WHERE id = 1")

    with pytest.raises(Conflict):
        db.run(meddled, attempts=3)
    assert len(tries) == 3


async def test_it_is_awaited_the_same(launch_local: Launch) -> None:
    async with connect_async(launch_local().url, read_your_writes=True) as db:
        await db.execute(SCHEMA)
        async with db.transaction() as t:
            await t.execute("UPDATE acc SET n = 1 WHERE id = 1")

        async def add(t: Any) -> int:
            await t.execute("UPDATE acc SET n = n + 1 WHERE id = 1")
            return 7

        assert await db.run(add) == 7
        assert await db.view("one").lookup(id=1) == [{"id": 1, "n": 2}]

        async def too_late() -> None:
            async with db.transaction() as t:
                await t.view("one").lookup(id=1)
                await db.execute("UPDATE acc SET n = 0 WHERE id = 1")
                await t.view("one").lookup(id=2)

        with pytest.raises(Conflict):
            await too_late()


def test_a_statement_that_is_refused_leaves_it_open(db: Embedded) -> None:
    with db.transaction() as t:
        t.execute("UPDATE acc SET n = 1 WHERE id = 1")
        with pytest.raises(ConstraintViolation, match="the transaction is open, as it was before"):
            t.execute("INSERT INTO acc (id, n) VALUES (5, 0), (2, 0)")
        t.execute("UPDATE acc SET n = 2 WHERE id = 2")
    assert db.execute("SELECT id, n FROM acc ORDER BY id").rows == ((1, 1), (2, 2), (3, 5))


def test_savepoints(db: Embedded) -> None:
    db.execute(
        "BEGIN; UPDATE acc SET n = 1 WHERE id = 1; SAVEPOINT a; UPDATE acc SET n = 2 WHERE id = 2; SAVEPOINT b; "
        "DELETE FROM acc; ROLLBACK TO SAVEPOINT a; UPDATE acc SET n = n + 1 WHERE id = 3; COMMIT"
    )
    assert db.execute("SELECT id, n FROM acc ORDER BY id").rows == ((1, 1), (2, 100), (3, 6))
    with pytest.raises(NotFound, match='savepoint "b" does not exist'):
        db.execute("BEGIN; SAVEPOINT a; SAVEPOINT b; ROLLBACK TO a; ROLLBACK TO b; COMMIT")
    with pytest.raises(NotFound):
        db.execute("BEGIN; SAVEPOINT a; RELEASE SAVEPOINT a; ROLLBACK TO a; COMMIT")
    db.execute("BEGIN; SAVEPOINT a; DELETE FROM acc; SAVEPOINT A; ROLLBACK TO a; COMMIT")
    assert db.execute("SELECT COUNT(*) FROM acc").rows == ((0,),), "the later one has the name"


def test_numbers_that_were_given_out_are_gone(single: Embedded) -> None:
    with single.transaction() as t:
        assert t.execute("INSERT INTO entries (what) VALUES ('a'), ('b')").first_id == 1
        t.rollback()
    assert single.execute("INSERT INTO entries (what) VALUES ('c')").first_id == 3
    with pytest.raises(ConstraintViolation):
        single.execute("INSERT INTO acc (id, n) VALUES (1, 1)")
    with single.transaction() as t:
        assert t.table("entries").insert({"what": "d"}).first_id == 4
        assert single.execute("INSERT INTO entries (what) VALUES ('e')").first_id == 5
    assert single.execute("SELECT id, what FROM entries ORDER BY id").rows == ((3, "c"), (4, "d"), (5, "e"))


def test_a_text_is_all_or_none(db: Embedded) -> None:
    two = "UPDATE acc SET n = 0 WHERE id = 1; INSERT INTO acc (id, n) VALUES (2, 0)"
    for sql, atomic in ((two, True), (f"BEGIN; {two}; COMMIT", False)):
        with pytest.raises(ConstraintViolation, match="nothing of the transaction was done"):
            db.execute(sql, atomic=atomic)
        assert n_of(db, 1) == 100
    results = db.execute_all(
        "UPDATE acc SET n = n - 1 WHERE id = 1; UPDATE acc SET n = n + 1 WHERE id = 2", atomic=True
    )
    assert [each.rows_affected for each in results] == [1, 1]
    assert db.view("one").lookup(id=2, token=results[-1].token) == [{"id": 2, "n": 101}]


@pytest.mark.parametrize(
    ("sql", "atomic", "said"),
    [
        ("BEGIN; UPDATE acc SET n = 0", False, "does not end it; nothing was done"),
        ("BEGIN; COMMIT; START TRANSACTION; UPDATE acc SET n = 0", False, "does not end it"),
        ("SET autocommit = 0; UPDATE acc SET n = 0", False, "does not end it"),
        ("UPDATE acc SET n = 0; CREATE TABLE t (a INT)", True, "an atomic text with definitions"),
        ("BEGIN; UPDATE acc SET n = 0; COMMIT", True, "statements about transactions"),
        ("SAVEPOINT a", False, "no transaction is open"),
    ],
)
def test_texts_that_leave_something_open(sql: str, atomic: bool, said: str, db: Embedded) -> None:
    with pytest.raises(BadRequest, match=said):
        db.execute(sql, atomic=atomic)
    assert n_of(db, 1) == 100


def test_nothing_open_is_nothing_to_end(db: Embedded) -> None:
    assert len(db.execute_all("COMMIT; ROLLBACK; SELECT 1")) == 3


class Talking:
    """Requests of one session by its name."""

    def __init__(self, db: Embedded, name: str) -> None:
        self._db = db
        self._name = name

    def __call__(self, sql: str, *, fails: str = "") -> list[dict[str, Any]]:
        body = {"sql": sql, "params": []}
        answer = self._db._http.post("/v1/sql", json=body, headers={"Headrace-Session": self._name})
        if fails:
            assert answer.json()["error"]["code"] == fails
            return []
        assert answer.status_code == 200, answer.text
        return list(answer.json()["results"])


def test_a_session_by_its_name(db: Embedded) -> None:
    ask, other = Talking(db, "a session"), Talking(db, "another")
    ask("BEGIN")
    ask("UPDATE acc SET n = 1 WHERE id = 1")
    assert ask("SELECT n FROM acc WHERE id = 1")[0]["rows"] == [[1]]
    assert other("SELECT n FROM acc WHERE id = 1")[0]["rows"] == [[100]]
    ask("INSERT INTO acc (id, n) VALUES (2, 0)", fails="constraint_violation")
    assert len(db.execute("SHOW TRANSACTIONS").rows) == 1
    ask("COMMIT")
    assert n_of(db, 1) == 1
    ask("BEGIN; DELETE FROM acc; ROLLBACK; SELECT 1")
    ask("SET autocommit = 0")
    ask("UPDATE acc SET n = 2 WHERE id = 1")
    assert n_of(db, 1) == 1
    ask("CREATE TABLE made (a INT)")  # It commits what is open, as in MySQL.
    assert other("SELECT n FROM acc WHERE id = 1")[0]["rows"] == [[2]]
    ask("UPDATE acc SET n = 3 WHERE id = 1")
    ask("SET autocommit = 1")
    assert other("SELECT n FROM acc WHERE id = 1")[0]["rows"] == [[3]]
    ask("BEGIN; SELECT n FROM acc WHERE id = 1")
    other("UPDATE acc SET n = 4 WHERE id = 1")
    ask("UPDATE acc SET n = 0 WHERE id = 1", fails="conflict")
    ask("COMMIT")
    assert other("SELECT n FROM acc WHERE id = 1")[0]["rows"] == [[4]]


def test_read_only(db: Embedded) -> None:
    with db.transaction(read_only=True) as t:
        assert t.execute("SELECT COUNT(*) FROM acc").rows == ((3,),)
        with pytest.raises(BadRequest, match="READ ONLY"):
            t.execute("DELETE FROM acc")


def test_limits(tmp_path: Path) -> None:
    with embedded(tmp_path, max_transactions=2, max_transaction_size=20_000) as db:
        db.execute(SCHEMA)
        with pytest.raises(Overloaded, match="max_transactions"), db.transaction(), db.transaction(), db.transaction():
            pytest.fail("three are open")

        def too_much() -> None:
            with db.transaction() as t:
                for number in range(200):
                    t.execute("INSERT INTO entries (what) VALUES (?)", [f"row {number}"])

        with pytest.raises(LimitExceeded, match="max_transaction_size"):
            too_much()
        assert db.execute("SELECT COUNT(*) FROM entries").rows == ((0,),)


def test_one_that_is_idle_is_rolled_back(tmp_path: Path) -> None:
    with embedded(tmp_path, transaction_idle=0.5) as db:
        db.execute(SCHEMA)

        def idle() -> None:
            with db.transaction() as t:
                t.execute("UPDATE acc SET n = 0 WHERE id = 1")
                deadline = time.monotonic() + 60
                while db.execute("SHOW TRANSACTIONS").rows:
                    assert time.monotonic() < deadline
                    time.sleep(0.05)
                t.execute("UPDATE acc SET n = 0 WHERE id = 2")

        with pytest.raises(TransactionEnded):
            idle()
        assert db.execute("SELECT n FROM acc WHERE id = 1").rows == ((100,),)


DEFINITIONS = (
    "ALTER TABLE acc ADD COLUMN more INT",
    "ALTER TABLE acc DROP COLUMN branch CASCADE",
    "RENAME TABLE acc TO b",
)


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_a_table_that_is_altered_meanwhile(definition: str, db: Embedded) -> None:
    def altered() -> None:
        with db.transaction() as t:
            t.execute("UPDATE acc SET n = 0 WHERE id = 1")
            db.execute(definition)
            t.execute("UPDATE acc SET n = 0 WHERE id = 2")

    with pytest.raises(HeadraceError) as caught:
        altered()
    assert isinstance(caught.value, Conflict) or "acc" in caught.value.message
    name = "b" if "RENAME" in definition else "acc"
    assert db.execute(f"SELECT n FROM {name} WHERE id = 1").rows == ((100,),)


def test_who_reads_many_ranges_has_read_the_table(single: Embedded) -> None:
    """Each write is held against all that are remembered."""

    def many(ranges: int) -> None:
        with single.transaction() as t:
            for number in range(ranges):
                t.execute(f"SELECT id FROM acc WHERE branch = {number} AND n < 50 ORDER BY n LIMIT 2")
            single.execute("UPDATE acc SET n = n + 100 WHERE id = 1")

    many(16)
    with pytest.raises(Conflict, match="read whole"):
        many(17)


def test_a_foreign_key_that_comes_meanwhile(single: Embedded) -> None:
    """What is deleted was nobody's parent when that was worked out."""

    def orphaning() -> None:
        with single.transaction() as t:
            t.execute("DELETE FROM acc WHERE id = 1")
            single.execute("CREATE TABLE child (id INT PRIMARY KEY, acc INT, FOREIGN KEY (acc) REFERENCES acc (id))")
            single.execute("INSERT INTO child VALUES (1, 1)")

    with pytest.raises(Conflict):
        orphaning()
    assert single.execute("SELECT c.id, a.n FROM child c JOIN acc a ON a.id = c.acc").rows == ((1, 100),)


def test_a_server_that_begins_anew_knows_it_no_more(launch_local: Callable[..., Any], tmp_path: Path) -> None:
    with embedded(tmp_path / "data") as db:
        db.execute(SCHEMA)
        t = db.transaction().__enter__()
        t.execute("UPDATE acc SET n = 0")
    with embedded(tmp_path / "data") as db:
        assert db.execute("SELECT SUM(n) FROM acc").rows == ((205,),)
        answer = db._http.post("/v1/sql", json={"sql": "SELECT 1"}, headers={"Headrace-Transaction": t.id})
        assert (answer.status_code, answer.json()["error"]["code"]) == (410, "transaction_ended")


def test_many_rows_are_read_in_a_process_beside(db: Embedded) -> None:
    rows = ", ".join(f"({id}, 7, {id % 50})" for id in range(10, 3010))
    db.execute(f"INSERT INTO acc (id, branch, n) VALUES {rows}")
    asked = "SELECT branch, COUNT(*) AS c, SUM(n) AS s FROM acc GROUP BY branch ORDER BY branch"
    before = db.execute(asked).rows
    with db.transaction() as t:
        t.execute("DELETE FROM acc WHERE id = 1; INSERT INTO acc (id, branch, n) VALUES (9999, 7, 1000)")
        assert t.execute(asked).rows == ((1, 1, 100), before[1], (7, 3001, before[2][2] + 1000))
        assert db.execute(asked).rows == before

    def too_late() -> None:
        with db.transaction() as t:
            t.execute(asked)
            db.execute("UPDATE acc SET n = 1 WHERE id = 2000")
            t.execute("SELECT 1 FROM acc WHERE id = 1")

    with pytest.raises(Conflict, match="read whole"):
        too_late()


def test_a_commit_that_is_sent_again_is_answered_as_it_was(db: Embedded) -> None:
    with db.transaction() as t:
        t.execute("UPDATE acc SET n = n + 1 WHERE id = 1")
        id, done = t.id, t.commit()
    again = db._http.post(f"/v1/transactions/{id}/commit", json={})
    assert (again.status_code, again.json()["token"]) == (200, str(done.token))
    assert n_of(db, 1) == 101
    answer = db._http.post("/v1/sql", json={"sql": "SELECT 1"}, headers={"Headrace-Transaction": id})
    assert (answer.status_code, "was committed" in answer.text) == (410, True)


def test_one_that_is_listed(db: Embedded) -> None:
    with db.transaction(read_only=True) as t:
        t.execute("SELECT 1 FROM acc")
        (shown,) = db._http.get("/v1/transactions").json()["transactions"]
        assert (shown["id"], shown["read_only"], shown["statements"]) == (t.id, True, 1)
        assert shown["seconds"] >= shown["idle"] >= 0


def test_views_have_the_types_that_they_have(db: Embedded) -> None:
    db.execute(
        "CREATE TABLE kinds (id INT PRIMARY KEY, a DECIMAL(8,2), b DOUBLE, c DATETIME, d BLOB, e JSON, f TEXT); "
        """INSERT INTO kinds VALUES (1, 1.50, 0.1, '2026-01-31 08:00:00', x'00ff', '{"a": [1, null]}', 'é"'),
        (2, NULL, NULL, NULL, NULL, NULL, NULL);
        CREATE EXT VIEW kind AS SELECT * FROM kinds WHERE id = ?"""
    )
    with db.transaction() as t:
        for id in (1, 2):
            assert t.view("kind").lookup(id=id) == db.view("kind").lookup(id=id)
            assert t.view("kind").lookup_many([[id]]) == db.view("kind").lookup_many([[id]])


def test_look_ups_of_one_position(db: Embedded) -> None:
    """Money that is moved on and on is all there in each answer, whatever was evicted."""
    done = False

    def move() -> None:
        while not done:
            db.execute("UPDATE acc SET n = n - 1 WHERE id = 1; UPDATE acc SET n = n + 1 WHERE id = 2", atomic=True)

    mover = Thread(target=move)
    mover.start()
    try:
        for _ in range(20):
            db.view("one").evict([[1], [2]])
            (one, (total,)) = db.lookups([("one", [[1], [2]]), ("total", [[]])], consistent=True)
            assert sum(rows[0]["n"] for rows in one) == 200
            assert total == [{"s": 205}]
    finally:
        done = True
        mover.join()
    with pytest.raises(BadRequest):
        db.send(Call("POST", "/v1/lookups", dict, b'{"lookups": [], "consistent": 1}'))


def test_a_write_on_what_was_read(db: Embedded) -> None:
    db.execute("CREATE EXT VIEW of_branch AS SELECT id, n FROM acc WHERE branch = ?")
    rows, tag = db.view("of_branch").lookup_tagged(1)
    assert sorted(row["n"] for row in rows) == [100, 100]
    db.view("of_branch").evict([[1]])
    assert db.table("acc").update({"id": 1}, {"n": 90}, unchanged=[tag]).rows_affected == 1
    with pytest.raises(Conflict, match='the answer of view "of_branch" for \\[1\\] was changed'):
        db.table("acc").update({"id": 2}, {"n": 110}, unchanged=[tag])
    _, tag = db.view("of_branch").lookup_tagged({"branch": 1})
    _, other = db.view("one").lookup_tagged(9)
    done = db.execute("UPDATE acc SET n = 110 WHERE id = 2; UPDATE acc SET n = 6 WHERE id = 3", unchanged=[tag, other])
    assert db.view("one").lookup_many([[1], [2], [3]], token=done.token) == [
        [{"id": 1, "n": 90}],
        [{"id": 2, "n": 110}],
        [{"id": 3, "n": 6}],
    ]
    db.execute("INSERT INTO acc (id, n) VALUES (9, 9)")
    with pytest.raises(Conflict):
        db.execute("DELETE FROM acc", unchanged=[other])
    _, tag = db.view("one").lookup_tagged(1)
    with pytest.raises(ConstraintViolation):
        db.execute("UPDATE acc SET n = 0; INSERT INTO acc (id, n) VALUES (1, 1)", unchanged=[tag])
    assert n_of(db, 1) == 90


@pytest.mark.parametrize("tag", ["", "x", "W10.abc", "WyJvbmUiLFsxXV0", "%%.1"])
def test_what_is_no_tag(tag: str, db: Embedded) -> None:
    with pytest.raises(BadRequest, match="is no tag of an answer"):
        db.execute("DELETE FROM acc", unchanged=[tag])
    assert n_of(db, 1) == 100


@pytest.mark.parametrize("sql", ["CREATE TABLE t (a INT)", "COMMIT", "BEGIN; DELETE FROM acc; COMMIT"])
def test_what_is_not_done_on_condition(sql: str, db: Embedded) -> None:
    _, tag = db.view("one").lookup_tagged(1)
    with pytest.raises(BadRequest, match="an atomic text with definitions"):
        db.execute(sql, unchanged=[tag])
    assert n_of(db, 1) == 100


def answered(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except HeadraceError as error:
        return type(error)


@pytest.mark.parametrize("claims", [{"sub": 1}, {"sub": 2}, {"sub": 9}, {}, None], ids=repr)
def test_policies_let_through_what_they_do_without_one(claims: dict[str, int] | None, db: Embedded) -> None:
    db.execute(
        "CREATE TABLE m (id INT PRIMARY KEY, user INT, box INT, KEY (box)); "
        "CREATE EXT VIEW mine AS SELECT id FROM m WHERE box = ?; "
        "CREATE EXT VIEW boxes AS SELECT box, COUNT(*) AS c FROM m GROUP BY box ORDER BY box; "
        "INSERT INTO m VALUES (1, 1, 1), (2, 2, 1), (3, 1, 2); "
        "CREATE POLICY own ON m FOR ALL USING (user = CURRENT_CLAIM('sub'))"
    )
    asker = db if claims is None else db.session(claims=claims)
    with asker.transaction() as t:
        asked: list[Callable[[Any], Any]] = [
            lambda ask: ask.view("mine").lookup(box=1),
            lambda ask: ask.view("boxes").lookup(),
            lambda ask: ask.lookups([("mine", [[1], [2]]), ("boxes", [[]])]),
            lambda ask: ask.execute("SELECT id FROM m ORDER BY id").rows,
            lambda ask: ask.execute("SELECT box, c FROM boxes ORDER BY box").rows,
        ]
        for ask in asked:
            assert answered(lambda ask=ask: ask(t)) == answered(lambda ask=ask: ask(asker))
        if claims == {"sub": 1}:
            assert t.execute("UPDATE m SET box = 7").rows_affected == 2
            assert t.execute("SELECT id FROM m ORDER BY id").rows == ((1,), (3,))
            with pytest.raises(Forbidden):
                t.execute("INSERT INTO m VALUES (10, 2, 1)")
    moved = ((1,), (3,)) if claims == {"sub": 1} else ()
    assert db.execute("SELECT id FROM m WHERE box = 7 ORDER BY id").rows == moved


def test_both_headers_are_one_too_many(db: Embedded) -> None:
    headers = {"Headrace-Transaction": "a", "Headrace-Session": "b"}
    assert db._http.post("/v1/sql", json={"sql": "SELECT 1"}, headers=headers).status_code == 400


BLOCK = re.compile(r"```python\n(.*?)```", re.S)


def test_what_the_page_shows_runs(db: Embedded) -> None:
    """And does what it says there."""
    db.execute(
        "CREATE TABLE stock (item INT PRIMARY KEY, n INT); "
        "CREATE TABLE orders (id INT PRIMARY KEY AUTO_INCREMENT, item INT); "
        "CREATE EXT VIEW stock_of AS SELECT n FROM stock WHERE item = ?"
    )
    db.execute("INSERT INTO stock VALUES (7, 5)")
    blocks = BLOCK.findall((ROOT / "docs" / "transactions.md").read_text("utf-8"))
    assert len(blocks) == 6
    names: dict[str, Any] = {"db": db}
    for block in blocks:
        exec(block, names)
    assert names["bought"] is True
    assert db.execute("SELECT n FROM stock").rows == ((1,),)
    assert db.execute("SELECT COUNT(*) FROM orders").rows == ((4,),)
