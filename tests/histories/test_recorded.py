"""Short histories with what each has to give: all that is found, and the strictest level that holds.

One is written for each anomaly, for transactions of which nobody knows how they ended, and for what registers show less
than lists. Elle's verdicts on histories of the same form are the same, but for ``never-written``, which it permits.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.histories.anomalies import LEVELS
from tests.histories.checker import check
from tests.histories.events import HistoryFile

FOLDER = Path(__file__).parent / "recorded"
RECORDED: dict[str, tuple[str, str | None]] = {
    "aborted-read.json": ("G1a", None),
    "circular-information.json": ("G1c", None),
    "dirty-update.json": ("G1a dirty-update", None),
    "duplicate.json": ("duplicate-elements", None),
    "forgotten-own-write.json": ("G-single-process", "serializable"),
    "fractured-read.json": ("G-single fractured-read", "read-committed"),
    "incompatible-reads.json": ("incompatible-order", None),
    "intermediate-read.json": ("G-single G1b", None),
    "jepsen.edn": ("G2-item", "snapshot"),
    "long-fork.json": ("G-nonadjacent", "read-committed"),
    "lost-update.json": ("G2-item lost-update", "read-committed"),
    "never-written.json": ("unwritten-read", None),
    "own-append-foreseen.json": ("internal", "read-committed"),
    "own-append-unseen.json": ("internal", "read-committed"),
    "own-appends-swapped.json": ("G1b incompatible-order", None),
    "own-read-orders.json": ("G1c", None),
    "read-skew.json": ("G-single", "read-committed"),
    "register-aborted-read.json": ("G1a", None),
    "register-cyclic-versions.json": ("G1c cyclic-versions", None),
    "register-goes-back.json": ("cyclic-versions", "session-serializable"),
    "register-intermediate-read.json": ("G-single G1b", None),
    "register-lost-update.json": ("cyclic-versions lost-update", "read-committed"),
    "register-own-write-unseen.json": ("internal", "read-committed"),
    "register-read-skew.json": ("G-single", "read-committed"),
    "register-valid.json": ("", "strict-serializable"),
    "register-write-skew.json": ("G2-item", "snapshot"),
    "stale-read.json": ("G-single-realtime", "session-serializable"),
    "unknown-and-fractured.json": ("G-single fractured-read", "read-committed"),
    "unknown-and-unseen.json": ("", "strict-serializable"),
    "unknown-before-own.json": ("internal", "read-committed"),
    "unknown-but-seen.json": ("", "strict-serializable"),
    "valid.json": ("", "strict-serializable"),
    "write-cycle.json": ("G0", None),
    "write-skew.json": ("G2-item", "snapshot"),
}


@pytest.mark.parametrize("name", RECORDED)
def test_recorded(name: str) -> None:
    found, strictest = RECORDED[name]
    history = HistoryFile(FOLDER / name)
    report = check(history, "strict-serializable")
    assert sorted(report.found) == found.split(), str(report)
    holding = [level for level in LEVELS if check(history, level).holds]
    assert holding == list(LEVELS)[: list(LEVELS).index(strictest) + 1 if strictest else 0]


def test_all_are_asked() -> None:
    assert {path.name for path in FOLDER.iterdir()} == RECORDED.keys()


def test_a_cycle_is_told_in_words() -> None:
    report = check(HistoryFile(FOLDER / "read-skew.json"))
    assert str(report.findings[0]) == (
        "G-single: T5 → T3 → T4 → T5\n"
        "  T5 read key 3 at no value, and did not see 1, which T3 wrote after it\n"
        "  T3 wrote 1 to key 1, and T4 read it\n"
        "  T4 wrote 1 to key 2, and T5 read it"
    )


def test_what_registers_are_taken_to_be() -> None:
    history = HistoryFile(FOLDER / "register-goes-back.json")
    assert not check(history, spans="none").found
    assert not check(history, spans="sequential").found
    assert check(history, spans="linearizable").found.keys() == {"cyclic-versions"}


def test_versions_that_follow_the_clock_order_their_writers() -> None:
    first, second = [["w", "x", 1], ["r", "y", 1]], [["w", "x", 2], ["w", "y", 1]]
    events = [
        {"process": process, "type": kind, "value": value}
        for process, value in enumerate((first, second))
        for kind in ("invoke", "ok")
    ]
    assert not check(events).found
    assert check(events, spans="linearizable").found.keys() == {"G1c"}


@pytest.mark.parametrize("overwritten", [1, 2])
def test_what_comes_after_two_at_once_comes_after_each(overwritten: int) -> None:
    moments = [(0, "invoke"), (1, "invoke"), (0, "ok"), (1, "ok"), (2, "invoke"), (2, "ok"), (3, "invoke"), (3, "ok")]
    values = [[["w", "x", 1]], [["w", "x", 2]], [["w", "x", 3]], [["r", "x", overwritten]]]
    events = [{"process": process, "type": kind, "value": values[process]} for process, kind in moments]
    assert check(events, "strict-serializable").found.keys() == {"cyclic-versions"}
