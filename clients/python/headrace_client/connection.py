"""The blocking client."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from itertools import count
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from headrace_client import calls, encoding
from headrace_client.calls import Answer, Call, Key, Once, OnDuplicate, read_answer
from headrace_client.errors import Conflict, ConnectionFailed, ReadTimeout, TransactionEnded
from headrace_client.live import BlockingLiveRows, LiveChanges
from headrace_client.results import Progress, Record, Result, Written
from headrace_client.session import FIRST_POLL_SECONDS, LAST_POLL_SECONDS, FileName, Session, options, proof_of
from headrace_client.tokens import Token

Done = TypeVar("Done")


class Connection:
    """A server, spoken to over a pool of kept connections; may be shared by threads. Close it, or use ``with``."""

    def __init__(
        self,
        url: str,
        *,
        read_your_writes: bool = False,
        timeout: float = 60.0,
        raw: bool = False,
        key: str | None = None,
        login: tuple[str, str] | None = None,
        tls_ca: FileName = None,
        tls_cert: FileName = None,
        tls_key: FileName = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """``read_your_writes``: every read waits for this connection's earlier writes. ``timeout`` in seconds.

        ``raw``: DECIMAL, DATE, DATETIME and BLOB are read as the strings that they are in JSON.

        ``key``: an API key, where the server has accounts; ``login``: name and password instead. ``tls_ca``: a file
        with the certificates that are trusted in place of the usual ones; ``tls_cert``, ``tls_key``: files of a
        certificate to show, and of its key."""
        self._session = Session(url, read_your_writes, raw=raw, proof=proof_of(key, login))
        with self._session.translated():
            self._http = httpx.Client(transport=transport, **options(url, timeout, tls_ca, tls_cert, tls_key))
        self._shares = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the pool, with all sessions of it; of a session, nothing."""
        if not self._shares:
            self._http.close()

    def session(self, token: str | None = None, *, claims: Mapping[str, Any] | None = None) -> Connection:
        """A connection for one user of a web application: it shares this one's pool, and each of its reads waits for
        its own earlier writes, and no other user's. ``token`` is where the user's last request left off: what
        ``token`` of that session was. ``claims`` say who the user is, {"sub": 7}: row policies compare them, and the
        key needs the right SET CLAIMS. It need not be closed."""
        child = Connection.__new__(Connection)
        child._http, child._shares = self._http, True
        ours = self._session
        given = ours.claims if claims is None else claims
        child._session = Session(ours.url, True, token, raw=ours.raw, proof=ours.proof, claims=given)
        return child

    @property
    def token(self) -> Token | None:
        """The latest token seen, which ``read_your_writes`` sends along."""
        return self._session.token

    def execute(
        self,
        sql: str,
        params: Sequence[Any] = (),
        *,
        token: str | None = None,
        atomic: bool = False,
        unchanged: Iterable[str] = (),
    ) -> Result:
        """Run SQL and answer the last statement's result. ``atomic``: all statements are done, or none; so they are
        with tags of answers in ``unchanged``, and none where one of these has other rows now: Conflict."""
        return calls.last(self.execute_all(sql, params, token=token, atomic=atomic, unchanged=unchanged))

    def execute_all(
        self,
        sql: str,
        params: Sequence[Any] = (),
        *,
        token: str | None = None,
        atomic: bool = False,
        unchanged: Iterable[str] = (),
        follows: bool = False,
    ) -> list[Result]:
        """Run SQL and answer each statement's result. ``follows``: it may write to tables that follow a database
        elsewhere."""
        call = calls.execute(sql, params, raw=self._session.raw, atomic=atomic, unchanged=unchanged, follows=follows)
        return self.send(call, token)

    def transaction(
        self, *, read_only: bool = False, isolation: str | None = None, follows: bool = False
    ) -> TransactionConnection:
        """A transaction: ``with db.transaction() as t``. It is committed at the end of the block, and rolled
        back where that raises. Conflict: others have changed what it has read; ``run`` then does it again.

        ``isolation``: ``serializable``, or ``repeatable-read`` or ``read-committed``, where writes wait for locks
        instead (Locked: for too long); None: what the server's setting says. ``follows``: it may write to tables that
         follow a database elsewhere."""
        return TransactionConnection(self, read_only=read_only, isolation=isolation, follows=follows)

    def run(self, work: Callable[[TransactionConnection], Done], *, attempts: int = 10) -> Done:
        """What ``work`` answers in a transaction, which is done again from its beginning where it meets a conflict."""
        for attempt in count(1):
            try:
                with self.transaction() as transaction:
                    return work(transaction)
            except Conflict:
                if attempt >= attempts:
                    raise
            time.sleep(random.uniform(0, FIRST_POLL_SECONDS * attempt))
        raise AssertionError("it counts on for ever")

    def take_snapshot(self, name: str = "", *, hold: bool = False) -> str:
        """Keep all tables as they are at one moment, and answer the name to read them by (``as_of``). It goes some
        seconds after there is a later one; with ``hold`` when it is dropped."""
        return str((self.send(calls.take_snapshot(name, hold=hold)))["name"])

    def as_of(self, snapshot: str = "latest") -> Connection:
        """The same connection, whose SELECTs and look-ups read a snapshot. SnapshotGone: it is not kept any more."""
        reading = copy(self)
        reading._shares, reading._session = True, self._session.inside("Headrace-Snapshot", snapshot)
        return reading

    def snapshots(self) -> list[Record]:
        """Those that are kept, the oldest first."""
        return list((self.send(calls.show("/v1/snapshots")))["snapshots"])

    def upstream_token(self, source: str, position: str) -> Token:
        """Wait until what a database that is followed here had written at a position (a GTID, an LSN) is here: a read
        with this token reflects it. ReadTimeout, where that takes too long."""
        return self.send(calls.upstream_token(source, position))

    def drop_snapshot(self, name: str) -> None:
        self.send(calls.drop_snapshot(name))

    def view(self, name: str) -> View:
        return View(self, name)

    def lookups(
        self, wanted: Iterable[tuple[str, Iterable[Key]]], *, token: str | None = None, consistent: bool = False
    ) -> list[list[list[Record]]]:
        """The rows of several views, each for several keys, in one request: ``[("v", [[1], [2]]), …]``; ``consistent``:
        all of one position.

        A value may stand for values out of the answer of an earlier one of them: see ``headrace_client.encoding``."""
        return self.send(calls.lookups(wanted, consistent=consistent), token)

    def table(self, name: str) -> Table:
        return Table(self, name)

    def migrate(self, sql: str) -> Migration:
        """Queue DDL statements as one migration; ``wait()`` for it."""
        return Migration(self, self.send(calls.migrate(sql)))

    def migrations(self) -> list[Progress]:
        """The migrations that wait or run, whoever began them, and those that ended lately; the latest first."""
        return self.send(calls.migrations())

    def migration(self, id: str) -> Migration:
        """One of them, to be watched or cancelled."""
        return Migration(self, id)

    def tables(self) -> list[Record]:
        return list(self.send(calls.show("/v1/tables"))["tables"])

    def views(self) -> list[Record]:
        return list(self.send(calls.show("/v1/views"))["views"])

    def schema(self) -> str:
        """The statements that make all tables and views anew, separated by ``;``."""
        return str(self.send(calls.show("/v1/schema"))["sql"])

    def queries(self) -> list[Record]:
        """SELECTs that were asked without a view, by their shape; those that took longest come first."""
        return list(self.send(calls.show("/v1/queries"))["queries"])

    def graph(self) -> Record:
        return self.send(calls.show("/v1/graph"))

    def status(self) -> Record:
        return self.send(calls.show("/v1/status"))

    def send(self, call: Call[Answer], token: str | None = None) -> Answer:
        if self._http.is_closed:
            raise ConnectionFailed("this connection is closed")
        headers = self._session.headers(call, token)
        with self._session.translated():
            response = self._http.request(call.method, call.path, content=call.body, headers=headers)
        types = "" if self._session.raw else response.headers.get(encoding.HEADER, "")
        answer = read_answer(call, response.status_code, response.content, types)
        self._session.remember(answer)
        return answer

    @property
    def raw(self) -> bool:
        return self._session.raw

    def fetch(self, path: str, token: str = "") -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body of an answer that is no value by itself."""
        with self._session.translated():
            response = self._http.get(path, headers=self._session.reading(token))
        return response.status_code, response.headers, response.content

    def lines(self, path: str) -> Iterator[bytes]:
        """The lines of an answer that is too large to be kept as a whole."""
        with (
            self._session.translated(),
            self._http.stream("GET", path, headers=self._session.authorization()) as response,
        ):
            if response.status_code >= 400:
                read_answer(calls.show(path), response.status_code, response.read())
            for line in response.iter_lines():
                yield line.encode()


class TransactionConnection(Connection):
    """A connection whose calls are all in one transaction, from the beginning of its ``with`` block to its end."""

    def __init__(
        self, connection: Connection, *, read_only: bool, isolation: str | None, follows: bool = False
    ) -> None:
        self._connection = connection
        self._http, self._shares = connection._http, True
        self._session = connection._session
        self._begin = calls.begin(read_only=read_only, isolation=isolation, follows=follows)
        self.id = ""
        """The server's name for it, once it is begun."""

    def __enter__(self) -> Self:
        self.id = self._connection.send(self._begin)
        self._session = self._connection._session.inside("Headrace-Transaction", self.id)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self.id:
            self.commit()
        elif self.id and not getattr(error, "ends_transaction", False):
            with suppress(TransactionEnded, ConnectionFailed):
                self.rollback()

    def commit(self) -> Written:
        """Done: with a token by which reads show all of it. It may be sent again where no answer came: then it is
        answered as it was. At the end of the block nothing is done then."""
        if not self.id:
            raise TransactionEnded("the transaction is not open")
        done = self._connection.send(calls.commit(self.id))
        self.id = ""
        return done

    def rollback(self) -> None:
        id, self.id = self.id, ""
        if id:
            self._connection.send(calls.roll_back(id))


