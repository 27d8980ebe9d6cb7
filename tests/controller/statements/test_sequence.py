"""Several statements in one text, and one statement on several shards: what is done, and which error is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from controller.embedded.local import LocalDeployment
from controller.statements.sharded_write import write_parts
from domains.errors import ConstraintViolation, HeadraceError, OutcomeUnknown, StorageFailure, UnknownName
from domains.plan.packets import Insert, Operation, Written
from migrations.flow.routing import Split

Answer = TypeVar("Answer")
BEFORE, AFTER = "those before are done and stay", "those after are not done"


@pytest.mark.parametrize(
    ("sql", "which", "said", "rows"),
    [
        ("INSERT INTO t VALUES (9); INSERT INTO t VALUES (9)", "statement 2 of 2: ", (BEFORE,), [(9,)]),
        ("INSERT INTO t VALUES (1); INSERT INTO t VALUES (9)", "statement 1 of 2: ", (AFTER,), []),
        (
            "INSERT INTO t VALUES (9); SELECT b FROM t; INSERT INTO t VALUES (8)",
            "statement 2 of 3: ",
            (BEFORE, AFTER),
            [(9,)],
        ),
        (
            "INSERT INTO t VALUES (9); CREATE TABLE u (a INT); CREATE VIEW v AS SELECT b FROM u; DELETE FROM t",
            'statements 2 to 3 of 4: "v": unknown column "b"',
            (BEFORE, AFTER),
            [(9,)],
        ),
        ("INSERT INTO t VALUES (1)", "", (), []),
    ],
)
async def test_an_error_says_which_statement_it_is_about(
    tmp_path: Path, sql: str, which: str, said: tuple[str, ...], rows: list[tuple[int]]
) -> None:
    deployment = await LocalDeployment.open(tmp_path / "data")
    try:
        await deployment.execute("CREATE TABLE t (a INT PRIMARY KEY); INSERT INTO t VALUES (1)")
        with pytest.raises((ConstraintViolation, UnknownName)) as raised:
            await deployment.execute(sql)
        error: HeadraceError = raised.value
        assert error.message.startswith(which or "row 1"), error.message
        assert {text: text in (error.hint or "") for text in (BEFORE, AFTER)} == {
            text: text in said for text in (BEFORE, AFTER)
        }
        ((answer,), _) = await deployment.execute("SELECT a FROM t WHERE a > 1")
        assert list(answer.rows) == rows
        assert [table.name for table in deployment.tables()] == ["t"]
    finally:
        await deployment.close()


async def test_a_write_that_is_read_aside_while_its_table_changes_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write goes with the version of the table that it was made for, wherever its text was read."""
    deployment = await LocalDeployment.open(tmp_path / "data")
    try:
        await deployment.execute("CREATE TABLE t (a INT PRIMARY KEY)")
        alterations = ["ALTER TABLE t ADD COLUMN b INT NOT NULL DEFAULT 5"]

        async def aside(read: Callable[[], Answer]) -> Answer:
            answer = read()
            if alterations:
                await deployment.execute(alterations.pop())
            return answer

        texts = type(deployment._statements.texts)
        monkeypatch.setattr(texts, "has_thread", True)
        monkeypatch.setattr(texts, "aside", staticmethod(aside))
        values = list(range(2_000))
        await deployment.execute(f"INSERT INTO t (a) VALUES {', '.join(['(?)'] * len(values))}", values)
        ((answer,), _) = await deployment.execute("SELECT COUNT(*), MIN(b), MAX(b) FROM t")
        assert answer.rows == ((2_000, 5, 5),)
    finally:
        await deployment.close()


# --- a write to several shards ------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [0, 1, 2])
async def test_an_unknown_outcome_of_one_shard_is_told_before_refusals_of_others(lost: int) -> None:
    async def write(shard: int, part: Operation) -> Written:
        if shard == lost:
            raise OutcomeUnknown("the sync failed")
        raise StorageFailure("the disk is full")

    with pytest.raises(OutcomeUnknown, match="sync"):
        await write_parts(Split(tuple((shard, Insert("t", ((shard,),))) for shard in range(3))), write)
