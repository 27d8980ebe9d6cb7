"""An upstream and a Headrace for tests that kill neither; each has a database, and tables, of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from typing import Any

import pytest

from headrace import embedded
from headrace.upstream.address import UpstreamAddress
from headrace.upstream.following import (
    FollowRequest,
    UpstreamFollower,
    UpstreamProgress,
    begin_import,
    followed_database,
    kind_of,
)
from loadgen.bench import servers
from tests.upstream import postgres_server
from tests.upstream.postgres_server import PostgresServer, postgres_programs
from tests.upstream.upstream_server import UpstreamServer, rows_of

NUMBERS = count(1)


@pytest.fixture(scope="session")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpstreamServer]:
    if servers.mariadbd() is None:
        pytest.skip("MariaDB is not installed")
    server = UpstreamServer(tmp_path_factory.mktemp("upstream"))
    yield server
    server.kill()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    if postgres_programs() is None:
        pytest.skip("PostgreSQL is not installed")
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture(scope="session")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with embedded(str(tmp_path_factory.mktemp("here")), read_your_writes=True, read_timeout=3) as db:
        yield db


class Followed:
    """A database upstream, and what follows it here. Tables are called after it: all tests share a Headrace."""

    def __init__(self, upstream: Any, here: Any, name: str) -> None:
        self.upstream, self.here, self.name = upstream, here, name
        self.asked = FollowRequest(UpstreamAddress.parse(upstream.url_of(name)), chunk_rows=3, patience=10)
        self._make()

    def _make(self) -> None:
        self.upstream.run(f"CREATE DATABASE {self.name}", database=None)

    def rows_there(self, table: str) -> list[tuple[Any, ...]]:
        return rows_of(self.upstream, table, self.name)

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        return self.upstream.run(*statements, database=self.name)

    def import_(self, *tables: str, collation: str | None = None) -> UpstreamProgress:
        follower = UpstreamFollower(begin_import(self.here, self.asked, tables, collation), self.asked)
        follower.run(until_copied=True)
        return follower.progress

    def follow(self, leave_out: tuple[str, ...] = ()) -> UpstreamProgress:
        """Until all that has been written upstream is here."""
        with closing(kind_of(self.asked.address).open(self.asked.address)) as source:
            wanted = source.position()
        target = followed_database(self.here, self.asked)
        target.leave_out(leave_out)

        def tell(_: UpstreamProgress) -> None:
            if target.position.covers(wanted) and all(each.is_whole for each in target.tables.values()):
                follower.end()

        follower = UpstreamFollower(target, self.asked, tell)
        follower.run()
        return follower.progress

    def equals(self, *tables: str) -> bool:
        for table in tables:
            key = ", ".join(self.here_table(table)["primary_key"])
            ours = [tuple(row) for row in self.here.execute(f"SELECT * FROM {table} ORDER BY {key}").rows]
            theirs = self.rows_there(table)
            pairs = [pair for one, other in zip(ours, theirs, strict=True) for pair in zip(one, other, strict=True)]
            assert [pair for pair in pairs if pair[0] != pair[1]] == []
        return True

    def here_table(self, table: str) -> dict[str, Any]:
        return next(each for each in self.here.tables() if each["name"] == table)

    def stopped(self) -> str:
        ((why,),) = self.here.execute("SELECT stopped FROM headrace_upstream WHERE source = ?", [self.name]).rows
        return str(why or "")


@pytest.fixture
def followed(upstream: UpstreamServer, here: Any) -> Callable[[], Followed]:
    return lambda: Followed(upstream, here, f"d{next(NUMBERS)}")


@pytest.fixture
def shop(followed: Callable[[], Followed]) -> Followed:
    return followed()


class FollowedPostgres(Followed):
    def _make(self) -> None:
        self.upstream.make(self.name)

    def rows_there(self, table: str) -> list[tuple[Any, ...]]:
        key = self.here_table(table)["primary_key"]
        return postgres_server.rows_of(self.upstream, self.name, table, key)

    def kept(self) -> tuple[int, int]:
        """Slots and publications upstream."""
        ((slots,),) = self.run(f"SELECT COUNT(*) FROM pg_replication_slots WHERE database = '{self.name}'")
        ((publications,),) = self.run("SELECT COUNT(*) FROM pg_publication")
        return int(slots), int(publications)


@pytest.fixture
def pg(postgres: PostgresServer, here: Any) -> FollowedPostgres:
    return FollowedPostgres(postgres, here, f"p{next(NUMBERS)}")