class View:
    """A view of one connection."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self.name = name

    def lookup(
        self, key: Mapping[str, Any] | None = None, /, *, token: str | None = None, **parameters: Any
    ) -> list[Record]:
        """The rows for these parameters; a list is an IN list. ``key`` is for names that Python does not take."""
        return self._connection.send(calls.lookup(self.name, {**(key or {}), **parameters}), token)

    def lookup_tagged(self, key: Key, *, token: str | None = None) -> tuple[list[Record], str]:
        """The rows, and a tag of them: a write with it is done only while they are the same."""
        return self._connection.send(calls.lookup_tagged(self.name, key), token)

    def lookup_many(self, keys: Iterable[Key], *, token: str | None = None) -> list[list[Record]]:
        """The rows for each of many keys, in their order, in one request."""
        return self._connection.send(calls.lookup_many(self.name, keys), token)

    def live(self, key: Mapping[str, Any] | None = None, /, **parameters: Any) -> LiveChanges:
        """The rows for these parameters, and then each change of them, as they come: ``for change in …``."""
        return LiveChanges(self._connection, self.name, {**(key or {}), **parameters})

    def live_rows(self, key: Mapping[str, Any] | None = None, /, **parameters: Any) -> BlockingLiveRows:
        """The rows as a list, which moves on with ``changed()`` and ``reached(token)``: ``with … as rows``."""
        return BlockingLiveRows(self.live(key, **parameters))

    def evict(self, keys: Iterable[Key]) -> int:
        """Forget the answers for these keys."""
        return self._connection.send(calls.evict(self.name, keys))

    def explain(self) -> str:
        return self._connection.send(calls.explain(self.name))

    def held(self) -> Iterator[bytes]:
        """All that the view's reader holds, as lines of JSON, and exactly what it reflects."""
        return self._connection.lines(calls.held_path(self.name))


