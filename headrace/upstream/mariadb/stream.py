"""The upstream's binlog as transactions, read by a thread of its own; or why it stops.

``mysql-replication`` knows the framing, the GTIDs and the values of rows. What it does not know it passes over, so it
is asked for *every* kind of event, and what has no place in ``on_event`` ends the stream. It would also connect again
by itself, at the place where it once began: it is given connections for once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import SystemRandom
from typing import Any

import pymysql  # type: ignore[import-untyped]
from pymysqlreplication import BinLogStreamReader, event, row_event  # type: ignore[import-untyped]
from pymysqlreplication.constants import FIELD_TYPE, NONE_SOURCE  # type: ignore[import-untyped]

from controller.upstreams.positions import GtidPosition
from headrace.errors import Unavailable
from headrace.upstream.address import UpstreamAddress
from headrace.upstream.batch import RowChange, UpstreamTransaction
from headrace.upstream.columns import Stopped
from headrace.upstream.kinds import UpstreamStream
from headrace.upstream.mariadb.columns import ZERO
from headrace.upstream.mariadb.source import answered, driver_options
from headrace.upstream.mariadb.statements import meaning_of

QUIET = (
    event.RotateEvent,
    event.FormatDescriptionEvent,
    event.HeartbeatLogEvent,
    event.StopEvent,
    event.MariadbGtidListEvent,
    event.MariadbBinLogCheckPointEvent,
    event.MariadbAnnotateRowsEvent,
    event.MariadbStartEncryptionEvent,
)
"""Events that say nothing about rows."""
ROWS = (row_event.WriteRowsEvent, row_event.UpdateRowsEvent, row_event.DeleteRowsEvent)
MEANT = (
    *QUIET,
    *ROWS,
    row_event.TableMapEvent,
    event.MariadbGtidEvent,
    event.QueryEvent,
    event.XidEvent,
    event.XAPrepareEvent,
)
REFUSED = (
    event.NotImplementedEvent,
    event.GtidEvent,
    event.PreviousGtidsEvent,
    event.BeginLoadQueryEvent,
    event.ExecuteLoadQueryEvent,
    event.IntvarEvent,
    event.RandEvent,
    event.UserVarEvent,
    event.RowsQueryLogEvent,
    row_event.PartialUpdateRowsEvent,
)
"""All others that the library has a class for; of what it has none, ``NotImplementedEvent`` comes."""

STANDALONE, XA = 1, 64 | 128
"""Flags of a GTID: its one statement is all of it; a part of an XA transaction."""
WHY = {
    **dict.fromkeys((165, 166, 167, 168, 169, 170), "compressed rows: log_bin_compress of the upstream is to be OFF"),
    **dict.fromkeys(
        (5, 13, 14, 17, 18), "a change of rows as a statement: binlog_format is to be ROW, in each session"
    ),
    40: "a compressed transaction: binlog_transaction_compression is to be OFF",
    39: "a part of a JSON value: binlog_row_value_options is to be empty",
}
"""Types of events that are known to be met, and what setting brings them."""
BEAT_SECONDS = 0.5
"""How often an upstream with nothing to tell says that it is there."""


@dataclass(slots=True)
class BinlogTransaction(UpstreamTransaction):
    standalone: bool = False
    is_xa: bool = False
    """Of others' tables alone, which are nothing to us."""
    savepoints: dict[str, int] = field(default_factory=dict)


