"""Statements about transactions, as they are read."""

from __future__ import annotations

import pytest

from domains.errors import SqlSyntaxError, Unsupported
from migrations.parse.reading import exp, parse
from migrations.parse.transactions import TransactionDeed, TransactionStatement

KNOWN = {
    "BEGIN": TransactionStatement(TransactionDeed.BEGIN),
    "begin work": TransactionStatement(TransactionDeed.BEGIN),
    "START TRANSACTION": TransactionStatement(TransactionDeed.BEGIN),
    "START TRANSACTION READ WRITE": TransactionStatement(TransactionDeed.BEGIN, read_only=False),
    "start  transaction\nread only": TransactionStatement(TransactionDeed.BEGIN, read_only=True),
    "START TRANSACTION WITH CONSISTENT SNAPSHOT": TransactionStatement(TransactionDeed.BEGIN, snapshot=True),
    "START TRANSACTION READ ONLY, with consistent snapshot": TransactionStatement(
        TransactionDeed.BEGIN, read_only=True, snapshot=True
    ),
    "COMMIT": TransactionStatement(TransactionDeed.COMMIT),
    "COMMIT WORK": TransactionStatement(TransactionDeed.COMMIT),
    "ROLLBACK": TransactionStatement(TransactionDeed.ROLLBACK),
    "SAVEPOINT a_1": TransactionStatement(TransactionDeed.SAVEPOINT, "a_1"),
    "ROLLBACK TO SAVEPOINT `s1`": TransactionStatement(TransactionDeed.ROLLBACK_TO, "s1"),
    "ROLLBACK WORK TO s1": TransactionStatement(TransactionDeed.ROLLBACK_TO, "s1"),
    "RELEASE SAVEPOINT s1": TransactionStatement(TransactionDeed.RELEASE, "s1"),
    "SET autocommit = 0": TransactionStatement(TransactionDeed.AUTOCOMMIT),
    "SET SESSION autocommit=ON": TransactionStatement(TransactionDeed.AUTOCOMMIT, on=True),
    "SET @@autocommit = 1": TransactionStatement(TransactionDeed.AUTOCOMMIT, on=True),
    "SET @@session.autocommit := OFF": TransactionStatement(TransactionDeed.AUTOCOMMIT),
    "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE": TransactionStatement(
        TransactionDeed.ISOLATION, level="SERIALIZABLE"
    ),
    "SET TRANSACTION isolation level read committed, READ ONLY": TransactionStatement(
        TransactionDeed.ISOLATION, level="READ COMMITTED", read_only=True
    ),
    "SET LOCAL TRANSACTION ISOLATION LEVEL REPEATABLE READ": TransactionStatement(
        TransactionDeed.ISOLATION, level="REPEATABLE READ", scope="SESSION"
    ),
    "SET SESSION TRANSACTION READ WRITE": TransactionStatement(
        TransactionDeed.ISOLATION, read_only=False, scope="SESSION"
    ),
    "SET GLOBAL TRANSACTION ISOLATION LEVEL READ UNCOMMITTED": TransactionStatement(
        TransactionDeed.ISOLATION, level="READ UNCOMMITTED", scope="GLOBAL"
    ),
    "SHOW TRANSACTIONS": TransactionStatement(TransactionDeed.SHOW),
}


@pytest.mark.parametrize("sql", [sql for sql, statement in KNOWN.items() if statement is not None])
def test_a_statement_is_read(sql: str) -> None:
    (parsed,) = parse(f"/* first */ {sql};")
    assert parsed.transaction == KNOWN[sql]


@pytest.mark.parametrize(
    "sql",
    [
        "COMMIT AND CHAIN",
        "ROLLBACK RELEASE",
        "SET TRANSACTION ISOLATION LEVEL CHAOS",
    ],
)
def test_what_mysql_has_besides_is_refused_by_name(sql: str) -> None:
    with pytest.raises(Unsupported):
        parse(sql)


@pytest.mark.parametrize("sql", ["BEGIN NOW", "COMMIT 7", "SAVEPOINT", "ROLLBACK TO", "RELEASE s", "START"])
def test_another_end_is_a_mistake_at_its_place(sql: str) -> None:
    with pytest.raises(SqlSyntaxError) as caught:
        parse(sql)
    assert caught.value.line == 1


def test_others_that_begin_so_are_what_they_were() -> None:
    assert parse("SET @a = 1")[0].transaction is None
    assert parse("SHOW TABLES")[0].transaction is None


@pytest.mark.parametrize(
    "lock", ["FOR UPDATE", "FOR SHARE", "LOCK IN SHARE MODE", "FOR UPDATE SKIP LOCKED", "for\nupdate"]
)
def test_a_locking_select_is_one(lock: str) -> None:
    (parsed,) = parse(f"SELECT id FROM t WHERE id IN (SELECT id FROM u) {lock}")
    assert isinstance(parsed.expression, exp.Select)
    assert all(not select.args.get("locks") for select in parsed.expression.find_all(exp.Select))
