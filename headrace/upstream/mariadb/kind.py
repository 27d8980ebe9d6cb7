"""MariaDB, as a follower needs it."""

from __future__ import annotations

from collections.abc import Mapping

from controller.upstreams.positions import GtidPosition
from headrace.upstream.address import UpstreamAddress
from headrace.upstream.batch import FollowedTable
from headrace.upstream.kinds import UpstreamKind
from headrace.upstream.mariadb.source import MariaSource
from headrace.upstream.mariadb.stream import BinlogStream


class MariaDbKind(UpstreamKind):
    def parse(self, position: str) -> GtidPosition:
        return GtidPosition.parse(position)

    def open(self, address: UpstreamAddress) -> MariaSource:
        return MariaSource(address)

    def stream(
        self, address: UpstreamAddress, slot: str, begin: GtidPosition, tables: Mapping[str, FollowedTable]
    ) -> BinlogStream:
        return BinlogStream(address, begin, frozenset(tables))