class BinlogStream(UpstreamStream):
    def __init__(self, address: UpstreamAddress, begin: GtidPosition, follows: Collection[str]) -> None:
        super().__init__("binlog")
        self._address, self._position, self._follows = address, begin, follows
        self._connections: list[Any] = []

    def confirm(self, position: GtidPosition) -> None:
        """It keeps its binlog for whomever."""

    def _beat(self) -> None:
        """It sends heartbeats by itself."""

    def _undecoded(self, error: str) -> str:
        return f"the upstream's binlog behind {self._position} cannot be decoded: {error}"

    def _connect(self, **options: Any) -> Any:
        if len(self._connections) == 2:
            raise Unavailable(f"the upstream {self._address} has ended the connection")
        self._connections.append(pymysql.connect(**options))
        return self._connections[-1]

    def _transactions(self) -> None:
        reader = BinLogStreamReader(
            driver_options(self._address),
            SystemRandom().randrange(2**30, 2**31),  # Replicas have numbers of their own.
            blocking=True,
            is_mariadb=True,
            auto_position=str(self._position),
            only_events=(*MEANT, *REFUSED),
            filter_non_implemented_events=False,
            only_schemas=[self._address.database],
            slave_heartbeat=BEAT_SECONDS,
            pymysql_wrapper=self._connect,
            enable_logging=False,
        )
        reading = _Reading(self._address.database, self._follows, self._position)
        try:
            while not self._ended.is_set():
                with answered(self._address):
                    found = reader.fetchone()
                if found is None:
                    raise Unavailable(f"the upstream {self._address} has ended its binlog")
                done = reading.on_event(found)
                self._position = reading.position
                if done is not None and not self._put(done):
                    return
        finally:
            for connection in self._connections:
                connection.close() if connection.open else None


class _Reading:
    """Events in their order, put together to transactions."""

    def __init__(self, database: str, follows: Collection[str], position: GtidPosition) -> None:
        self._database, self._follows, self.position = database, follows, position
        self._open: BinlogTransaction | None = None

    def on_event(self, found: Any) -> UpstreamTransaction | None:
        """The transaction that ends with it.

        :raises Stopped: it has no place here.
        """
        if isinstance(found, QUIET):
            return None
        if isinstance(found, event.MariadbGtidEvent):
            self._begin(found)
        elif isinstance(found, event.QueryEvent):
            return self._on_statement(found)
        elif isinstance(found, event.XidEvent):
            return self._end()
        elif isinstance(found, row_event.TableMapEvent):
            if found.table in self._follows and not found.optional_metadata.column_name_list:
                message = f'rows of table "{found.table}" came without the names of columns ({self._where()})'
                raise Stopped(message, hint="SET GLOBAL binlog_row_metadata = FULL, and import the table anew")
        elif isinstance(found, ROWS):
            if found.table in self._follows:
                if self._transaction().is_xa:
                    raise Stopped(f"table {found.table} is written by an XA transaction, which is not followed")
                self._transaction().changes.extend(_changes(found))
        elif isinstance(found, event.XAPrepareEvent):
            return self._end()
        else:
            kind = WHY.get(found.event_type, type(found).__name__)
            message = (
                f"the upstream sent an event of type {found.event_type} ({kind}), which is not known ({self._where()})"
            )
            raise Stopped(message, hint="nothing of that transaction was done; see docs/upstream.md")
        return None

    def _where(self) -> str:
        return f"in transaction {self._open.name}" if self._open else f"behind {self.position}"

    def _transaction(self) -> BinlogTransaction:
        if self._open is None:
            raise Stopped(f"the upstream sent rows outside of a transaction (behind {self.position})")
        return self._open

    def _begin(self, found: Any) -> None:
        if self._open is not None:
            raise Stopped(f"transaction {self._open.name} of the upstream has no end")
        if found.gtid_seq_no <= self.position.number(found.domain_id):
            hint = "its numbers have to grow: gtid_strict_mode = ON"
            raise Stopped(f"transaction {found.gtid} of the upstream comes after {self.position}", hint=hint)
        end = (found.domain_id, found.packet.server_id, found.gtid_seq_no)
        self._open = BinlogTransaction("-".join(map(str, end)), end, found.timestamp)
        self._open.standalone, self._open.is_xa = bool(found.flags & STANDALONE), bool(found.flags & XA)

    def _end(self) -> UpstreamTransaction:
        done = self._transaction()
        if done.definitions and (done.changes or len(done.definitions) > 1):
            raise Stopped(f"transaction {done.name} of the upstream has definitions between changes of rows")
        self._open = None
        self.position = self.position.past(done.end)
        return done

    def _define(self, open: BinlogTransaction, schema: str, text: str) -> None:
        meaning = meaning_of(text, schema, self._database, self._follows)
        if meaning is not None:
            open.definitions.append(meaning)

    def _on_statement(self, found: Any) -> UpstreamTransaction | None:
        open, text = self._transaction(), found.query.strip()
        words = text.rstrip(";").split()
        first = words[0].upper() if words else ""
        if open.is_xa:
            return self._end() if first == "XA" and words[1].upper() in ("COMMIT", "ROLLBACK") else None
        if open.standalone:
            self._define(open, found.schema.decode(), text)
            return self._end()
        if first == "BEGIN":
            return None
        if first == "COMMIT":
            return self._end()
        if first == "SAVEPOINT":
            open.savepoints[words[1]] = len(open.changes)
        elif first == "ROLLBACK" and len(words) > 1:
            if words[-1] not in open.savepoints:
                raise Stopped(f"transaction {open.name} of the upstream goes back to a place that it has not told")
            del open.changes[open.savepoints[words[-1]] :]
        elif first == "ROLLBACK":
            open.changes.clear()
            return self._end()
        else:
            self._define(open, found.schema.decode(), text)
        return None


