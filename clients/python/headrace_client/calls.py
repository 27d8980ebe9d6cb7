"""Every HTTP call as a value: what is sent, and how the answer is read. No I/O here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import quote, urlencode

from headrace_client import encoding
from headrace_client.encoding import Reference, sql_value, to_json, to_text
from headrace_client.errors import BadRequest, ConnectionFailed, HeadraceError, rebuild
from headrace_client.results import Archived, Column, Progress, Record, Result, Written
from headrace_client.tokens import Token

Answer = TypeVar("Answer")
Key = Any
"""A key of a view: a tuple or list of its parameters, a mapping by name, or the one value where there is one."""

Pages = list[list[Record]]
"""The rows of each key."""

Once = tuple[str, int]
"""The name of a stream of writes, and a number in it, from 1 on: what is sent again under it is not done again."""


OnDuplicate = Literal["error", "ignore", "replace", "update"]
"""The fate of an inserted row whose PRIMARY KEY or UNIQUE is taken: all rows are refused, it is left out, what is there
is replaced, or what is there is updated."""

LISTS = (list, tuple, set, frozenset)
QUERY_MAX = 6_000
"""Characters of a query string: proxies take request lines of 8,192 bytes, httpx URLs of 65,536."""


@dataclass(frozen=True, slots=True)
class Call(Generic[Answer]):
    method: str
    path: str
    """The path with its query string, percent-encoded."""
    read: Callable[[Any], Answer]
    body: bytes | None = None
    consistent: bool = False
    """It takes a token."""
    views: Callable[[Any], Sequence[Pages]] | None = None
    """How a look-up's answer becomes the pages of each view that was asked for: their types are in the answer's
    header."""


def execute(
    sql: str,
    params: Sequence[Any],
    *,
    raw: bool = False,
    atomic: bool = False,
    unchanged: Iterable[str] = (),
    follows: bool = False,
) -> Call[list[Result]]:
    whole: dict[str, Any] = {name: True for name, said in (("atomic", atomic), ("follows", follows)) if said}
    if tags := list(unchanged):
        whole["if"] = tags
    body = to_json({"sql": sql, "params": [sql_value(each) for each in params], **whole})
    return Call("POST", "/v1/sql", lambda answer: _results(answer, raw), body, consistent=True)


def begin(*, read_only: bool, isolation: str | None, follows: bool = False) -> Call[str]:
    given = {"isolation": isolation, "follows": follows or None}
    body = {"read_only": read_only, **{name: value for name, value in given.items() if value is not None}}
    return Call("POST", "/v1/transactions", lambda answer: str(answer["id"]), to_json(body))


def commit(id: str) -> Call[Written]:
    return Call("POST", f"/v1/transactions/{id}/commit", _written, b"{}")


def roll_back(id: str) -> Call[None]:
    return Call("POST", f"/v1/transactions/{id}/rollback", lambda _: None, b"{}")


def take_snapshot(name: str, *, hold: bool) -> Call[dict[str, Any]]:
    return Call("POST", "/v1/snapshots", lambda answer: answer, to_json({"name": name, "hold": hold}))


def snapshot(name: str) -> Call[dict[str, Any]]:
    return show(f"/v1/snapshots/{quote(name, safe='')}")


def drop_snapshot(name: str) -> Call[None]:
    return Call("DELETE", f"/v1/snapshots/{quote(name, safe='')}", lambda _: None, None)


def upstream_token(source: str, position: str) -> Call[Token]:
    path = f"/v1/upstreams/{quote(source, safe='')}/token?{urlencode({'position': position})}"
    return Call("GET", path, lambda answer: Token(answer["token"]))


def last(results: list[Result]) -> Result:
    if not results:
        raise BadRequest("there is no statement in the text")
    return results[-1]


def lookup(view: str, parameters: Mapping[str, Any]) -> Call[list[Record]]:
    """A call by GET, which the server answers fastest; by POST for what a query string cannot say: NULL, bytes, and
    long lists."""
    given = {name: list(value) if isinstance(value, LISTS) else value for name, value in parameters.items()}
    pairs = [(name, each) for name, value in given.items() for each in (value if isinstance(value, list) else [value])]
    if not any(each is None or isinstance(each, bytes) for _, each in pairs):
        query = urlencode([(name, to_text(each)) for name, each in pairs])
        if len(query) <= QUERY_MAX:
            path = f"{_view(view)}?{query}" if query else _view(view)
            return Call(
                "GET", path, lambda answer: _rows(answer["rows"]), None, True, lambda answer: [[answer["rows"]]]
            )
    many = lookup_many(view, [given])
    return Call(many.method, many.path, lambda answer: _first(many.read(answer)), many.body, True, many.views)


def lookup_many(view: str, keys: Iterable[Key]) -> Call[Pages]:
    body = to_json({"keys": [_key(key) for key in keys]})
    path = f"{_view(view)}/lookup"
    return Call("POST", path, lambda answer: _pages(answer["results"]), body, True, lambda answer: [answer["results"]])


def lookup_tagged(view: str, key: Key) -> Call[tuple[list[Record], str]]:
    body = to_json({"keys": [_key(key)], "etags": True})

    def read(answer: Any) -> tuple[list[Record], str]:
        return _first(_pages(answer["results"])), str(answer["etags"][0])

    return Call("POST", f"{_view(view)}/lookup", read, body, True, lambda answer: [answer["results"]])


def lookups(wanted: Iterable[tuple[str, Iterable[Key]]], *, consistent: bool = False) -> Call[list[Pages]]:
    together = {"consistent": True} if consistent else {}
    asked = [{"view": view, "keys": [_key(key) for key in keys]} for view, keys in wanted]
    body = to_json({"lookups": asked, **together})

    def read(answer: Any) -> list[Pages]:
        return [_pages(each) for each in answer["results"]]

    return Call("POST", "/v1/lookups", read, body, True, lambda answer: list(answer["results"]))


def evict(view: str, keys: Iterable[Key]) -> Call[int]:
    body = to_json({"keys": [_key(key) for key in keys]})
    return Call("POST", f"{_view(view)}/evict", lambda answer: int(answer["evicted"]), body)


def explain(view: str) -> Call[str]:
    return Call("GET", f"{_view(view)}/explain", lambda answer: str(answer["explain"]))


def held_path(view: str) -> str:
    """Its answer is no JSON but lines of it."""
    return f"{_view(view)}/held"


def archive() -> Call[Archived]:
    return Call("POST", "/v1/archive", lambda answer: Archived(**{**answer, "token": Token(answer["token"])}))


def insert(
    table: str,
    rows: Iterable[Mapping[str, Any]],
    once: Once | None = None,
    on_duplicate: OnDuplicate = "error",
    update: Iterable[str] | None = None,
) -> Call[Written]:
    body: dict[str, Any] = {"rows": [dict(row) for row in rows]}
    if on_duplicate != "error":
        body["on_duplicate"] = on_duplicate
    if update is not None:
        body["update"] = list(update)
    if once is not None:
        body["once"] = {"stream": once[0], "number": once[1]}
    return Call("POST", _table(table), _written, to_json(body))


def streams(table: str) -> Call[dict[str, int]]:
    def read(answer: Any) -> dict[str, int]:
        return {each["stream"]: each["number"] for each in answer["streams"]}

    return Call("GET", _streams(table), read)


def stream(table: str, name: str) -> Call[int]:
    return Call("GET", _streams(table, name), lambda answer: int(answer["number"]))


def forget_stream(table: str, name: str) -> Call[None]:
    return Call("DELETE", _streams(table, name), lambda _: None)


def update(
    table: str, key: Mapping[str, Any], changes: Mapping[str, Any], unchanged: Iterable[str] = ()
) -> Call[Written]:
    tags = list(unchanged)
    body = {"key": dict(key), "set": dict(changes), **({"if": tags} if tags else {})}
    return Call("PATCH", _table(table), _written, to_json(body))


def delete(table: str, key: Mapping[str, Any]) -> Call[Written]:
    return Call("DELETE", _table(table), _written, to_json({"key": dict(key)}))


def migrate(sql: str) -> Call[str]:
    return Call("POST", "/v1/migrations", lambda answer: str(answer["id"]), to_json({"sql": sql}))


def migrations() -> Call[list[Progress]]:
    return Call("GET", "/v1/migrations", lambda answer: list(map(progress, answer["migrations"])))


def migration(id: str) -> Call[Progress]:
    return Call("GET", f"/v1/migrations/{quote(id, safe='')}", progress)


def cancel(id: str) -> Call[Progress]:
    return Call("DELETE", f"/v1/migrations/{quote(id, safe='')}", progress)


def show(path: str) -> Call[dict[str, Any]]:
    """Any call that only shows something: tables, views, graph, status."""
    return Call("GET", path, dict)


def read_answer(call: Call[Answer], status: int, content: bytes, types: str = "") -> Answer:
    """The call's answer; raises the server's error. ``types`` is the header ``Headrace-Types``."""
    try:
        answer = json.loads(content)
        if status < 400:
            if types and call.views is not None:
                encoding.pages(call.views(answer), types)
            return call.read(answer)
        error = rebuild(**answer["error"], status=status)
    except HeadraceError:
        raise
    except (ValueError, KeyError, TypeError, IndexError, ArithmeticError) as problem:
        message = f"{call.method} {call.path.partition('?')[0]} answered {status} with something that is not Headrace's"
        raise ConnectionFailed(message, hint="is the URL that of a Headrace server?") from problem
    raise error


def _view(name: str) -> str:
    return f"/v1/views/{quote(name, safe='')}"


def _table(name: str) -> str:
    return f"/v1/tables/{quote(name, safe='')}/rows"


def _streams(table: str, *name: str) -> str:
    return "/".join((f"/v1/tables/{quote(table, safe='')}/streams", *(quote(each, safe="") for each in name)))


def _key(key: Key) -> Any:
    if isinstance(key, Mapping) and not isinstance(key, Reference):
        return dict(key)
    return list(key) if isinstance(key, list | tuple) else [key]


def _rows(rows: list[Record]) -> list[Record]:
    return rows


def _pages(pages: Pages) -> Pages:
    return pages


def _first(pages: Pages) -> list[Record]:
    return pages[0]


def _results(answer: Any, raw: bool) -> list[Result]:
    return [
        Result(
            tuple(Column(column["name"], column["type"]) for column in each["columns"]),
            encoding.rows([] if raw else [column["type"] for column in each["columns"]], each["rows"]),
            each["rows_affected"],
            Token(answer["token"]),
            each.get("first_id"),
            each.get("done"),
        )
        for each in answer["results"]
    ]


def _written(answer: Any) -> Written:
    token, first_id = Token(answer["token"]), answer.get("first_id")
    return Written(answer["rows_affected"], token, first_id, answer.get("repeated", False))


def progress(answer: Any) -> Progress:
    """How far a migration is, or a rebuild, as the server says it."""
    error = answer["error"]
    return Progress(
        answer["id"],
        answer["sql"],
        answer["state"],
        answer["step"],
        answer["progress"],
        tuple(answer["steps"]),
        rebuild(**error) if error else None,
        **{name: answer[name] for name in _BACKFILL},
    )


_COUNTS = ("rows", "rows_total", "stages_done", "stages", "tasks_done", "tasks")
_BACKFILL = ("backfill", "why", *_COUNTS, "seconds_left", "ui")
