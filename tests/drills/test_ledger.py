"""The judge of the drills finds what is planted: a loss, a double, a wrong page; and nothing where nothing is wrong."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest

from loadgen.drills.load.judging import BaseRows, Findings, check_base, check_copy, check_views, expected_pages, settle
from loadgen.drills.load.ledger import Fate, WriteLedger

KINDS = ("missing", "doubled", "returned", "invented", "reverted", "wrong_reads")


@pytest.fixture
def ledger() -> WriteLedger:
    """Entries: 1 and 2 acknowledged, 3 unknown, 4 refused, 5 deleted, 6 with an unknown delete. Story 0 at revision 2,
    and perhaps at 3."""
    ledger = WriteLedger()
    assert ledger.ask(0, [(1, 10), (2, 20)]) == [1, 2]
    for fate in (Fate.UNKNOWN, Fate.REFUSED, Fate.DONE, Fate.DONE):
        ledger.written(ledger.ask(1, [(1, 7)]), fate)
    ledger.written([1, 2], Fate.DONE)
    ledger.ask_delete(5)
    ledger.deleted(5, Fate.DONE)
    ledger.ask_delete(6)
    ledger.deleted(6, Fate.UNKNOWN)
    for fate in (Fate.DONE, Fate.DONE, Fate.UNKNOWN):
        ledger.revised(0, ledger.ask_revision(0), fate)
    return ledger


BASE = BaseRows(entries=((0, 1, 1, 10), (0, 2, 2, 20)), revisions={0: 2, 1: 0})


def found(ledger: WriteLedger, base: BaseRows) -> dict[str, int]:
    """What is counted, without what is 0."""
    findings = Findings()
    check_base(ledger, base, findings)
    return {kind: getattr(findings, kind) for kind in KINDS if getattr(findings, kind)}


def test_what_was_acknowledged_and_no_more_is_right(ledger: WriteLedger) -> None:
    assert found(ledger, BASE) == {}


@pytest.mark.parametrize("row", [(1, 3, 1, 7), (1, 6, 1, 7)])
def test_what_nobody_can_know_may_be_there(ledger: WriteLedger, row: tuple[int, int, int, int]) -> None:
    assert found(ledger, replace(BASE, entries=(*BASE.entries, row))) == {}


def test_a_revision_nobody_can_know_of_may_be_there(ledger: WriteLedger) -> None:
    assert found(ledger, replace(BASE, revisions={0: 3, 1: 0})) == {}


def test_a_lost_write_is_found(ledger: WriteLedger) -> None:
    assert found(ledger, replace(BASE, entries=BASE.entries[1:])) == {"missing": 1}


def test_a_doubled_write_is_found(ledger: WriteLedger) -> None:
    assert found(ledger, replace(BASE, entries=(*BASE.entries, BASE.entries[0]))) == {"doubled": 1}


def test_a_doubled_write_is_found_also_where_its_outcome_was_unknown(ledger: WriteLedger) -> None:
    assert found(ledger, replace(BASE, entries=(*BASE.entries, *[(1, 3, 1, 7)] * 2))) == {"doubled": 1}


def test_what_was_deleted_must_not_return(ledger: WriteLedger) -> None:
    assert found(ledger, replace(BASE, entries=(*BASE.entries, (1, 5, 1, 7)))) == {"returned": 1}


@pytest.mark.parametrize(
    "row", [(1, 4, 1, 7), (1, 99, 1, 7), (0, 3, 1, 7)], ids=["was refused", "was never written", "was altered"]
)
def test_what_was_not_written_must_not_be_there(ledger: WriteLedger, row: tuple[int, int, int, int]) -> None:
    assert found(ledger, replace(BASE, entries=(*BASE.entries, row))) == {"invented": 1}


def test_an_older_revision_is_found(ledger: WriteLedger) -> None:
    assert found(ledger, replace(BASE, revisions={0: 1, 1: 0})) == {"reverted": 1}


def test_what_a_reader_was_shown_must_be_there(ledger: WriteLedger) -> None:
    ledger.saw([3, 5])  # 5 may have been deleted since it was read.
    assert found(ledger, BASE) == {"missing": 1}


def test_once_settled_it_must_stay(ledger: WriteLedger) -> None:
    settle(ledger, replace(BASE, entries=(*BASE.entries, (1, 3, 1, 7))))
    assert found(ledger, BASE) == {"missing": 1}
    assert found(ledger, replace(BASE, entries=(*BASE.entries, (1, 3, 1, 7), (1, 6, 1, 7)))) == {"returned": 1}


def test_what_was_settled_as_absent_must_not_come_later(ledger: WriteLedger) -> None:
    settle(ledger, BASE)
    assert found(ledger, replace(BASE, entries=(*BASE.entries, (1, 3, 1, 7)))) == {"invented": 1}


def test_views_are_what_the_base_tables_say() -> None:
    pages = expected_pages(BASE, range(3), range(3))
    assert pages["StoryTotals", 0] == ((0, 2, 2, 30),)
    assert pages["StoryTotals", 1] == ((1, 0, 0, None),)
    assert pages["StoryTotals", 2] == (), "there is no such story"
    assert pages["Newest", 0] == ((2, 20), (1, 10))
    assert pages["UserTotals", 1] == ((1, 1, 10),)
    assert pages["UserTotals", 0] == ()
    assert pages["Totals", None] == ((2, 30, 2),)
    assert pages["Top", None] == ((0, 2),)


def test_a_wrong_page_is_found() -> None:
    expected = expected_pages(BASE, range(2), range(3))
    right, wrong = Findings(), Findings()
    check_views(expected, dict(expected), right)
    assert right.clean
    check_views(expected, expected | {("Totals", None): ((3, 30, 2),), ("Newest", 0): ((1, 10), (2, 20))}, wrong)
    assert wrong.wrong_reads == 2
    assert not wrong.clean
    assert "Totals() is ((3, 30, 2),), and should be ((2, 30, 2),)" in "\n".join(wrong.examples)


def test_a_copy_is_held_against_what_was_known_when_it_was_asked_for() -> None:
    before = WriteLedger()
    for fate in (Fate.DONE, Fate.DONE, Fate.UNKNOWN, Fate.DONE):
        before.written(before.ask(0, [(1, 10)]), fate)
    before.ask_delete(2)
    before.deleted(2, Fate.DONE)
    before.revised(0, before.ask_revision(0), Fate.DONE)
    after = deepcopy(before)
    after.ask_delete(4)
    after.written(after.ask(0, [(1, 10)]), Fate.DONE)
    after.written(after.ask(0, [(1, 10)]), Fate.REFUSED)
    after.ask_revision(0)

    def found(*numbers: int, revision: int = 1) -> dict[str, int]:
        findings = Findings()
        check_copy(before, after, BaseRows(tuple((0, number, 1, 10) for number in numbers), {0: revision}), findings)
        return {kind: count for kind, count in findings.to_json().items() if count and kind != "examples"}

    for right in ((1,), (1, 3), (1, 4), (1, 3, 4, 5)):
        assert found(*right) == found(*right, revision=2) == {}
    assert found(4) == {"missing": 1}
    assert found(1, 2) == {"returned": 1}
    assert found(1, 6) == {"invented": 1}
    assert found(1, 9) == {"invented": 1}
    assert found(1, 1) == {"doubled": 1}
    assert found(1, revision=0) == found(1, revision=3) == {"reverted": 1}