# The rows of an event, with our values.

Read = Callable[[Any], Any]


def _changes(found: Any) -> Iterator[RowChange]:
    table, columns = found.table, frozenset(column.name for column in found.columns)
    reads = {column.name: read for column in found.columns if (read := _read(column))}
    for row in found.rows:
        if isinstance(found, row_event.UpdateRowsEvent):
            before = _values(table, row["before_values"], row["before_none_sources"], reads)
            after = _values(table, row["after_values"], row["after_none_sources"], reads)
            yield RowChange(table, before, after, columns)
        else:
            values = _values(table, row["values"], row["none_sources"], reads)
            is_new = isinstance(found, row_event.WriteRowsEvent)
            yield RowChange(table, None if is_new else values, values if is_new else None, columns)


def _values(
    table: str, given: Mapping[str, Any], nones: Mapping[str, str], reads: Mapping[str, Read]
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in given.items():
        if value is not None:
            read = reads.get(name)
            values[name] = value if read is None else read(value)
            continue
        why = nones[name]
        if why == NONE_SOURCE.EMPTY_SET:
            values[name] = ""
        elif why in (NONE_SOURCE.NULL, "null"):
            values[name] = None
        elif why != NONE_SOURCE.COLS_BITMAP:
            hint = "give these rows a date upstream, or leave the table out"
            raise Stopped(f'column "{name}" of table "{table}" has a value that is no date here ({why})', hint=hint)
    return values


def _read(column: Any) -> Read | None:
    kind = column.type
    if kind == FIELD_TYPE.SET:
        order = {member: at for at, member in enumerate(column.set_values or ())}
        return lambda value: ",".join(sorted(value, key=order.__getitem__))
    if kind == FIELD_TYPE.BIT:
        return lambda value: int(value, 2)
    if column.character_set_name == "binary":
        # The library makes a text of no bytes; and the binlog leaves the zeros at the end of a BINARY out.
        length = column.max_length if kind == FIELD_TYPE.STRING else 0
        return lambda value: (value or b"").ljust(length, b"\0")
    if kind in (FIELD_TYPE.TIMESTAMP, FIELD_TYPE.TIMESTAMP2):
        return _timestamp
    return _time if kind == FIELD_TYPE.TIME2 else None


def _time(value: timedelta) -> timedelta:
    """The library takes the fraction of a negative TIME from the next second, and not from its own: −1.2 is −1.8."""
    if value.days >= 0 or not value.microseconds:
        return value
    return value + timedelta(seconds=1) - 2 * timedelta(microseconds=value.microseconds)


def _timestamp(value: datetime) -> datetime:
    if value == ZERO:
        raise Stopped("a TIMESTAMP of zeros is no date here", hint="give these rows a date upstream")
    return value
