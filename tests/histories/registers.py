"""A key whose value is a register: a write replaces it, and a read shows one version, not what was before it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from tests.histories.anomalies import Finding
from tests.histories.graph import RW, WR, WW, Graph, components

SPANS = ("none", "sequential", "linearizable")
"""What is taken for granted of each key alone: nothing; its versions follow each process; they follow the clock."""
OF_LEVEL = {"session-serializable": "sequential", "strict-serializable": "linearizable"}
"""What a level promises of each key, too. It is taken for granted where the level is asked for."""


class RegisterKey:
    """What is known of one key. Its versions are in no order that could be read, only in a partial one: no value is
    before all others; what a transaction wrote follows what it read before; and, where that is taken for granted of
    each key, a later transaction's version follows an earlier one's."""

    __slots__ = ("aborted", "after", "key", "last", "nodes", "reads", "spans", "updates", "writers")

    def __init__(self, key: Any) -> None:
        self.key = key
        self.nodes: list[int] = []
        self.writers: dict[Any, int] = {}
        self.aborted: dict[Any, int] = {}
        self.last: dict[int, Any] = {}
        self.reads: dict[Any, list[int]] = defaultdict(list)
        self.after: dict[Any, dict[Any, None]] = defaultdict(dict)
        self.updates: dict[Any, list[int]] = {}
        self.spans: list[tuple[int, int, Any, Any, Any]] = []
        """Of each transaction: when it began and ended, its process, the first and the last version that it had."""

    def write(self, node: int, values: Sequence[Any]) -> None:
        """Of a transaction that has committed, or may have."""
        for value in values:
            self.writers[value] = node
        if len(values) > 1:
            self.last[node] = values[-1]

    def take(self, node: int, name: int, accesses: Sequence[tuple[str, Any]]) -> Iterator[Finding]:
        """What a committed transaction did here, in its order: the values that it wrote and read."""
        own: list[Any] = []
        known, at = False, None
        for what, value in accesses:
            if what == "w":
                if known or own:
                    self.after[at][value] = None
                    if not own:
                        self.updates.setdefault(at, []).append(node)
                own.append(value)
            elif (known or own) and value != at:
                yield Finding("internal", f"T{name} read key {self.key} as {value}, after it was {at} to it", (name,))
            if what == "r" and not own:
                self.reads[value].append(node)
            if what == "w" or not own:
                known, at = True, value
        if own:
            self.write(node, own)

    def span(self, began: int, ended: int, process: Any, accesses: Sequence[tuple[str, Any]]) -> None:
        self.spans.append((began, ended, process, accesses[0][1], accesses[-1][1]))

    def retire(self, graph: Graph, spans: str) -> Iterator[Finding]:
        """All is known of this key: its edges go to the graph, and what is no cycle is named here."""
        names = graph.names
        if spans == "linearizable":
            self._follow_clock()
        elif spans == "sequential":
            self._follow_processes()
        for value, nodes in self.reads.items():
            yield from self._add_reads(graph, value, nodes)
        found = components(list(self.after), lambda value: list(self.after.get(value, ())))
        cyclic = [versions for versions in found if len(versions) > 1]
        for versions in cyclic:
            yield Finding("cyclic-versions", f"key {self.key} had the versions {versions} each before the others")
        if not cyclic:
            self._add_order(graph)
        for value, nodes in self.updates.items():
            if len(nodes) > 1:
                who = " and ".join(f"T{names[node]}" for node in nodes)
                text = f"{who} read key {self.key} as {value}, and each wrote to it"
                yield Finding("lost-update", text, tuple(names[node] for node in nodes))

    def _add_reads(self, graph: Graph, value: Any, nodes: list[int]) -> Iterator[Finding]:
        names, key = graph.names, self.key
        if value is None:
            return
        readers = tuple(names[node] for node in nodes)
        if value in self.writers:
            writer = self.writers[value]
            for node in nodes:
                graph.edge(writer, node, WR, key, value, value)
                if node == writer:
                    text = f"T{names[node]} read key {key} as {value} before it wrote that itself"
                    yield Finding("internal", text, (names[node],))
            if self.last.get(writer, value) != value:
                text = f"T{readers[0]} read key {key} as {value}; T{names[writer]} wrote {self.last[writer]} after it"
                yield Finding("G1b", text, (*readers, names[writer]))
        elif value in self.aborted:
            aborted = self.aborted[value]
            text = f"T{readers[0]} read key {key} as {value}, which T{aborted} wrote, and aborted"
            yield Finding("G1a", text, (*readers, aborted))
            for node in self.updates.get(value, ())[:1]:
                text = f"T{names[node]} wrote key {key} over {value}, which T{aborted} wrote, and aborted"
                yield Finding("dirty-update", text, (names[node], aborted))
        else:
            yield Finding("unwritten-read", f"T{readers[0]} read key {key} as {value}, which nobody wrote", readers)

    def _add_order(self, graph: Graph) -> None:
        followed = {value for values in self.after.values() for value in values}
        first = self.after[None]
        first.update(dict.fromkeys(value for value in self.writers if value not in followed))
        for value, later in self.after.items():
            for after in later:
                if value in self.writers and after in self.writers:
                    graph.edge(self.writers[value], self.writers[after], WW, self.key, value, after)
            if readers := self.reads.get(value):
                ends = list(dict.fromkeys(self.writers[after] for after in later if after in self.writers))
                after = next(iter(later)) if len(later) == 1 else None
                graph.fan(list(dict.fromkeys(readers)), ends, RW, self.key, value, after)

    def _follow_processes(self) -> None:
        latest: dict[Any, Any] = {}
        for _, _, process, first, last in sorted(self.spans, key=lambda span: span[0]):
            if process in latest and latest[process] != first:
                self.after[latest[process]][first] = None
            latest[process] = last

    def _follow_clock(self) -> None:
        """What ended before another one began has an earlier version, or the same. Only those that no other one came
        after, which has ended too, are asked: so each is linked to its neighbours only."""
        moments = sorted(
            [(began, False, number) for number, (began, *_) in enumerate(self.spans)]
            + [(ended, True, number) for number, (_, ended, *_) in enumerate(self.spans)]
        )
        latest: set[int] = set()
        before: dict[int, set[int]] = {}
        for _, has_ended, number in moments:
            if has_ended:
                latest -= before.pop(number)
                latest.add(number)
                continue
            before[number] = set(latest)
            first = self.spans[number][3]
            for each in latest:
                last = self.spans[each][4]
                if last != first:
                    self.after[last][first] = None
