"""The campaign finds what is planted, makes it small, and can run it again from one line."""

from __future__ import annotations

import re
import threading
from random import Random

import pytest

from migrations.parse.reading import parse_select
from migrations.statements.adhoc import recognising
from tests.campaign.cases import case_of
from tests.campaign.evaluated import Evaluated
from tests.campaign.execution import Execution, Finding
from tests.campaign.judge import Judge
from tests.campaign.kinds import INT
from tests.campaign.nested import Nester
from tests.campaign.run import Campaign, TooLong, time_limit
from tests.campaign.schema import Column, Table
from tests.campaign.shrink import Recipe, Shrinker, parse_recipe
from tests.campaign.simplify import simpler
from tests.campaign.statements import CreateTable, CreateView, Delete, Insert, Operation, Update
from tests.campaign.subject import Answer, Setting


class Forgetful(Evaluated):
    """Acknowledges deletions and does not perform them."""

    def execute(self, sql: str) -> list[Answer]:
        return [Answer()] if sql.startswith("DELETE") else super().execute(sql)


def texts(operations: list[Operation] | tuple[Operation, ...]) -> list[str]:
    return [operation.text() for operation in operations]


def test_a_seed_is_a_case() -> None:
    assert texts(case_of(7).operations) == texts(case_of(7).operations)
    assert texts(case_of(7).operations) != texts(case_of(8).operations)


def test_a_planted_bug_is_found_shrunk_and_found_again() -> None:
    said: list[str] = []
    campaign = Campaign(Forgetful, "planted", say=said.append, shrink_seconds=300.0)
    assert not campaign.run(seconds=300, seed=1, failures=1)
    report = campaign.reports[0]
    statements = [line for line in report.script if not line.startswith("--")]
    assert any(line.startswith("DELETE") for line in statements)
    assert len(statements) <= 8, report.script
    found = re.search(r"--replay '(\d+):([^']+)'", report.command)
    assert found is not None
    again = Campaign(Forgetful, "planted", say=said.append)
    assert not again.run_case(int(found[1]), parse_recipe(found[2]))
    assert again.reports[0].kind == report.kind
    sound = Campaign(Evaluated, "sound", say=said.append)
    assert sound.run_case(int(found[1]), parse_recipe(found[2]))


def test_a_wrongly_recognised_constant_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan is taken for a text whose other constants are not those of the plan's."""
    monkeypatch.setattr(recognising, "_rest", lambda *_: ())
    campaign = Campaign(Evaluated, "planted", say=lambda _: None, shrink_seconds=0.0)

    def is_found(seed: int) -> bool:
        """Other findings, which cases have that are answered wrongly, may come before."""
        campaign.run_case(seed)
        return any("recognised as" in report.message for report in campaign.reports)

    assert any(map(is_found, range(1, 60)))


def test_recipes_are_read_as_written() -> None:
    recipe = Recipe((0, 1, 2, 5, 9, 10), ((5, 2), (5, 0)))
    assert recipe.text() == "0-2,5,9-10/5.2,5.0"
    assert parse_recipe(recipe.text()) == recipe
    assert parse_recipe("4") == Recipe((4,))


def test_shrinking_keeps_what_is_needed() -> None:
    operations = case_of(3).operations
    wanted = {operations[10].text(), operations[20].text()}
    shrinker = Shrinker(operations, lambda tried: wanted <= set(texts(list(tried))), deadline=float("inf"))
    assert sorted(texts(shrinker.shrink().applied(operations))) == sorted(wanted)


def test_simpler_operations_can_be_run() -> None:
    """Whatever simplification offers is still a statement: nothing that is left out is named."""
    for seed in range(12):
        for operation in case_of(seed).operations:
            if isinstance(operation, CreateView | Insert | Update | Delete):
                assert all(choice.text() for choice in simpler(operation))


def test_a_refusal_that_should_not_be_is_a_finding() -> None:
    class Strict(Evaluated):
        def execute(self, sql: str) -> list[Answer]:
            if sql.startswith("UPDATE"):
                raise KeyError("planted")
            return super().execute(sql)

    def run_all() -> None:
        for seed in range(20):
            setting = Setting(seed)
            Execution(Strict(setting), Judge(), seed).run(case_of(seed, setting).operations)

    with pytest.raises(Finding) as found:
        run_all()
    assert found.value.kind.startswith("KeyError")


def test_cases_of_several_shards_have_tables_in_several() -> None:
    operations = [op for seed in range(40) for op in case_of(seed, Setting(seed, shards=4)).operations]
    tables = [operation.table for operation in operations if isinstance(operation, CreateTable)]
    assert 0.6 < sum(table.spread for table in tables) / len(tables) < 1
    assert {table.ddl().partition(" SHARDS ")[2] for table in tables} == {"", "1", "2", "3", "4"}
    assert all(table.shard_by in key for table in tables if table.spread for key in table.keys)


def test_cases_of_one_shard_do_not_speak_of_it() -> None:
    assert not [op for seed in range(20) for op in texts(case_of(seed, Setting(seed)).operations) if "SHARD" in op]


def test_a_refused_insert_into_several_shards_comes_row_by_row() -> None:
    """One row is refused in its shard, the others are done: so each is judged by itself."""

    inserts: list[str] = []

    class Recorder(Evaluated):
        def execute(self, sql: str) -> list[Answer]:
            if sql.startswith("INSERT"):
                inserts.append(sql)
            return super().execute(sql)

    subject = Recorder(Setting(shards=3))
    column = Column("c0", INT, "INT", nullable=False)
    for spread, statements in ((True, 5), (False, 2)):
        table = Table(
            "b0", (column,), ("c0",), shard_by="c0", clause="" if spread else " SHARD BY (c0) SHARDS 1", spread=spread
        )
        one, several = (Insert("b0", ("c0",), rows) for rows in (((1,),), ((2,), (1,), (3,), (4,))))
        judge = Judge()
        Execution(subject, judge, 0).run([CreateTable(table), one, several])
        assert len(inserts) == statements
        assert sorted(row[0] for row in judge.contents("b0")) == ([1, 2, 3, 4] if spread else [1])
        assert {row[0] for row in subject.stored()["b0"]} == ({1, 2, 3, 4} if spread else {1})
        subject.execute("DROP TABLE b0")
        inserts.clear()


def test_a_case_that_hangs_is_stopped() -> None:
    def hang() -> None:
        with time_limit(0.05):
            while True:
                pass

    with pytest.raises(TooLong):
        hang()


def test_a_case_that_waits_for_ever_is_stopped() -> None:
    """It uses no processor time, so the clock has to tell."""

    def wait() -> None:
        with time_limit(0.02):
            threading.Event().wait()

    with pytest.raises(TooLong):
        wait()


def test_nested_queries_have_every_construct() -> None:
    nester, wholes = Nester(Random(5)), list[str]()
    for _ in range(300):
        query = nester.query()
        wholes.append(query.whole)
        parse_select(query.whole)
        parse_select(query.of("?"))
    drawn = " ".join(wholes)
    words = (
        "LATERAL|FULL OUTER JOIN|RIGHT JOIN|WITH ROLLUP|OVER (|EXISTS (|NOT IN (|ANY (|ALL (|INTERSECT ALL|EXCEPT ALL"
    )
    assert not [word for word in words.split("|") if word not in drawn]
