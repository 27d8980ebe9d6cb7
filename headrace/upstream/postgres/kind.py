"""PostgreSQL, as a follower needs it."""

from __future__ import annotations

from collections.abc import Mapping

from controller.upstreams.positions import LsnPosition
from headrace.upstream.address import UpstreamAddress
from headrace.upstream.batch import FollowedTable
from headrace.upstream.kinds import UpstreamKind
from headrace.upstream.postgres.source import PostgresSource
from headrace.upstream.postgres.stream import ReplicationStream


class PostgresKind(UpstreamKind):
    def parse(self, position: str) -> LsnPosition:
        return LsnPosition.parse(position)

    def open(self, address: UpstreamAddress) -> PostgresSource:
        return PostgresSource(address)

    def stream(
        self, address: UpstreamAddress, slot: str, begin: LsnPosition, tables: Mapping[str, FollowedTable]
    ) -> ReplicationStream:
        return ReplicationStream(address, slot, begin, tables)
