"""A shop in MariaDB, a Headrace that follows it and passes on, and the clients of both."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pymysql  # type: ignore[import-untyped]

from headrace import connect
from tests.told_process import ToldProcess
from tests.upstream.upstream_server import DATABASE, UpstreamServer, until

APP, PASSWORD = "app", "pa:ss"
SCHEMA = (
    "CREATE TABLE stories (id INT AUTO_INCREMENT PRIMARY KEY, author INT, title VARCHAR(80), made DATETIME(3))",
    "CREATE TABLE votes (user INT, story INT, PRIMARY KEY (user, story))",
    "CREATE TABLE plain (id INT PRIMARY KEY, word VARCHAR(20))",
    "INSERT INTO stories (author, title) SELECT seq % 10, CONCAT('story ', seq) FROM seq_1_to_50",
    "INSERT INTO votes SELECT seq % 7, seq FROM seq_1_to_50",
    "INSERT INTO plain VALUES (1, 'one')",
)
COUNTED = "SELECT COUNT(*) AS n FROM votes WHERE story = "
BY_AUTHOR = "SELECT id, title FROM stories WHERE author = {} ORDER BY id"
VIEWS = (
    f"CREATE EXT VIEW ByAuthor AS {BY_AUTHOR.format('?')}",
    f"CREATE EXT VIEW Counted AS {COUNTED}?",
)


class PassingSite:
    def __init__(self, directory: Path, *settings: str) -> None:
        self.directory, self.settings = directory, settings
        self.upstream = UpstreamServer(directory)
        self.upstream.run(
            f"CREATE USER {APP}@'%' IDENTIFIED BY '{PASSWORD}'", f"GRANT ALL ON *.* TO {APP}@'%'", *SCHEMA
        )
        self.follower: ToldProcess | None = None
        self.port = 0
        self.start()
        self.headrace("import", self.upstream.url, "stories", "votes").finish(120)
        self.follow()

    @property
    def app_url(self) -> str:
        return f"mysql://{APP}:{quote(PASSWORD)}@127.0.0.1:{self.upstream.port}/{DATABASE}"

    def start(self) -> None:
        words = ["serve", "--data", str(self.directory / "data"), "--port", "0", "--mysql-port", str(self.port)]
        self.server = self._process([*words, "--mysql-upstream", self.app_url, *self.settings])
        self.url = self.server.read_until(r"answers at (\S+)")[1]
        self.port = int(self.server.read_until(r"MySQL's clients are answered at \S+:(\d+)")[1])

    def _process(self, words: Sequence[str]) -> ToldProcess:
        return ToldProcess(["-m", "headrace", *words], {"HEADRACE_SLOW_REQUEST": "60"})

    def headrace(self, command: str, *words: str) -> ToldProcess:
        return self._process([command, *words, "--url", self.url])

    def follow(self) -> None:
        self.follower = self.headrace("follow", self.upstream.url)
        self.follower.read_until("following")

    def unfollow(self) -> None:
        assert self.follower is not None
        self.follower.kill()

    def define(self, *statements: str) -> None:
        with connect(self.url) as db:
            for each in statements:
                db.execute(each)

    def connect(self, **options: Any) -> Any:
        given = {"user": "root", "database": DATABASE, "charset": "utf8mb4", "autocommit": True}
        return pymysql.connect(host="127.0.0.1", port=self.port, **{**given, **options})

    def counts(self) -> tuple[int, int]:
        """Statements that were answered here, and that were passed on."""
        text = httpx.get(f"{self.url}/metrics").text
        found = {"mysql": 0, "mysql passed on": 0}
        for line in text.splitlines():
            for name in found:
                if line.startswith(f'headrace_http_requests_total{{route="{name}"'):
                    found[name] += int(float(line.rsplit(" ", 1)[1]))
        return found["mysql"], found["mysql passed on"]

    def answered_here(self, db: Any, sql: str) -> bool:
        before = self.counts()
        rows(db, sql)
        here, there = (now - was for now, was in zip(self.counts(), before, strict=True))
        assert here + there == 1, (here, there)
        return here == 1

    def until_here(self, db: Any, sql: str) -> None:
        until(lambda: self.answered_here(db, sql), f"a view answers {sql}", 30)

    def end(self) -> None:
        for each in (self.follower, self.server):
            if each is not None:
                each.popen.send_signal(signal.SIGTERM)
                code, _, errors = each.finish(60)
                assert code == 0, errors
                assert "Traceback" not in errors, errors
        self.upstream.kill()

    def give_up(self) -> None:
        for each in (self.follower, self.server):
            if each is not None:
                each.kill()
        if self.upstream.process is not None:
            self.upstream.process.kill()


def rows(db: Any, sql: str, values: Any = None) -> list[tuple[Any, ...]]:
    with db.cursor() as cursor:
        cursor.execute(sql, values)
        return list(cursor.fetchall())
