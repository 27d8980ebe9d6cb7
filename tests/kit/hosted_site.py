"""One worker's domains, with dicts in place of all that is around them: the host is the production one.

What a batch orders to be done outside is done when it is flushed: rows are shown, answers are given. Packets are
handed to whoever made the site, who carries them to other sites.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from domains.language.types import Delta, Row
from domains.plan.graph import DomainIndex, NodeIndex
from domains.plan.packets import Publish
from worker.dataflow.batch import Batch, Drop, LinkPacket, Look
from worker.dataflow.domain_host import DomainHost
from worker.protocol.messages import ProtocolError
from worker.reader_map import ReaderLayout

Found = TypeVar("Found")
Rows = dict[Row, Counter[Row]]


def never_refused(error: ProtocolError) -> None:
    """Every packet is of a worker of ours."""
    raise AssertionError(error)


class HostedSite:
    def __init__(self, *, memory_limit: int = 2**40, reserve: int = 0) -> None:
        self.hosted = DomainHost(memory_limit=memory_limit, reserve=reserve)
        self.shown: dict[int, Rows] = {}
        """Reader number → key → rows."""

    def begin(self, do: Callable[[DomainHost, Batch], Found], batch: Batch) -> Found:
        """Have something done in a batch, which waits to be flushed."""
        try:
            return do(self.hosted, batch)
        finally:
            self.hosted.finish(batch)

    def flush(self, batch: Batch) -> list[tuple[DomainIndex, LinkPacket]]:
        """Do outside what a batch orders; what it sends is left to the caller."""
        for entry in batch.visible:
            match entry:
                case (ReaderLayout() as layout, Publish() as publish):
                    show(self.shown.setdefault(layout.reader_id, {}), publish)
                case Look():
                    entry.take()
                case Drop(layout=layout):
                    self.shown.pop(layout.reader_id, None)
        for answer, outcome in batch.answers:
            answer(outcome)
        return batch.sends

    def rows(self, domain: DomainIndex, node: NodeIndex, key: Row) -> list[Delta] | None:
        """What a reader shows at a key; None for a hole."""
        rows = self.shown.get(self.hosted.layouts[domain, node].reader_id, {}).get(key)
        return None if rows is None else list(rows.items())


def show(reader: Rows, publish: Publish) -> None:
    for key in publish.evicted:
        del reader[key]
    for key, rows in publish.filled:
        assert key not in reader, f"{key} was filled twice"
        reader[key] = Counter(dict(rows))
    for key, (row, weight) in publish.deltas:
        reader[key][row] += weight
        assert reader[key][row] >= 0, f"{row} is there {reader[key][row]} times"
        if not reader[key][row]:
            del reader[key][row]
