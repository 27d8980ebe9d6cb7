"""The upstream by SQL: what is checked, what tables there are, rows of a snapshot whose position is known, its slot."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, cast

import psycopg2  # type: ignore[import-untyped]
from psycopg2 import extensions, extras, sql

from controller.upstreams.positions import LsnPosition
from headrace.errors import BadRequest, Unavailable
from headrace.upstream.address import UpstreamAddress
from headrace.upstream.batch import Altered, Definition, Emptied, FollowedTable, Reshaped
from headrace.upstream.columns import Chunk, Stopped, UpstreamTable, quoted
from headrace.upstream.postgres.columns import PostgresColumn

TIMEOUT = 60
SNAPSHOT_SECONDS = 30.0
"""How long chunks are read in one snapshot, while the stream waits for them."""
SETTINGS = (
    "-c timezone=UTC -c datestyle=ISO -c extra_float_digits=3 -c bytea_output=hex -c row_security=off"
    " -c idle_in_transaction_session_timeout=0 -c statement_timeout=0 -c lock_timeout=0"
)
"""How values are written as texts, by both connections; that no policy hides rows; and that nothing ends us."""

Identifier = sql.Identifier


def driver_options(address: UpstreamAddress) -> dict[str, Any]:
    """psycopg2's."""
    where = {"host": address.host, "port": address.port, "user": address.user, "password": address.password}
    tls = {name: value for name, value in address.options.items() if name.startswith("ssl")}
    alive = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": TIMEOUT * 1000}
    client = {"client_encoding": "UTF8", "connect_timeout": 10, "options": SETTINGS, "application_name": "headrace"}
    return {**where, **tls, **alive, **client, "dbname": address.database}