class Table:
    """A base table of one connection. What one call changes is changed all or none, in each shard."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self.name = name

    def insert(
        self,
        rows: Mapping[str, Any] | Iterable[Mapping[str, Any]],
        *,
        once: Once | None = None,
        on_duplicate: OnDuplicate = "error",
        update: Iterable[str] | None = None,
    ) -> Written:
        """Insert one row or many. With a place in a stream of writes (its name, and a number that counts from 1) it is
        done once, however often it is sent, and RowsRefused names every row that cannot be stored.

        ``on_duplicate`` says what becomes of a row whose key is taken; ``update`` are the columns that ``"update"``
        sets (None: whatever the rows give that stands in no key). An updated row counts as two, as in MySQL."""
        many = [rows] if isinstance(rows, Mapping) else rows
        return self._connection.send(calls.insert(self.name, many, once, on_duplicate, update))

    def streams(self) -> dict[str, int]:
        """The streams of numbered inserts that the table remembers, each with the last number that is done."""
        return self._connection.send(calls.streams(self.name))

    def last_number(self, stream: str) -> int:
        """The last number of a stream that is done; 0 where it is not known."""
        return self._connection.send(calls.stream(self.name, stream))

    def forget_stream(self, stream: str) -> None:
        """Forget a stream whose writer is done: its next number is 1."""
        self._connection.send(calls.forget_stream(self.name, stream))

    def update(self, key: Mapping[str, Any], set: Mapping[str, Any], *, unchanged: Iterable[str] = ()) -> Written:
        """Change columns of the rows whose columns equal ``key``; with tags of answers, if these are the same still."""
        return self._connection.send(calls.update(self.name, key, set, unchanged))

    def delete(self, key: Mapping[str, Any]) -> Written:
        """Delete the rows whose columns equal ``key``."""
        return self._connection.send(calls.delete(self.name, key))


class Migration:
    """A migration on its way."""

    def __init__(self, connection: Connection, id: str) -> None:
        self._connection = connection
        self.id = id

    def status(self) -> Progress:
        return self._connection.send(calls.migration(self.id))

    def cancel(self) -> Progress:
        return self._connection.send(calls.cancel(self.id))

    def wait(self, timeout: float | None = None, progress: Callable[[Progress], None] | None = None) -> Progress:
        """Until it is done; raises its error, Cancelled, or ReadTimeout after ``timeout`` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = FIRST_POLL_SECONDS
        while True:
            status = self.status()
            if progress is not None:
                progress(status)
            if status.finished:
                return status.checked()
            if deadline is not None and time.monotonic() + pause > deadline:
                raise ReadTimeout(f'migration "{self.id}" is not done after {timeout} s')
            time.sleep(pause)
            pause = min(pause * 1.5, LAST_POLL_SECONDS)
