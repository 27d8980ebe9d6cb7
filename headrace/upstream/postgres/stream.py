"""The upstream's changes as transactions, read by a thread of its own; or why it stops."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from select import select
from time import monotonic
from typing import Any

import psycopg2  # type: ignore[import-untyped]
from psycopg2 import extras

from controller.upstreams.positions import LsnPosition
from headrace.upstream.address import UpstreamAddress
from headrace.upstream.batch import Emptied, FollowedTable, Reshaped, RowChange, UpstreamTransaction
from headrace.upstream.columns import Stopped
from headrace.upstream.kinds import UpstreamStream
from headrace.upstream.postgres import pgoutput
from headrace.upstream.postgres.columns import Convert, PostgresColumn
from headrace.upstream.postgres.pgoutput import UNCHANGED
from headrace.upstream.postgres.source import answered, driver_options

BEAT_SECONDS = 0.25
"""How often it is told what is durable here, and asked how far it is where it has nothing to tell."""


class ReplicationStream(UpstreamStream):
    def __init__(
        self, address: UpstreamAddress, slot: str, begin: LsnPosition, tables: Mapping[str, FollowedTable]
    ) -> None:
        super().__init__("replication")
        self._address, self._slot, self._confirmed = address, slot, begin.lsn
        self._reading = ReplicatedTransactions(address.options.get("schema", "public"), begin, tables)
        self._cursor: Any = None
        self._beaten = 0.0

    def confirm(self, position: LsnPosition) -> None:
        self._confirmed = position.lsn

    def _undecoded(self, error: str) -> str:
        return f"what the upstream sent cannot be read: {error} (behind {self._reading.position})"

    def _beat(self) -> None:
        """Say what is durable here, and ask for a word: so neither side takes the other for gone."""
        if monotonic() - self._beaten >= BEAT_SECONDS:
            self._beaten = monotonic()
            self._cursor.send_feedback(flush_lsn=self._confirmed, apply_lsn=self._confirmed, reply=True, force=True)

    def _transactions(self) -> None:
        with answered(self._address):
            db = psycopg2.connect(
                **driver_options(self._address), connection_factory=extras.LogicalReplicationConnection
            )
        try:
            with answered(self._address):
                publication = self._address.options.get("publication", self._slot)
                named = '"' + publication.replace('"', '""') + '"'
                self._cursor = db.cursor()
                self._cursor.start_replication(
                    slot_name=self._slot,
                    slot_type=extras.REPLICATION_LOGICAL,
                    start_lsn=self._reading.position.text,
                    decode=False,
                    options={"proto_version": "1", "publication_names": named},
                )
                while not self._ended.is_set() and self._step():
                    pass
        finally:
            with suppress(psycopg2.Error):
                db.close()

    def _step(self) -> bool:
        """One message, or a wait for one. False: nobody wants it any more."""
        message = self._cursor.read_message()
        self._beat()
        if message is not None:
            done = self._reading.on_message(pgoutput.decode(message.payload))
        else:
            done = self._reading.on_silence(self._cursor.wal_end)
            if done is None:
                select([self._cursor], [], [], BEAT_SECONDS)
        return done is None or self._put(done)


class ReplicatedTransactions:
    """Messages in their order, put together to transactions."""

    def __init__(self, schema: str, begin: LsnPosition, tables: Mapping[str, FollowedTable]) -> None:
        self.position = begin
        self._schema, self._keys = schema, {table.name: table.key for table in tables.values()}
        self._layouts = {table.name: table.layout for table in tables.values()}
        self._relations: dict[int, _Followed | None] = {}
        """None: a table that does not follow."""
        self._open: UpstreamTransaction | None = None

    def on_message(self, found: pgoutput.Decoded) -> UpstreamTransaction | None:
        """The transaction that ends with it. :raises Stopped: it has no place here."""
        match found:
            case pgoutput.ToldBegin():
                if self._open is not None:
                    raise Stopped(f"transaction {self._open.name} of the upstream has no end")
                name = f"{LsnPosition(found.commit).text} (xid {found.xid})"
                self._open = UpstreamTransaction(name, found.commit, found.at, found.commit)
            case pgoutput.ToldCommit():
                done, self._open = self._transaction(), None
                if done.begins != found.commit:
                    raise Stopped(f"transaction {done.name} of the upstream ends as another one")
                done.end = found.end
                self.position = self.position.past(found.end)
                return _with_truncates_alone(done)
            case pgoutput.ToldRelation():
                self._relations[found.id] = self._followed(found)
            case pgoutput.ToldInsert() | pgoutput.ToldUpdate() | pgoutput.ToldDelete():
                if (table := self._known(found.relation)) is not None:
                    self._transaction().changes.append(table.change(found))
            case pgoutput.ToldTruncate():
                for relation in found.relations:
                    if (table := self._known(relation)) is not None:
                        self._transaction().changes.append(RowChange(table.name, None, None, table.columns))
            case pgoutput.ToldType() | pgoutput.ToldOrigin() | pgoutput.ToldMessage():
                pass  # They say nothing of rows.
        return None

    def on_silence(self, sent: int) -> UpstreamTransaction | None:
        """All up to there was sent: where that is further than we are, a transaction without anything."""
        if self._open is not None or sent <= self.position.lsn:
            return None
        self.position = self.position.past(sent)
        return UpstreamTransaction(self.position.text, sent, 0, sent)

    def _transaction(self) -> UpstreamTransaction:
        if self._open is None:
            raise Stopped(f"the upstream sent rows outside of a transaction (behind {self.position})")
        return self._open

    def _known(self, relation: int) -> _Followed | None:
        if relation not in self._relations:
            raise Stopped(f"the upstream sent rows of a table that it has not described (behind {self.position})")
        return self._relations[relation]

    def _followed(self, found: pgoutput.ToldRelation) -> _Followed | None:
        if found.schema != self._schema or found.name not in self._keys:
            return None
        key = self._keys[found.name]
        if found.identity == "n" or {column.name for column in found.columns if column.is_key} != set(key):
            whole = found.identity == "f" and set(key) <= {column.name for column in found.columns}
            if not whole:
                hint = "ALTER TABLE … REPLICA IDENTITY DEFAULT, and import the table anew"
                raise Stopped(f'the replica identity of table "{found.name}" is not its primary key', hint=hint)
        layout = json.dumps([[column.name, column.oid, column.modifier] for column in found.columns])
        if json.loads(self._layouts[found.name] or "null") != json.loads(layout):
            self._transaction().definitions.append(Reshaped(found.name, layout))
            self._layouts[found.name] = layout
        return _Followed(found, key)


def _with_truncates_alone(done: UpstreamTransaction) -> UpstreamTransaction:
    """Tables are emptied at once where a transaction does nothing else."""
    if done.changes and all(change.before is change.after is None for change in done.changes):
        done.definitions += [Emptied(table) for table in dict.fromkeys(change.table for change in done.changes)]
        done.changes.clear()
    return done


class _Followed:
    """A table that follows, as the stream describes it."""

    def __init__(self, relation: pgoutput.ToldRelation, key: tuple[str, ...]) -> None:
        self.name, self._key = relation.name, key
        self._names = [column.name for column in relation.columns]
        self.columns = frozenset(self._names)
        self._converts: list[Convert | None] = [
            PostgresColumn(
                column.name, _KINDS.get(column.oid, ""), "", column.modifier, True, "b", True, False
            ).convert()
            for column in relation.columns
        ]

    def change(self, found: pgoutput.ToldInsert | pgoutput.ToldUpdate | pgoutput.ToldDelete) -> RowChange:
        new = None if isinstance(found, pgoutput.ToldDelete) else self._values(found.new)
        if isinstance(found, pgoutput.ToldInsert):
            return RowChange(self.name, None, new, self.columns)
        before = self._values(found.key if found.key is not None else found.old)
        if found.old is not None and new is not None:
            new = {**before, **new}  # What is unchanged and stored apart is in the old row.
        source = before if before else new
        assert source is not None
        try:
            key = {name: source[name] for name in self._key}
        except KeyError as error:
            raise Stopped(f'a change of table "{self.name}" comes without column {error} of its key') from None
        return RowChange(self.name, key, new, self.columns)

    def _values(self, told: pgoutput.ToldRow | None) -> dict[str, Any]:
        """Without those that are unchanged. A key's row has NULL where a column is not of the key: it means nothing."""
        if told is None:
            return {}
        if len(told) != len(self._names):
            raise Stopped(f'a row of table "{self.name}" has {len(told)} values for {len(self._names)} columns')
        values: dict[str, Any] = {}
        for name, convert, value in zip(self._names, self._converts, told, strict=True):
            if value is not UNCHANGED:
                values[name] = convert(value) if convert is not None and isinstance(value, str) else value
        return values


_KINDS = {
    16: "bool",
    17: "bytea",
    20: "int8",
    21: "int2",
    23: "int4",
    700: "float4",
    701: "float8",
    1042: "bpchar",
    1082: "date",
    1083: "time",
    1114: "timestamp",
    1184: "timestamptz",
    1700: "numeric",
}
"""Types whose texts are not our values, by their numbers, which are the same everywhere."""