class PostgresSource:
    def __init__(self, address: UpstreamAddress) -> None:
        self.address = address
        self.schema = address.options.get("schema", "public")
        with answered(address):
            self._db = psycopg2.connect(**driver_options(address))
            self._db.autocommit = True
        self._snapshot: Any = None
        """A connection that reads in one, its position, and since when."""

    def close(self) -> None:
        self._db.close()
        self._leave_snapshot()

    def rows(self, statement: Any, parameters: Sequence[Any] = (), db: Any = None) -> list[tuple[Any, ...]]:
        with answered(self.address), (db or self._db).cursor() as cursor:
            cursor.execute(statement, parameters or None)
            return list(cursor.fetchall()) if cursor.description else []

    # --- what it is, and where ----------------------------------------------------------------------------------

    def check(self) -> None:
        ((level, version),) = self.rows(
            "SELECT current_setting('wal_level'), current_setting('server_version_num')::int"
        )
        if version < 130000:
            raise Stopped("the upstream is older than PostgreSQL 13", hint="see docs/upstream.md")
        if level != "logical":
            hint = "wal_level = logical in its configuration, and a restart"
            raise Stopped(f"wal_level of the upstream is {level}, and has to be logical", hint=hint)

    def position(self) -> LsnPosition:
        """What is on its disk."""
        with closing(self._replication()) as db, db.cursor() as cursor, answered(self.address):
            cursor.execute("IDENTIFY_SYSTEM")
            system, timeline, at, _ = cursor.fetchone()
        return LsnPosition(LsnPosition.parse(at).lsn, f"{system}/{timeline}")

    def _replication(self) -> Any:
        with answered(self.address):
            return psycopg2.connect(
                **driver_options(self.address), connection_factory=extras.LogicalReplicationConnection
            )

    def refuse_behind(self, ours: LsnPosition) -> None:
        theirs = self.position()
        hint = "follow the server that has all of it, or import the tables anew"
        if ours.cluster != theirs.cluster:
            told = f"the upstream is system {theirs.cluster}, and we have followed {ours.cluster}"
            raise Stopped(f"{told}: it is another, or was restored or promoted", hint=hint)
        if not theirs.covers(ours):
            told = f"the upstream is at {theirs.text}, behind our position {ours.text}"
            raise Stopped(f"{told}: it has lost something", hint=hint)

    # --- tables -------------------------------------------------------------------------------------------------

    def tables(self, wanted: Collection[str] = ()) -> list[UpstreamTable]:
        found = self.rows(
            "SELECT c.oid, c.relname, c.relkind::text, c.relpersistence::text, c.relreplident::text,"
            " c.relhassubclass OR c.relispartition OR EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = c.oid),"
            " c.reltuples::bigint FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = %s AND c.relkind IN ('r', 'p', 'f') ORDER BY c.relname",
            [self.schema],
        )
        if absent := set(wanted).difference(name for _, name, *_ in found):
            raise BadRequest(f'schema "{self.schema}" of the upstream has no table "{min(absent)}"')
        return [self._table(*each) for each in found if not wanted or each[1] in wanted]

    def _table(
        self, oid: int, name: str, kind: str, lasts: str, identity: str, related: bool, rows: int
    ) -> UpstreamTable:
        columns = self.rows(
            "SELECT a.attname, t.typname, format_type(a.atttypid, a.atttypmod), a.atttypid::bigint, a.atttypmod,"
            " a.attnotnull, CASE WHEN t.typelem <> 0 AND t.typlen = -1 THEN 'a' ELSE t.typtype::text END,"
            " COALESCE(l.collisdeterministic, true), a.attgenerated <> ''"
            " FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid"
            " LEFT JOIN pg_collation l ON l.oid = a.attcollation"
            " WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
            [oid],
        )
        indexes = self.rows(
            "SELECT i.indisprimary, i.indisreplident, i.indpred IS NULL AND i.indexprs IS NULL,"
            " array_agg(a.attname::text ORDER BY k.at)"
            " FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k (attnum, at)"
            " LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum"
            " WHERE i.indrelid = %s AND k.at <= i.indnkeyatts GROUP BY i.indexrelid, 1, 2, 3 ORDER BY i.indexrelid",
            [oid],
        )
        key = next((tuple(columns) for primary, _, _, columns in indexes if primary), ())
        problems = [] if key else ["it has no PRIMARY KEY"]
        if kind != "r" or related:
            problems.append("it is partitioned, inherits, or is foreign")
        if lasts != "p":
            problems.append("it is UNLOGGED: its changes are not told")
        identified = next((tuple(columns) for _, chosen, _, columns in indexes if chosen), ())
        if identity == "n" or (identity == "i" and set(identified) != set(key)):
            problems.append("its REPLICA IDENTITY is not the primary key (ALTER TABLE … REPLICA IDENTITY DEFAULT)")
        made = [
            PostgresColumn(column, typname, spelled, modifier, not required, category, deterministic, generated)
            for column, typname, spelled, _, modifier, required, category, deterministic, generated in columns
        ]
        layout = [[column, type_oid, modifier] for column, _, _, type_oid, modifier, *_ in columns]
        others = [tuple(each) for primary, _, whole, each in indexes if whole and not primary]
        return UpstreamTable(
            name, made, key, tuple(dict.fromkeys(others)), max(rows, 0), tuple(problems), json.dumps(layout)
        )

    # --- what it tells and keeps for us ---------------------------------------------------------------------------

    def _publication(self, slot: str) -> str:
        return self.address.options.get("publication", slot)

    def begin(self, slot: str, tables: Collection[str]) -> LsnPosition:
        """A publication first: what is decoded before there is one is an error. Then the slot."""
        self._publish(slot, tables)
        found = self.rows("SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s", [slot])
        here = self.position()
        if found:
            return LsnPosition(LsnPosition.parse(found[0][0]).lsn, here.cluster)
        with closing(self._replication()) as db, db.cursor() as cursor, answered(self.address):
            cursor.execute(f'CREATE_REPLICATION_SLOT "{slot}" LOGICAL pgoutput NOEXPORT_SNAPSHOT')
            _, at, *_ = cursor.fetchone()
        return LsnPosition(LsnPosition.parse(at).lsn, here.cluster)

    def _publish(self, slot: str, tables: Collection[str]) -> None:
        publication = self._publication(slot)
        published = self._published(publication)
        missing = [Identifier(self.schema, table) for table in sorted(tables) if table not in (published or {})]
        if not missing:
            return
        if "publication" in self.address.options:
            hint = "ALTER PUBLICATION … ADD TABLE … by its owner"
            raise Stopped(f'publication "{publication}" of the upstream has not all of these tables', hint=hint)
        act = "CREATE PUBLICATION {} FOR TABLE {}" if published is None else "ALTER PUBLICATION {} ADD TABLE {}"
        self.rows(sql.SQL(act).format(Identifier(publication), sql.SQL(", ").join(missing)))

    def _published(self, publication: str) -> dict[str, str] | None:
        """What is wrong with each table of it in our schema, "" if nothing is; None: there is no such publication."""
        told = self.rows(
            "SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate FROM pg_publication WHERE pubname = %s",
            [publication],
        )
        if not told:
            return None
        if not told[0][0]:
            raise Stopped(
                f'publication "{publication}" of the upstream does not publish all: insert, update, delete, truncate'
            )
        narrowed = ""
        if self._db.server_version >= 150000:
            narrowed = (
                " LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = c.oid"
                " AND (r.prqual IS NOT NULL OR r.prattrs IS NOT NULL)"
            )
        found = self.rows(
            f"SELECT t.tablename, c.relreplident::text, {'r.oid IS NOT NULL' if narrowed else 'false'}"
            " FROM pg_publication_tables t JOIN pg_publication p ON p.pubname = t.pubname"
            " JOIN pg_namespace n ON n.nspname = t.schemaname"
            f" JOIN pg_class c ON c.relname = t.tablename AND c.relnamespace = n.oid{narrowed}"
            " WHERE t.pubname = %s AND t.schemaname = %s",
            [publication, self.schema],
        )
        return {
            name: "a row filter or a column list" if narrow else "REPLICA IDENTITY NOTHING" if identity == "n" else ""
            for name, identity, narrow in found
        }

    def watch(self, slot: str, tables: Collection[str]) -> int | None:
        published = self._published(self._publication(slot)) or {}
        for table in tables:
            problem = published.get(
                table, "it is not in the publication any more: it was dropped, renamed or taken out"
            )
            if problem:
                hint = "import it anew, or leave it out: headrace follow --leave-out TABLE"
                raise Stopped(f'table "{table}" is not told whole by the upstream: {problem}', hint=hint)
        found = self.rows(
            "SELECT wal_status, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint FROM pg_replication_slots"
            " WHERE slot_name = %s",
            [slot],
        )
        if not found or found[0][0] == "lost":
            hint = "import the tables anew; max_slot_wal_keep_size is how much it keeps"
            why = "has dropped its log" if found else "has no replication slot"
            raise Stopped(f'the upstream {why} for us ("{slot}"): changes are lost', hint=hint)
        return int(found[0][1] or 0)

    def drop(self, slot: str) -> None:
        self.rows("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", [slot])
        if "publication" not in self.address.options:
            self.rows(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(Identifier(slot)))

    # --- chunks -------------------------------------------------------------------------------------------------

    def chunk(self, table: UpstreamTable, after: Sequence[Any] | None, limit: int, ours: LsnPosition) -> Chunk:
        db, position = self._in_snapshot(ours)
        columns = cast(Sequence[PostgresColumn], table.columns)
        behind = sql.SQL("")
        key = sql.SQL(", ").join(map(Identifier, table.key))
        if after is not None:
            values = sql.SQL(", ").join(sql.Placeholder() for _ in table.key)
            behind = sql.SQL(" WHERE ({}) > ({})").format(key, values)
        select = sql.SQL("SELECT {} FROM {}{} ORDER BY {} LIMIT {}").format(
            sql.SQL(", ").join(Identifier(column.name) for column in columns),
            Identifier(self.schema, table.name),
            behind,
            key,
            sql.Literal(limit),
        )
        told = self.rows(select, list(after or ()), db)
        converts = [(at, column.name, column.convert()) for at, column in enumerate(columns)]
        rows = [
            {
                name: row[at] if row[at] is None or convert is None else convert(row[at])
                for at, name, convert in converts
            }
            for row in told
        ]
        places = [[column.name for column in columns].index(name) for name in table.key]
        return Chunk(table, rows, position, limit, [told[-1][at] for at in places] if told else [])

    def _in_snapshot(self, ours: LsnPosition) -> tuple[Any, LsnPosition]:
        if self._snapshot is not None and time.monotonic() - self._snapshot[2] > SNAPSHOT_SECONDS:
            self._leave_snapshot()
        if self._snapshot is None:
            self._snapshot = (*self._exported(ours.cluster), time.monotonic())
        db, position, _ = self._snapshot
        if not position.covers(ours):
            self._leave_snapshot()
            return self._in_snapshot(ours)
        return db, position

    def _exported(self, cluster: str) -> tuple[Any, LsnPosition]:
        with closing(self._replication()) as maker, maker.cursor() as cursor, answered(self.address):
            name = f"headrace_{time.time_ns():x}"
            cursor.execute(f'CREATE_REPLICATION_SLOT "{name}" TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT')
            _, at, snapshot, _ = cursor.fetchone()
            db = psycopg2.connect(**driver_options(self.address))
            # Values as the texts that the stream has, whatever their types.
            oids = [
                oid for (oid,) in self.rows("SELECT oid::bigint FROM pg_type WHERE typtype IN ('b', 'e', 'd', 'r')")
            ]
            extensions.register_type(extensions.new_type(tuple(oids), "TOLD", lambda text, _: text), db)
            self.rows("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY", db=db)
            self.rows(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)), db=db)
        return db, LsnPosition(LsnPosition.parse(at).lsn, cluster)

    def _leave_snapshot(self) -> None:
        if self._snapshot is not None:
            self._snapshot[0].close()
            self._snapshot = None

    # --- definitions --------------------------------------------------------------------------------------------

    def meaning(self, told: Definition, table: FollowedTable) -> Emptied | Altered:
        """PostgreSQL tells no definitions, only that a table's columns are others. Columns that have come get their
        values by a copy of all rows, since what their default was is told nowhere."""
        if not isinstance(told, Reshaped):
            return told
        before = {name: (oid, modifier) for name, oid, modifier in json.loads(table.layout or "[]")}
        after = {name: (oid, modifier) for name, oid, modifier in json.loads(told.layout)}
        hint = "import the table anew, or leave it out: headrace follow --leave-out TABLE"
        changed = [name for name in before.keys() & after.keys() if before[name] != after[name]]
        if changed or not set(table.key) <= after.keys():
            what = f'column "{min(changed)}" has another type' if changed else "its key has other columns"
            raise Stopped(f'table "{told.table}" was altered upstream: {what}', hint=hint)
        self._leave_snapshot()
        found = {column.name: column for described in self.tables([told.table]) for column in described.columns}
        acts = [f"DROP COLUMN {quoted(name)}" for name in before if name not in after]
        for name in after:
            if name in before:
                continue
            column = found.get(name)
            if column is None:
                raise Stopped(f'column "{name}" of table "{told.table}" has come and gone upstream', hint=hint)
            if problem := column.problem(False, None):
                raise Stopped(f'column "{name}" of table "{told.table}" has come upstream: {problem}', hint=hint)
            words = column.definition(False, None).removesuffix(" NOT NULL").removesuffix(" NULL")
            acts.append(f"ADD COLUMN {words} NULL")
        altered = f"ALTER TABLE {quoted(told.table)} {', '.join(acts)}" if acts else ""
        return Altered(told.table, altered, told.layout)


