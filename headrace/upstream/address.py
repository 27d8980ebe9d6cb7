"""Where an upstream is, as its URL says it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

from headrace.errors import BadRequest

PORT = 3306
TIMEOUT = 60.0
"""Seconds without a word from the upstream after which it counts as gone."""


@dataclass(frozen=True, slots=True)
class UpstreamAddress:
    """``mysql://user:password@host:port/database``, with ``?ssl_ca=FILE`` for TLS."""

    host: str
    port: int
    user: str
    password: str
    database: str
    ssl_ca: str | None = None

    @classmethod
    def parse(cls, url: str) -> Self:
        """:raises BadRequest: it is no such URL."""
        parts = urlsplit(url)
        database = unquote(parts.path.strip("/"))
        if parts.scheme not in ("mysql", "mariadb") or not parts.hostname or not database or "/" in database:
            hint = "mysql://user:password@host:3306/database"
            raise BadRequest(f'"{_without_password(url)}" is not the URL of a database', hint=hint)
        given = parse_qs(parts.query)
        unknown = given.keys() - {"ssl_ca"}
        if unknown:
            raise BadRequest(f'a URL of a database has no "{min(unknown)}"', hint="?ssl_ca=FILE, for TLS")
        login = (unquote(parts.username or "root"), unquote(parts.password or ""))
        return cls(parts.hostname, parts.port or PORT, *login, database, given.get("ssl_ca", [None])[0])

    def options(self) -> dict[str, Any]:
        """PyMySQL's."""
        where = {"host": self.host, "port": self.port, "user": self.user, "password": self.password}
        tls = {"ssl_ca": self.ssl_ca, "ssl_verify_identity": True} if self.ssl_ca else {}
        return {**where, **tls, "charset": "utf8mb4", "connect_timeout": 10, "read_timeout": TIMEOUT}

    def __str__(self) -> str:
        return f"mysql://{self.user}@{self.host}:{self.port}/{self.database}"


def _without_password(url: str) -> str:
    before, at, behind = url.rpartition("@")
    return f"{before.rpartition(':')[0]}:…@{behind}" if at and ":" in before.partition("://")[2] else url
