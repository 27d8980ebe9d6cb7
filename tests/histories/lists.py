"""A key whose value is a list that transactions append to: each read shows the whole history of the key up to it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from tests.histories.anomalies import Finding
from tests.histories.graph import RW, WR, WW, Graph


class ListKey:
    """What is known of one key. A read is the transaction and how long the list was, without its own elements at the
    end; the longest list that was read is the order of all versions. What has been appended but never read stands
    after that, in no order among itself."""

    __slots__ = ("aborted", "broken", "key", "longest", "nodes", "reads", "several", "updates", "writers")

    def __init__(self, key: Any) -> None:
        self.key = key
        self.nodes: list[int] = []
        self.writers: dict[Any, int] = {}
        self.aborted: dict[Any, int] = {}
        self.several: dict[int, Sequence[Any]] = {}
        """The elements of a transaction that appended more than one."""
        self.longest: Sequence[Any] = ()
        self.reads: list[tuple[int, int]] = []
        self.updates: dict[int, list[int]] = {}
        """Who read the list at this length, and then appended."""
        self.broken: list[Finding] = []

    def write(self, node: int, elements: Sequence[Any]) -> None:
        """Of a transaction that has committed, or may have."""
        for element in elements:
            self.writers[element] = node
        if len(elements) > 1:
            self.several[node] = elements

    def take(self, node: int, name: int, accesses: Sequence[tuple[str, Any]]) -> Iterator[Finding]:
        """What a committed transaction did here, in its order: the appended elements and the lists that were read."""
        own: list[Any] = []
        length = -1
        first = -1
        for what, value in accesses:
            if what != "r":
                own.append(value)
                continue
            elements = value or ()
            size = len(elements) - len(own)
            if length < 0:
                first = size if not own else -1
                wrong = size < 0 or (own and list(elements[size:]) != own)
            else:
                wrong = size != length or (own and list(elements[size:]) != own)
            fits = self._fits(elements, name)
            if wrong:
                yield Finding("internal", self._other_than(name, elements, own, length), (name,))
            if fits and (not wrong or not own):
                self.reads.append((node, size))
                length = size
        if own:
            self.write(node, own)
            if first >= 0:
                self.updates.setdefault(first, []).append(node)

    def _fits(self, elements: Sequence[Any], name: int) -> bool:
        longest = self.longest
        size = len(longest)
        if len(elements) > size:
            if elements[:size] == longest or not size:
                self.longest = elements
                return True
        elif longest[: len(elements)] == elements or not elements:
            return True
        text = f"T{name} read key {self.key} as {_shown(elements)}, another transaction as {_shown(longest)}"
        self.broken.append(Finding("incompatible-order", text, (name,)))
        return False

    def _other_than(self, name: int, elements: Sequence[Any], own: Sequence[Any], length: int) -> str:
        before = f"had read {length} elements" if length >= 0 else "had not read it before"
        return (
            f"T{name} {before}, had itself appended {own or 'nothing'}, and read key {self.key} as {_shown(elements)}"
        )

    def retire(self, graph: Graph, spans: str) -> Iterator[Finding]:
        """All is known of this key: its edges go to the graph, and what is no cycle is named here. Its versions are in
        the order in which they were read, so nothing (``spans``) has to be taken for granted of it."""
        yield from self.broken
        order, names = self.longest, graph.names
        yield from self._never_committed(names)
        for node, elements in self.several.items():
            seen = [element for element in order if self.writers.get(element) == node]
            if seen != list(elements[: len(seen)]):
                text = f"T{names[node]} appended {list(elements)} to key {self.key}, of which others read {seen}"
                yield Finding("incompatible-order", text, (names[node],))
        committed = [(at, self.writers[element]) for at, element in enumerate(order) if element in self.writers]
        for (at, one), (after, other) in pairwise(committed):
            if one != other:
                graph.edge(one, other, WW, self.key, order[at], order[after])
        unread = [] if self.broken else self._unread()  # Who does not show a beginning says nothing of what is later.
        if committed:
            at, last = committed[-1]
            for element, node in unread:
                graph.edge(last, node, WW, self.key, order[at], element)
        yield from self._add_reads(graph, committed, unread)
        for size, nodes in self.updates.items():
            if len(nodes) > 1:
                who = " and ".join(f"T{names[node]}" for node in nodes)
                text = f"{who} read key {self.key} as {_shown(order[:size])}, and each appended to it"
                yield Finding("lost-update", text, tuple(names[node] for node in nodes))

    def _unread(self) -> list[tuple[Any, int]]:
        seen = set(self.longest)
        return [] if len(seen) == len(self.writers) else [e for e in self.writers.items() if e[0] not in seen]

    def _add_reads(
        self, graph: Graph, committed: list[tuple[int, int]], unread: list[tuple[Any, int]]
    ) -> Iterator[Finding]:
        order, names = self.longest, graph.names
        before = [-1] * (len(order) + 1)  # Of a read of that length: which committed one it shows last.
        for number, (at, _) in enumerate(committed):
            before[at + 1] = number
        for size in range(1, len(before)):
            before[size] = max(before[size], before[size - 1])
        last_readers: dict[int, None] = {}
        for node, size in self.reads:
            number = before[size]
            shown = None
            if number >= 0:
                at, writer = committed[number]
                shown = order[at]
                if writer == node:
                    text = f"T{names[node]} read {shown} in key {self.key} before it appended that itself"
                    yield Finding("internal", text, (names[node],))
                else:
                    graph.edge(writer, node, WR, self.key, shown, shown)
                    more = self.several[writer][-1] if writer in self.several else shown
                    if more != shown:
                        one, other = names[node], names[writer]
                        text = f"T{one} read {shown} last of key {self.key}; T{other} appended {more} after it"
                        yield Finding("G1b", text, (one, other))
            if number + 1 < len(committed):
                at, writer = committed[number + 1]
                graph.edge(node, writer, RW, self.key, shown, order[at])
            else:
                last_readers[node] = None
        shown = order[committed[-1][0]] if committed else None
        later = unread[0][0] if len(unread) == 1 else None
        graph.fan(list(last_readers), list(dict.fromkeys(node for _, node in unread)), RW, self.key, shown, later)

    def _never_committed(self, names: dict[int, int]) -> Iterator[Finding]:
        order, key = self.longest, self.key
        for element, times in Counter(order).items() if len(set(order)) < len(order) else ():
            if times > 1:
                yield Finding("duplicate-elements", f"key {key} was read with {element} in it {times} times")
        for at, element in enumerate(order):
            if element in self.writers:
                continue
            readers = tuple(names[node] for node, size in self.reads if size > at)
            who = f"T{readers[0]}" if readers else "its own transaction"
            if element not in self.aborted:
                yield Finding("unwritten-read", f"{who} read {element} in key {key}, which nobody appended", readers)
                continue
            aborted = self.aborted[element]
            text = f"{who} read {element} in key {key}, which T{aborted} appended, and aborted"
            yield Finding("G1a", text, (*readers, aborted))
            after = next((each for each in order[at + 1 :] if each in self.writers), None)
            if after is not None:
                writer = names[self.writers[after]]
                text = (
                    f"T{writer} appended {after} to key {key} after {element}, which T{aborted} appended, and aborted"
                )
                yield Finding("dirty-update", text, (writer, aborted))


def _shown(elements: Sequence[Any]) -> str:
    return str(list(elements)) if len(elements) < 12 else f"[… {', '.join(map(str, elements[-10:]))}]"


def accesses_by_key(value: Sequence[Sequence[Any]]) -> dict[Any, list[tuple[str, Any]]]:
    """A transaction's micro-operations, key by key."""
    by_key: dict[Any, list[tuple[str, Any]]] = defaultdict(list)
    for what, key, each in value:
        by_key[key].append((what, each))
    return by_key