@contextmanager
def answered(address: UpstreamAddress) -> Iterator[None]:
    """psycopg2's errors as ours: an upstream that is away may come back."""
    try:
        yield
    except psycopg2.Error as error:
        code, text = error.pgcode or "", " ".join(str(error).split())
        if code in ALTERED:
            raise Unavailable(f"a table is altered upstream: {text}") from error
        for refusal, hint in REFUSALS.items():
            if code == refusal or (not code and refusal in text):
                raise Stopped(f"the upstream refuses: {text}", hint=hint) from error
        if isinstance(error, psycopg2.OperationalError | psycopg2.InterfaceError) or code[:2] in PASSES or not code:
            raise Unavailable(f"the upstream {address} does not answer: {text}") from error
        raise Stopped(f"the upstream refuses: {text}") from error


ALTERED = ("42703", "42P01")
PASSES = ("08", "40", "55", "57")
"""Classes of errors that go away: connections, conflicts, what is in use (a slot, of a follower that has just died)."""
_RIGHTS = (
    "a user needs SELECT on the tables, REPLICATION, and to own the tables (or a ?publication=NAME): docs/upstream.md"
)
REFUSALS = {
    "42501": _RIGHTS,
    "28P01": _RIGHTS,
    "28000": _RIGHTS,
    "authentication failed": _RIGHTS,
    "pg_hba.conf": _RIGHTS,
    "does not exist": "the URL ends with the name of a database",
    "53400": "max_replication_slots and max_wal_senders have to leave room: two more of each",
    "42704": "its publication is gone: import the tables anew",
}
"""Errors that do not go away by themselves: codes, and words of those that have none."""
