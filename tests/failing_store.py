"""Stores that fail when a simulator says so: any call that a store on disk may fail, one at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from domains.errors import StorageFailure
from domains.language.types import Delta, Row, TableSchema
from domains.plan.graph import Columns
from domains.store.memory_store import MemoryStore, MemoryTable
from domains.store.storage import CommitLost

CALLS = (
    *("find", "find_many", "count_many", "scan", "log", "commit", "lost commit", "sync", "flush"),
    *("create_table", "alter_table", "drop_table", "add_index", "build_index", "drop_index"),
)


_Entry = tuple[str, int, Sequence[Delta]]


class Fuse:
    """Makes one call fail: the ``left``-th from now on, of those that the engine makes; 0 is none.

    Whoever judges reads the same stores, and what he reads never fails: calls count while the fuse is ``live``.
    """

    def __init__(self) -> None:
        self.left = 0
        self.only = ""
        """A call that alone counts, where it is one."""
        self.burnt: Counter[str] = Counter()
        """By call, how often it has failed."""
        self._live = False

    @contextmanager
    def live(self) -> Iterator[None]:
        before, self._live = self._live, True
        try:
            yield
        finally:
            self._live = before

    def burn(self, call: str) -> None:
        """:raises StorageFailure: it is this call's turn."""
        if self.left and self._live and self.only in ("", call):
            self.left -= 1
            if not self.left:
                self.burnt[call] += 1
                raise StorageFailure(f"the simulated disk fails: {call}")


def _failing(name: str) -> Callable[..., Any]:
    call = getattr(MemoryTable, name)

    def failing(self: FailingTable, *given: Any) -> Any:
        self.fuse.burn(name)
        return call(self, *given)

    return failing


class FailingTable(MemoryTable):
    """A look-up that makes others of itself may fail in any of them."""

    def __init__(self, schema: TableSchema, fuse: Fuse) -> None:
        super().__init__(schema)
        self.fuse = fuse

    find: Callable[[Columns, Row], list[Delta]] = _failing("find")  # type: ignore[assignment]
    find_many: Callable[[Columns, Sequence[Row]], list[list[Delta]]] = _failing("find_many")  # type: ignore[assignment]
    count_many: Callable[[Columns, Sequence[Row], int], list[int]] = _failing("count_many")  # type: ignore[assignment]
    scan: Callable[[bytes | None, int], Any] = _failing("scan")  # type: ignore[assignment]
    add_index: Callable[[Columns], None] = _failing("add_index")  # type: ignore[assignment]
    build_index: Callable[..., bytes | None] = _failing("build_index")  # type: ignore[assignment]
    drop_index: Callable[[Columns], None] = _failing("drop_index")  # type: ignore[assignment]


class FailingStore(MemoryStore):
    """``fuse`` may be one for many stores."""

    def __init__(self, fuse: Fuse) -> None:
        super().__init__()
        self.fuse = fuse
        self.lost: tuple[list[_Entry], list[tuple[MemoryTable, list[Delta], dict[str, int]]]] | None = None
        """A commit that the disk has failed, and may have all the same."""

    def make_table(self, schema: TableSchema) -> MemoryTable:
        return FailingTable(schema, self.fuse)

    def create_table(self, schema: TableSchema) -> MemoryTable:
        self.fuse.burn("create_table")
        return super().create_table(schema)

    def alter_table(self, schema: TableSchema) -> MemoryTable:
        self.fuse.burn("alter_table")
        return super().alter_table(schema)

    def drop_table(self, name: str) -> None:
        self.fuse.burn("drop_table")
        super().drop_table(name)

    def commit(self, log: Iterable[tuple[str, int, Sequence[Delta]]]) -> None:
        entries = list(log)
        self.fuse.burn("commit")
        if self.lost is not None:
            raise StorageFailure("it takes no writes before it is opened again")
        try:
            self.fuse.burn("lost commit")
        except StorageFailure as error:
            tables = [self.table(schema.name) for schema in self.tables()]
            self.lost = entries, [(table, list(table._staged), dict(table._staged_streams)) for table in tables]
            raise CommitLost(error.message) from error
        super().commit(entries)

    def open_again(self, *, there: bool) -> None:
        """A commit that was lost is ``there`` then, or it is not."""
        lost, self.lost = self.lost, None
        if lost is not None and there:
            for table, deltas, streams in lost[1]:
                table.stage(deltas)
                for stream, number in streams.items():
                    table.remember(stream, number)
            super().commit(lost[0])

    def log(self, table: str, after: int, limit: int) -> list[tuple[int, list[Delta]]]:
        self.fuse.burn("log")
        return super().log(table, after, limit)

    def flush(self) -> None:
        self.fuse.burn("flush")
        super().flush()
