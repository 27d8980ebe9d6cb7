"""A history in, its anomalies out: one pass, in memory that follows the keys in use and not the history's length."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.histories.anomalies import LEVELS, Finding
from tests.histories.cycles import Component
from tests.histories.events import BadHistory, Event, appends_lists
from tests.histories.graph import PROCESS, REALTIME, Graph
from tests.histories.lists import ListKey, accesses_by_key
from tests.histories.registers import OF_LEVEL, SPANS, RegisterKey

PIECE = 5_000
"""After so many events: retire keys that are not used any more, and forget what can be in no cycle."""
SHOWN = 10
"""So many findings of each name are kept; all are counted."""


@dataclass(slots=True)
class Report:
    level: str
    events: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    operations: int = 0
    """Micro-operations of transactions that are not known to have aborted."""
    found: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    most_nodes: int = 0

    def add(self, finding: Finding) -> None:
        self.found[finding.name] += 1
        if self.found[finding.name] <= SHOWN:
            self.findings.append(finding)

    @property
    def forbidden(self) -> set[str]:
        return LEVELS[self.level] & self.found.keys()

    @property
    def holds(self) -> bool:
        return not self.forbidden

    def __str__(self) -> str:
        done = ", ".join(f"{count:,} {name}" for name, count in sorted(self.outcomes.items(), reverse=True))
        lines = [f"{sum(self.outcomes.values()):,} transactions ({done or 'none'}), {self.operations:,} operations"]
        lines += map(str, self.findings)
        lines += [f"{name}: {count:,} in all" for name, count in self.found.items() if count > SHOWN]
        verdict = f"{self.level}: " + (
            f"no; {', '.join(sorted(self.forbidden))}" if self.forbidden else "nothing against it"
        )
        return "\n".join([*lines, verdict])


class Checker:
    """Takes events in their order, and is told when no event to come has a key. What has been retired must not come
    again, which is refused: so an answer is never given on a part of what belongs together."""

    def __init__(self, level: str = "serializable", *, lists: bool = True, spans: str | None = None) -> None:
        if level not in LEVELS or spans not in (None, *SPANS):
            raise BadHistory(f"levels are {', '.join(LEVELS)}; of each key alone {', '.join(SPANS)}")
        self.report = Report(level)
        self._new_key = ListKey if lists else RegisterKey
        self._write = "append" if lists else "w"
        self._spans = spans or OF_LEVEL.get(level, "none")
        self._graph = Graph()
        self._keys: dict[Any, ListKey | RegisterKey] = {}
        self._retired: set[Any] = set()
        self._running: dict[Any, tuple[int, int, Event]] = {}
        self._waiting: dict[int, int] = {}
        """Of each transaction: how many of its keys are in use."""
        self._by_clock = level == "strict-serializable"
        self._by_process = level in ("session-serializable", "strict-serializable")
        self._latest: dict[Any, int] = {}
        self._completed: list[int] = []
        self._moment: int | None = None

    def take(self, event: Event) -> None:
        number = self.report.events
        self.report.events += 1
        process, kind = event.get("process"), event["type"]
        if kind == "invoke":
            self._abandon(process)
            node = self._graph.node()
            self._graph.names[node] = event.get("index", number)
            self._begin(node)
            self._running[process] = (node, number, event)
            return
        if process not in self._running:
            raise BadHistory(f"event {event.get('index', number)}: process {process} completes what it has not invoked")
        node, began, invoked = self._running.pop(process)
        self._graph.names[node] = name = event.get("index", number)
        value = event.get("value") or invoked.get("value") or ()
        match kind:
            case "ok":
                self._commit(node, name, value, (began, number, process))
            case "fail":
                self._abort(node, name, invoked.get("value") or value)
            case "info":
                self._suppose(node, invoked.get("value") or value)
            case _:
                raise BadHistory(f"event {name} has the type {kind!r}, which is none of invoke, ok, fail, info")

    def abandon(self, process: Any) -> None:
        """Nothing will be heard any more of what this process has invoked."""
        if process in self._running:
            node, _, event = self._running.pop(process)
            self._suppose(node, event.get("value") or ())

    _abandon = abandon

    def _begin(self, node: int) -> None:
        if not self._by_clock:
            return
        graph = self._graph
        if self._completed:
            moment = graph.node()
            for each in self._completed:
                graph.edge(each, moment, REALTIME)
            if self._moment is not None and self._moment in graph.edges:
                graph.edge(self._moment, moment, REALTIME)
            graph.close(moment)
            self._completed, self._moment = [], moment
        if self._moment is not None and self._moment in graph.edges:
            graph.edge(self._moment, node, REALTIME)

    def _commit(self, node: int, name: int, value: Sequence[Any], span: tuple[int, int, Any]) -> None:
        self.report.outcomes["committed"] += 1
        self.report.operations += len(value)
        by_key = accesses_by_key(value)
        process = span[2]
        if self._by_process:
            if process in self._latest:
                self._graph.edge(self._latest[process], node, PROCESS, process)
            self._latest[process] = node
        if self._by_clock:
            self._completed.append(node)
        for key, accesses in by_key.items():
            one = self._key(key)
            self._refuse_others(accesses, key, one)
            for finding in one.take(node, name, accesses):
                self.report.add(finding)
            one.nodes.append(node)
            if self._spans != "none" and isinstance(one, RegisterKey):
                one.span(*span, accesses)
        self._wait(node, len(by_key))

    def _abort(self, node: int, name: int, value: Sequence[Any]) -> None:
        self.report.outcomes["aborted"] += 1
        self._graph.drop(node)
        for key, accesses in accesses_by_key([each for each in value if each[0] == self._write]).items():
            one = self._key(key)
            self._refuse_others(accesses, key, one)
            one.aborted.update((each, name) for _, each in accesses)

    def _suppose(self, node: int, value: Sequence[Any]) -> None:
        """It may have committed, and has if anybody sees what it wrote. What it has read itself is not known."""
        self.report.outcomes["unknown"] += 1
        self.report.operations += len(value)
        by_key = accesses_by_key([each for each in value if each[0] == self._write])
        for key, accesses in by_key.items():
            one = self._key(key)
            self._refuse_others(accesses, key, one)
            one.write(node, [each for _, each in accesses])
            one.nodes.append(node)
        self._wait(node, len(by_key))

    def _key(self, key: Any) -> ListKey | RegisterKey:
        one = self._keys.get(key)
        if one is None:
            if key in self._retired:
                raise BadHistory(f"key {key} is used again, after it was said that it would not be")
            one = self._keys[key] = self._new_key(key)
        return one

    def _refuse_others(self, accesses: Sequence[tuple[str, Any]], key: Any, one: ListKey | RegisterKey) -> None:
        own: set[Any] = set()
        for what, value in accesses:
            if what == self._write:
                if value in one.writers or value in one.aborted or value in own:
                    raise BadHistory(f"{value} is written to key {key} twice: a read would not say by whom")
                own.add(value)
            elif what != "r":
                raise BadHistory(f"{what!r} of key {key}: a history has either append and r, or w and r")

    def _wait(self, node: int, keys: int) -> None:
        if keys:
            self._waiting[node] = keys
        else:
            self._graph.close(node)

    def retire(self, keys: Iterable[Any]) -> None:
        """No event to come has one of these keys."""
        for key in keys:
            self._retired.add(key)
            one = self._keys.pop(key, None)
            if one is None:
                continue
            for finding in one.retire(self._graph, self._spans):
                self.report.add(finding)
            for node in one.nodes:
                self._waiting[node] -= 1
                if not self._waiting[node]:
                    del self._waiting[node]
                    self._graph.close(node)
        self._graph.complete_cycles(self._name_cycles)

    def end(self) -> Report:
        for process in list(self._running):
            self.abandon(process)
        self.retire(list(self._keys))
        self._graph.complete_cycles(self._name_cycles, at_end=True)
        self.report.most_nodes = self._graph.most
        return self.report

    def _name_cycles(self, nodes: list[int]) -> None:
        for finding in Component(nodes, self._graph.edges, self._graph.names).findings():
            self.report.add(finding)


def check(history: Iterable[Event], level: str = "serializable", *, spans: str | None = None) -> Report:
    """Two passes: the first one finds each key's last event, and what is invoked and never completed; the second
    retires a key after that event."""
    last_use, abandoned = _survey(history)
    checker = Checker(level, lists=appends_lists(history), spans=spans)
    retiring: dict[int, list[Any]] = {}
    for key, number in last_use.items():
        retiring.setdefault(number // PIECE, []).append(key)
    del last_use
    for number, event in enumerate(_transactions(history)):
        if number % PIECE == 0 and number:
            checker.retire(retiring.pop(number // PIECE - 1, ()))
        checker.take(event)
        if number in abandoned:
            checker.abandon(event.get("process"))
    return checker.end()


def _transactions(history: Iterable[Event]) -> Iterator[Event]:
    """Jepsen's own events (the nemesis) have no micro-operations."""
    return (event for event in history if event.get("process") != "nemesis")


def _survey(history: Iterable[Event]) -> tuple[dict[Any, int], set[int]]:
    last_use: dict[Any, int] = {}
    running: dict[Any, int] = {}
    abandoned: set[int] = set()
    for number, event in enumerate(_transactions(history)):
        value, process = event.get("value") or (), event.get("process")
        if event.get("type") == "invoke":
            if process in running:
                abandoned.add(running[process])
            running[process] = number
        else:
            running.pop(process, None)
        try:
            for _, key, _ in value:
                last_use[key] = number
        except (TypeError, ValueError):
            raise BadHistory(f"event {event.get('index', number)} is no transaction: {value!r:.80}") from None
    return last_use, abandoned | set(running.values())
