"""Where an upstream is, as its URL says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import parse_qs, unquote, urlsplit

from headrace.errors import BadRequest

PORTS = {"mysql": 3306, "mariadb": 3306, "postgresql": 5432, "postgres": 5432}
OPTIONS = {
    "mysql": {"ssl_ca": "?ssl_ca=FILE, for TLS"},
    "postgresql": {"schema": "?schema=NAME", "publication": "?publication=NAME", "sslmode": "", "sslrootcert": ""},
}


@dataclass(frozen=True, slots=True)
class UpstreamAddress:
    """``mysql://user:password@host:port/database`` or ``postgresql://…``, with options behind ``?``."""

    kind: str
    """``mysql``, which is MariaDB, or ``postgresql``."""
    host: str
    port: int
    user: str
    password: str
    database: str
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, url: str) -> Self:
        """:raises BadRequest: it is no such URL."""
        parts = urlsplit(url)
        database = unquote(parts.path.strip("/"))
        if parts.scheme not in PORTS or not parts.hostname or not database or "/" in database:
            hint = "mysql://user:password@host:3306/database, or postgresql://…"
            raise BadRequest(f'"{_without_password(url)}" is not the URL of a database', hint=hint)
        kind = "mysql" if PORTS[parts.scheme] == PORTS["mysql"] else "postgresql"
        given = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        if unknown := given.keys() - OPTIONS[kind].keys():
            hint = ", ".join(OPTIONS[kind].keys())
            raise BadRequest(f'a URL of a database has no "{min(unknown)}"', hint=f"it may have {hint}")
        user = "root" if kind == "mysql" else "postgres"
        login = (unquote(parts.username or user), unquote(parts.password or ""))
        return cls(kind, parts.hostname, parts.port or PORTS[kind], *login, database, given)

    @property
    def ssl_ca(self) -> str | None:
        """Of MariaDB."""
        return self.options.get("ssl_ca")

    def __str__(self) -> str:
        return f"{self.kind}://{self.user}@{self.host}:{self.port}/{self.database}"


def _without_password(url: str) -> str:
    before, at, behind = url.rpartition("@")
    return f"{before.rpartition(':')[0]}:…@{behind}" if at and ":" in before.partition("://")[2] else url
