"""The readers of the domains of one worker: how each lies in the reader map, and which are not to be found yet."""

from __future__ import annotations

from collections.abc import Sequence

from domains.graph import DomainIndex, Materialization, Node, NodeIndex, Reader
from worker.batch import Batch, Drop, Reveal
from worker.hosted_domain import HostedDomain
from worker.reader_map import ReaderLayout
from worker.reader_map.layout import reader_id


class HostedReaders(dict[tuple[DomainIndex, NodeIndex], ReaderLayout]):
    """Layouts by domain and node. Other threads look up in it."""

    def add(self, host: HostedDomain, nodes: Sequence[Node]) -> None:
        """A full reader is concealed while it is built: its marker would say that it has no more than came so far."""
        domain = host.domain
        for node in nodes:
            if isinstance(node.operator, Reader):
                layout = ReaderLayout(reader_id(node.index, domain.shard), node.operator, node.columns)
                layout.concealed = node.materialization is Materialization.FULL
                if layout.concealed:
                    host.concealed.append(layout)
                self[domain.index, node.index] = layout

    def reveal(self, host: HostedDomain, batch: Batch) -> None:
        """What was built is complete."""
        batch.visible.extend(map(Reveal, host.concealed))
        host.concealed.clear()

    def remove(self, host: HostedDomain, nodes: Sequence[NodeIndex], batch: Batch) -> None:
        for node in nodes:
            layout = self.pop((host.domain.index, node), None)
            if layout is not None:
                batch.visible.append(Drop(layout))
                host.concealed = [other for other in host.concealed if other is not layout]

    def remove_all(self, index: DomainIndex, batch: Batch) -> None:
        """The domain leaves."""
        for key in [key for key in self if key[0] == index]:
            batch.visible.append(Drop(self.pop(key)))
