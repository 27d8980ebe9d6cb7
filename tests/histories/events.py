"""A history is a sequence of events, as Elle and Jepsen record them: an operation is invoked, and later it is ``ok``,
``fail`` (it has had no effect), or ``info`` (nobody knows). An event is the map that its line holds::

    {"index": 3, "process": 1, "type": "ok", "value": [["append", 253, 1], ["r", 255, [2, 3]]]}

Micro-operations are ``["append", key, element]`` and ``["r", key, elements]`` of lists, ``["w", key, value]`` and
``["r", key, value]`` of registers. A list that was read as empty is ``[]`` or null, a register without a value null.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson

from tests.histories import edn

Event = dict[str, Any]
TYPES = ("invoke", "ok", "fail", "info")
WRITES = ("append", "w")


class BadHistory(ValueError):
    """What is given is no history, or none that can be checked; the message says why."""


class HistoryFile:
    """The events of a file, each time anew: JSON where the name ends with ``.json`` or ``.jsonl``, EDN otherwise.

    An event a line is read line by line, in constant memory, also where the lines are an array's; a file that is
    written otherwise is read at once.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._load = orjson.loads if path.suffix in (".json", ".jsonl") else _edn_loads

    def __iter__(self) -> Iterator[Event]:
        if not self._has_lines():
            yield from self._at_once()
            return
        with self.path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if text := _inner(line):
                    try:
                        yield self._load(text)
                    except ValueError as error:
                        raise BadHistory(f"{self.path.name}, line {number}: {error}") from error

    def _has_lines(self) -> bool:
        with self.path.open("rb") as lines:
            first = next((text for line in lines if (text := _inner(line))), None)
        try:
            return first is None or isinstance(self._load(first), dict)
        except ValueError:
            return False

    def _at_once(self) -> Iterable[Event]:
        text = self.path.read_bytes()
        try:
            found = orjson.loads(text) if self._load is orjson.loads else list(edn.values(text.decode()))
        except ValueError as error:
            raise BadHistory(f"{self.path.name}: {error}") from error
        if isinstance(found, list) and len(found) == 1 and isinstance(found[0], list):
            (found,) = found
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise BadHistory(f"{self.path.name} holds no events: a map for each, or an array of maps")
        return found


def _edn_loads(text: bytes) -> Any:
    found = list(edn.values(text.decode()))
    if len(found) != 1:
        raise edn.EdnError(f"{len(found)} values in one line")
    return found[0]


def _inner(line: bytes) -> bytes:
    """A line without what makes it part of an array of lines."""
    text = line.strip()
    if text[:2] == b"[{":
        text = text[1:]
    if text[-2:] == b"}]":
        text = text[:-1]
    text = text.rstrip(b",")
    return b"" if text in (b"[", b"]") else text


def write(path: Path, events: Iterable[Event]) -> None:
    """An event a line: JSON in an array, as Elle's tools read it, where the name ends with ``.json``; else EDN."""
    with path.open("wb") as out:
        if path.suffix != ".json":
            out.writelines(f"{edn.text_of(event)}\n".encode() for event in events)
            return
        before = b"["
        for event in events:
            out.write(before + orjson.dumps(event))
            before = b",\n"
        out.write(b"]\n" if before != b"[" else b"[]\n")


def appends_lists(events: Iterable[Event]) -> bool:
    """Are the keys lists? Else they are registers. The first micro-operation that shows it decides."""
    for event in events:
        for name, _, value in event.get("value") or ():
            if name in WRITES or value is not None:
                return name == "append" or (name == "r" and isinstance(value, list))
    return True
