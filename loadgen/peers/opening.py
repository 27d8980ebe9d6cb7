"""Targets by their URL. A driver is imported when its target is asked for, and only then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from urllib.parse import SplitResult, urlsplit

from loadgen.peers.headrace import HeadraceTarget
from loadgen.peers.store import Answer, Change, LoadRunError, Lookup, PeerSession, Target

# A target that answers at once, out of memory: what is left is the cost of the generator itself.
#
# Answers are of the usual size and shape (51 stories, 20 comments), so that pages do all the work on them that they
# do elsewhere.

ROWS = {"frontpage_ids": 51, "recent_ids": 51, "listed_stories": 51, "newest_comment_ids": 40, "comments_by_id": 40}
"""Rows of the queries that have more than :data:`USUAL_ROWS`."""
USUAL_ROWS = 3


class _Row(dict[str, Any]):
    """Has every column: a number, or the moment that it was made."""

    def __missing__(self, key: str) -> int | str:
        return "2018-04-20 00:00:00" if key == "created_at" else int(self["id"])


@dataclass(frozen=True, slots=True)
class NullAnswer:
    _rows: list[dict[str, Any]]

    def rows(self) -> list[dict[str, Any]]:
        return self._rows  # As they are: a copy would have the usual columns only.

    def column(self, name: str) -> list[Any]:
        return [row[name] for row in self._rows]


_ANSWERS = {name: NullAnswer([_Row(id=number) for number in range(1, 1 + count)]) for name, count in ROWS.items()}
_USUAL = NullAnswer([_Row(id=number) for number in range(1, 1 + USUAL_ROWS)])


class NullSession(PeerSession):
    async def ask(self, lookups: Sequence[Lookup]) -> Sequence[Answer]:
        return [_ANSWERS.get(each.query.name, _USUAL) for each in lookups]

    async def write(self, changes: Sequence[Change]) -> int:
        return len(changes)


class NullTarget(Target):
    name = "null"

    async def describe(self) -> dict[str, str]:
        return {"server": "null: answers at once"}

    async def session(self) -> PeerSession:
        return NullSession()


KNOWN = (
    "http://127.0.0.1:8080 (Headrace), mysql://user:password@host:port/database (MariaDB, MySQL), "
    "postgresql://user:password@host:port/database, "
    "redis://host:port?behind=mysql://… (Redis as a cache in front of a database), redis://host:port (vote only), "
    "null: (nothing)"
)


def open_target(url: str) -> Target:
    """Raises LoadRunError when the URL is none of a known kind, or its driver is not installed."""
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
            return _driver("mysql", "MysqlTarget", parts, port or 3306)
        case "postgresql" | "postgres":
            return _driver("postgres", "PostgresTarget", parts, port or 5432)
        case "redis":
            behind = parts.query.partition("behind=")[2]
            if behind:
                return _driver("cached", "CachedTarget", parts, port or 6379, open_target(behind))
            return _driver("cached", "CountingTarget", parts, port or 6379)
    raise LoadRunError(f'there is no target of the kind "{url}"', hint=f"known are {KNOWN}")


def _driver(module: str, name: str, parts: SplitResult, port: int, *more: Target) -> Target:
    try:
        kind = getattr(import_module(f"loadgen.peers.{module}"), name)
    except ModuleNotFoundError as error:
        raise LoadRunError(
            f'the driver "{error.name}" is not installed', hint="pip install 'headrace[peers]'"
        ) from error
    target: Target = kind(parts, port, *more)
    return target
