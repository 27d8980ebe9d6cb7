"""Targets by their URL. A driver is imported when its target is asked for, and only then."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from urllib.parse import SplitResult, urlsplit

from loadgen.peers.headrace import HeadraceTarget
from loadgen.peers.store import Answer, Change, LoadRunError, Lookup, PeerServer, Program, Progress, Target, in_rounds

# A target that answers at once, out of memory: what is left is the cost of the generator itself.
#
# Answers are of the usual size and shape (51 stories, 20 comments), so that pages do all the work on them that they
# do elsewhere.

ROWS = {"frontpage_ids": 51, "recent_ids": 51, "listed_stories": 51, "newest_comment_ids": 40, "comments_by_id": 40}
"""Of queries that have more than :data:`USUAL_ROWS`."""
USUAL_ROWS = 3


class _Row(dict[str, Any]):
    """Has every column: a number, or the moment that it was made."""

    def __missing__(self, key: str) -> int | str:
        return "2018-04-20 00:00:00" if key == "created_at" else int(self["id"])


@dataclass(frozen=True, slots=True)
class NullAnswer:
    _rows: list[dict[str, Any]]

    def rows(self) -> list[dict[str, Any]]:
        return self._rows

    def column(self, name: str) -> list[Any]:
        return [row[name] for row in self._rows]


_ANSWERS = {name: NullAnswer([_Row(id=number) for number in range(1, 1 + count)]) for name, count in ROWS.items()}
_USUAL = NullAnswer([_Row(id=number) for number in range(1, 1 + USUAL_ROWS)])


class NullSession:
    async def read(self, lookups: Sequence[Lookup]) -> Sequence[Answer]:
        return await in_rounds(self._round, lookups)

    async def _round(self, lookups: Sequence[Lookup]) -> Sequence[NullAnswer]:
        return [_ANSWERS.get(each.query.name, _USUAL) for each in lookups]

    async def write(self, changes: Sequence[Change]) -> int:
        return len(changes)

    async def close(self) -> None:
        return None


class NullTarget:
    name = "null"
    servers: Sequence[PeerServer] = ()

    async def describe(self) -> dict[str, str]:
        return {"server": "null: answers at once"}

    async def check(self, program: Program, probe: Lookup | None) -> None:
        return None

    async def prime(
        self, program: Program, batches: Iterable[tuple[str, list[dict[str, Any]]]], total: int, tell: Progress
    ) -> None:
        return None

    async def session(self) -> NullSession:
        return NullSession()

    def notes(self) -> dict[str, Any]:
        return {}

    async def close(self) -> None:
        return None


KNOWN = (
    "http://127.0.0.1:8080 (Headrace), mysql://user:password@host:port/database (MariaDB, MySQL), "
    "postgresql://user:password@host:port/database, "
    "redis://host:port?behind=mysql://… (Redis as a cache in front of a database), redis://host:port (vote only), "
    "null: (nothing)"
)


def open_target(url: str) -> Target:
    """Raises LoadError when the URL is none of a known kind, or its driver is not installed."""
    try:
        parts = urlsplit(url if "://" in url or url.startswith("null:") else f"http://{url}")
        port = parts.port
    except ValueError as error:
        raise LoadRunError(f'"{url}" is not the URL of a target: {error}', hint=f"known are {KNOWN}") from error
    match parts.scheme:
        case "null":
            return NullTarget()
        case "http" if parts.hostname:
            return HeadraceTarget(parts.hostname, port or 80)
        case "mysql" | "mariadb":
            return _database("mysql", "MysqlTarget", parts, port or 3306)
        case "postgresql" | "postgres":
            return _database("postgres", "PostgresTarget", parts, port or 5432)
        case "redis":
            return _redis(parts.hostname or "127.0.0.1", port or 6379, parts.query.partition("behind=")[2])
    raise LoadRunError(f'there is no target of the kind "{url}"', hint=f"known are {KNOWN}")


def _database(module: str, name: str, parts: SplitResult, port: int) -> Target:
    opened: Target = _driver(module, name)(
        parts.hostname or "127.0.0.1", port, parts.username or "", parts.password or "", parts.path.lstrip("/")
    )
    return opened


def _redis(host: str, port: int, behind: str) -> Target:
    opened: Target
    if behind:
        opened = _driver("cached", "CachedTarget")(host, port, open_target(behind))
    else:
        opened = _driver("cached", "CountingTarget")(host, port)
    return opened


def _driver(module: str, name: str) -> Any:
    try:
        return getattr(import_module(f"loadgen.peers.{module}"), name)
    except ModuleNotFoundError as error:
        raise LoadRunError(
            f'the driver "{error.name}" is not installed', hint="pip install 'headrace[peers]'"
        ) from error
