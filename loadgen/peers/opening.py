"""Targets by their URL. A driver is imported when its target is asked for, and only then."""

from __future__ import annotations

from importlib import import_module
from typing import Any
from urllib.parse import SplitResult, urlsplit

from loadgen.pace.errors import LoadError
from loadgen.peers.headrace import HeadraceTarget
from loadgen.peers.null import NullTarget
from loadgen.peers.store import Target

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
        raise LoadError(f'"{url}" is no URL of a target: {error}', hint=f"known are {KNOWN}") from error
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
    raise LoadError(f'there is no target of the kind "{url}"', hint=f"known are {KNOWN}")


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
        opened = _driver("counting", "CountingTarget")(host, port)
    return opened


def _driver(module: str, name: str) -> Any:
    try:
        return getattr(import_module(f"loadgen.peers.{module}"), name)
    except ModuleNotFoundError as error:
        raise LoadError(f'the driver "{error.name}" is not installed', hint="pip install 'headrace[peers]'") from error
