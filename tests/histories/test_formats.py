"""Histories as files: Elle's JSON and EDN, an event a line or an array, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.histories import edn
from tests.histories.__main__ import main
from tests.histories.events import BadHistory, Event, HistoryFile, write
from tests.histories.workload import Workload, modelled

EVENTS: list[Event] = [
    {"index": 0, "process": 1, "type": "invoke", "value": [["append", 253, 1], ["r", 255, None]]},
    {"index": 1, "process": 1, "type": "ok", "value": [["append", 253, 1], ["r", 255, [2, 3]]]},
]
LINES = [orjson.dumps(event).decode() for event in EVENTS]


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(LINES),
        f"[{LINES[0]},\n{LINES[1]}]",
        f"[\n{LINES[0]},\n{LINES[1]}\n]\n",
        f"[{LINES[0]}, {LINES[1]}]",
        orjson.dumps(EVENTS, option=orjson.OPT_INDENT_2).decode(),
    ],
)
def test_json(text: str, tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    path.write_text(text)
    assert list(HistoryFile(path)) == EVENTS


@pytest.mark.parametrize(
    "text",
    [
        "{:index 0, :process 1, :type :invoke, :value [[:append 253 1] [:r 255 nil]]}\n"
        "{:index 1 :process 1 :type :ok :value [[ :append 253 1] [:r 255 (2 3) ] ]} ; an end",
        "[{:index 0, :process 1, :type :invoke, :value [[:append 253 1] [:r 255 nil]]}\n"
        " {:index 1, :process 1, :type :ok, :value [[:append 253 1] [:r 255 [2 3]]]}]",
        "({:index 0N, :process 1, :type :invoke, :value [[:append 253 1] [:r 255 nil]]}\n"
        " #jepsen.history.Op{:index 1, :process 1, :type :ok,\n :value [[:append 253 1] [:r 255 [2 3]]]})",
    ],
)
def test_edn(text: str, tmp_path: Path) -> None:
    path = tmp_path / "history.edn"
    path.write_text(text)
    assert list(HistoryFile(path)) == EVENTS


@pytest.mark.parametrize("name", ["run.json", "run.edn"])
@pytest.mark.parametrize("lists", [True, False])
def test_what_is_written_is_read(name: str, lists: bool, tmp_path: Path) -> None:
    events = list(modelled("serializable", Workload(1, lists=lists, most=40)))
    write(tmp_path / name, events)
    assert list(HistoryFile(tmp_path / name)) == events
    write(tmp_path / name, [])
    assert list(HistoryFile(tmp_path / name)) == []


ATOMS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = ATOMS | st.lists(st.lists(ATOMS, max_size=3), max_size=3) | st.fixed_dictionaries({"type": ATOMS, "f": ATOMS})


@settings(deadline=None)
@given(VALUES)
def test_a_value_of_edn(value: Any) -> None:
    assert list(edn.values(edn.text_of(value))) == [value]


@pytest.mark.parametrize("text", ["{:index 0", "{:index}", "{:type @}", '["open'])
def test_what_is_no_edn_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "history.edn"
    path.write_text(text)
    with pytest.raises(BadHistory, match=r"history\.edn"):
        list(HistoryFile(path))


@pytest.mark.parametrize("text", ["5", "[1, 2]", '{"index": 0}\n{"index": '])
def test_what_is_no_json_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    path.write_text(text)
    with pytest.raises(BadHistory, match=r"history\.json"):
        list(HistoryFile(path))


@pytest.mark.parametrize(
    ("name", "options", "code", "told"),
    [
        ("valid.json", ["--level", "strict-serializable"], 0, "strict-serializable: nothing against it"),
        ("write-skew.json", [], 1, "serializable: no; G2-item"),
        ("write-skew.json", ["--level", "snapshot"], 0, "G2-item: T"),
        ("register-goes-back.json", ["--each-key", "linearizable"], 1, "cyclic-versions"),
        ("nothing.json", [], 2, "nothing.json"),
    ],
)
def test_the_command(
    name: str, options: list[str], code: int, told: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    path = Path(__file__).parent / "recorded" / name
    monkeypatch.setattr("sys.argv", ["tests.histories", "check", str(path), *options])
    assert main() == code
    assert told in "".join(capsys.readouterr())
